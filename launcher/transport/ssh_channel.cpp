#include "launcher/transport/ssh_channel.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

namespace dtrun::transport {
namespace {

constexpr std::size_t kWriteBytesMax = 64u << 10;  // handed to libssh at once
/// What a server nearby has not passed on yet: 1 Gbit/s for 2 ms. It may be no less than the 96 KiB after which OpenSSH says
/// that it has passed on something.
constexpr std::uint32_t kAheadBytesMax = 256u << 10;

/// -1 until the server has sent it, and for a command that a signal ended.
int exit_status_of(ssh_channel channel) {
#if LIBSSH_VERSION_INT >= SSH_VERSION_INT(0, 11, 0)
    std::uint32_t status = 0;
    const int had = ssh_channel_get_exit_state(channel, &status, nullptr, nullptr);
    return had == SSH_OK ? static_cast<int>(status) : -1;
#else
    return ssh_channel_get_exit_status(channel);
#endif
}

/// Networks of a machine room answer within this time; what answers later is a line for which one pays by the byte.
constexpr std::chrono::microseconds kNear{2'000};

/// The shortest time in which the machine at the other end has answered, which load does not make longer.
std::optional<std::chrono::microseconds> shortest_answer(int socket) {
    // tcpi_min_rtt in linux/tcp.h, beside which netinet/tcp.h cannot be included; glibc's tcp_info ends before it.
    constexpr std::size_t kMinRttAt = 148;
    std::array<std::byte, kMinRttAt + sizeof(std::uint32_t)> info{};
    socklen_t size = info.size();
    std::uint32_t answer_us = 0;
    if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, info.data(), &size) != 0 || size < info.size())
        return std::nullopt;
    std::memcpy(&answer_us, info.data() + kMinRttAt, sizeof answer_us);
    if (answer_us == ~0u) return std::nullopt;  // none has been seen
    return std::chrono::microseconds(answer_us);
}

class SshChannel final : public Channel {
public:
    SshChannel(std::unique_ptr<SshSession> session, ssh_channel channel, std::string address)
        : session_(std::move(session)), channel_(channel), address_(std::move(address)) {}
    ~SshChannel() override { close(); }

    asio::awaitable<Result<std::size_t>> read(std::span<char> into, Deadline deadline) override {
        for (;;) {
            if (session_->disconnected()) co_return fail(Errc::cancelled, "closed");
            // Either call takes packets of both streams from the socket. So output is looked at last:
            // what came with the errors would wait in libssh, and the socket would not tell.
            const auto window = ssh_channel_window_size(channel_);
            const bool was_blocked = session_->blocked();
            collect_errors();
            const auto size = static_cast<std::uint32_t>(into.size());
            const int n = ssh_channel_read_nonblocking(channel_, into.data(), size, 0);
            // These calls may have taken from the socket what a writer waits for.
            if (ssh_channel_window_size(channel_) != window || was_blocked != session_->blocked())
                session_->wake();
            if (n > 0) co_return static_cast<std::size_t>(n);
            if (n == SSH_EOF || ssh_channel_is_eof(channel_) != 0) co_return std::size_t{0};
            if (n < 0) co_return fail(Errc::closed, "{}", session_->error());
            const auto waited = co_await session_->wait(deadline);
            if (!waited) co_return std::unexpected(waited.error());
        }
    }

    asio::awaitable<Result<void>> write(std::string_view bytes, Deadline deadline) override {
        while (!bytes.empty()) {
            if (session_->disconnected()) co_return fail(Errc::cancelled, "closed");
            const auto size =
                static_cast<std::uint32_t>(std::min({bytes.size(), kWriteBytesMax, room()}));
            // libssh does not read what the server says of its window when nothing is written, nor when it is asked for output
            // while some of it has not been taken.
            if (size == 0) {
                collect_errors();
                session_->wake();  // what it has taken, a reader may wait for
                // Behind the end of the output libssh reads nothing for it, so that it does not see the channel's; it does for this.
                if (exit_status_of(channel_) >= 0) co_return fail(Errc::closed, "it has ended");
            }
            const int n = ssh_channel_write(channel_, bytes.data(), size);
            if (n < 0 || ssh_channel_is_closed(channel_) != 0)
                co_return fail(Errc::closed, "{}", session_->error());
            bytes.remove_prefix(static_cast<std::size_t>(n));
            const int flushed = ssh_blocking_flush(session_->get(), 0);
            if (flushed == SSH_ERROR) co_return fail(Errc::closed, "{}", session_->error());
            // These calls may have taken what a reader waits for from the socket.
            session_->wake();
            if (n > 0 && flushed == SSH_OK) continue;
            // libssh does not report a close while bytes were unread; an empty write notices it.
            if (ssh_channel_write(channel_, bytes.data(), 0) < 0)
                co_return fail(Errc::closed, "{}", session_->error());
            // No window, or the socket is full: both end with an event on the socket, unless the
            // calls above have taken that event: the window is open again.
            const bool open =
                ssh_channel_window_size(channel_) > 0 && room() > 0 && !session_->blocked();
            const auto waited = co_await session_->wait(deadline, open);
            if (!waited) co_return waited;
        }
        co_return Result<void>{};
    }

    std::string take_errors() override {
        if (!session_->disconnected()) collect_errors();
        return std::exchange(errors_, {});
    }

    asio::awaitable<std::string> ending(Deadline deadline) override {
        while (!session_->disconnected()) {
            // It comes after the end of the output.
            const int status = exit_status_of(channel_);
            if (status >= 0) co_return fmt::format("exit status {}", status);
            if (ssh_channel_is_closed(channel_) != 0) break;
            const auto waited = co_await session_->wait(deadline);
            if (!waited) break;
        }
        co_return std::string();
    }

    bool is_near() const override {
        const auto answer = shortest_answer(ssh_get_fd(session_->get()));
        return answer && *answer < kNear;
    }

    std::string address() const override { return address_; }

    void close() noexcept override { session_->disconnect(); }

private:
    /// How much may be written now, but for the window itself. OpenSSH's server copies all that waits there for a program
    /// each time when more comes: with its whole window of 2 MiB full that takes ten times as long as to decrypt it.
    std::size_t room() {
        const std::uint32_t window = ssh_channel_window_size(channel_);
        window_max_ = std::max(window_max_, window);
        const std::uint32_t waits = window_max_ - window;
        if (!limits_ahead_) return kWriteBytesMax;
        return waits < kAheadBytesMax ? kAheadBytesMax - waits : 0;
    }

    void collect_errors() {
        char bytes[4096];
        for (;;) {
            const int n = ssh_channel_read_nonblocking(channel_, bytes, sizeof bytes, 1);
            if (n <= 0) return;
            errors_.append(bytes, static_cast<std::size_t>(n));
            if (errors_.size() > kErrorBytesMax) errors_.erase(0, errors_.size() - kErrorBytesMax);
        }
    }

    std::unique_ptr<SshSession> session_;
    ssh_channel channel_;
    const std::string address_;
    const bool limits_ahead_ = ssh_get_openssh_version(session_->get()) > 0 && is_near();
    std::uint32_t window_max_ = 0;  ///< that has been seen
    std::string errors_;
};

}  // namespace

std::unique_ptr<Channel> make_ssh_channel(std::unique_ptr<SshSession> session, ssh_channel channel,
                                          std::string address) {
    return std::make_unique<SshChannel>(std::move(session), channel, std::move(address));
}

}  // namespace dtrun::transport
