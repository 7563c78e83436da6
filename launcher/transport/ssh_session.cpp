#include "launcher/transport/ssh_session.h"

#include "base/strings.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace dtrun::transport {
namespace {

// Shorter than the time after which any firewall forgets an idle connection, such as a lifeline.
constexpr int kKeepAliveSeconds = 30;
constexpr std::string_view kPrefix = "Received SSH_MSG_DISCONNECT: ";  // before the server's words

void keep_alive(int socket) {
    const int on = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    for (const int option : {TCP_KEEPIDLE, TCP_KEEPINTVL})
        ::setsockopt(socket, IPPROTO_TCP, option, &kKeepAliveSeconds, sizeof kKeepAliveSeconds);
}

}  // namespace

SshSession::SshSession(asio::any_io_executor executor) : session_(ssh_new()), ready_(executor) {
    callbacks_.userdata = this;
    callbacks_.auth_function = refuse_to_ask;
    ssh_callbacks_init(&callbacks_);
    ssh_set_callbacks(session_, &callbacks_);
}

SshSession::~SshSession() {
    disconnect();
    ssh_free(session_);
}

Result<void> SshSession::attach(tcp::socket socket) {
    Fd watched(::fcntl(socket.native_handle(), F_DUPFD_CLOEXEC, 0));
    if (!watched) return fail(Errc::internal, "no descriptor: {}", std::strerror(errno));
    close_on_exec(socket.native_handle());
    keep_alive(socket.native_handle());
    int fd = socket.release();
    ssh_options_set(session_, SSH_OPTIONS_FD, &fd);
    ssh_set_blocking(session_, 0);
    ready_.assign(watched.release());
    return {};
}

asio::awaitable<Result<void>> SshSession::wait(Deadline deadline, bool now) {
    if (!ready_.is_open()) co_return fail(Errc::cancelled, "closed");
    // It has taken the end from the socket, which would not tell of it again.
    if (lost()) co_return fail(Errc::closed, "{}", error());
    if (Clock::now() >= deadline) co_return fail(Errc::timed_out, "no answer");
    if (now) {
        co_await asio::post(ready_.get_executor(), asio::use_awaitable);
        co_return Result<void>{};
    }
    // Our delayed ACKs and the server's Nagle algorithm would double the time of a login.
    const int on = 1;
    ::setsockopt(ready_.native_handle(), IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
    const auto kind = blocked() ? asio::posix::descriptor_base::wait_write
                                : asio::posix::descriptor_base::wait_read;
    DeadlineGuard guard(ready_, deadline);
    co_await ready_.async_wait(kind, use_tuple);
    if (!ready_.is_open()) co_return fail(Errc::cancelled, "closed");
    if (guard.expired()) co_return fail(Errc::timed_out, "no answer");
    co_return Result<
        void>{};  // or it was woken, or the other one's deadline has passed: it looks again
}

void SshSession::wake() {
    boost::system::error_code ignored;
    if (ready_.is_open()) ready_.cancel(ignored);
}

void SshSession::disconnect() noexcept {
    boost::system::error_code ignored;
    if (ready_.is_open()) ready_.close(ignored);
    if (!std::exchange(disconnected_, true)) ssh_silent_disconnect(session_);
}

std::string SshSession::error() const {
    // "Received SSH_MSG_DISCONNECT: 2:Too many authentication failures"
    std::string_view said = ssh_get_error(session_);
    if (!said.starts_with(kPrefix)) return std::string(said);
    said.remove_prefix(std::min(said.size(), said.find(':', kPrefix.size())));
    return std::string(trim(said.substr(std::min<std::size_t>(said.size(), 1))));
}

std::string SshSession::banner() const {
    char* const shown = ssh_get_issue_banner(session_);
    const std::string text(trim(shown == nullptr ? "" : shown));
    ssh_string_free_char(shown);
    return text;
}

ssh_key SshSession::read_key(const std::string& file) {
    ssh_key key = nullptr;
    ssh_pki_import_privkey_file(file.c_str(), nullptr, refuse_to_ask, this, &key);
    return key;
}

int SshSession::refuse_to_ask(const char*, char*, std::size_t, int, int, void* session) {
    static_cast<SshSession*>(session)->wanted_passphrase_ = true;
    return -1;
}

}  // namespace dtrun::transport
