#include "launcher/transport/ssh_channel.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/loop/net.h"
#include "base/strings.h"

#include <libssh/callbacks.h>
#include <libssh/libssh.h>
#include <netinet/tcp.h>
#include <pwd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <optional>

namespace dtrun::transport {
namespace {

constexpr std::size_t kWriteBytesMax = 64u << 10;  // handed to libssh at once
// Shorter than the time after which any firewall forgets an idle connection, such as a lifeline.
constexpr int kKeepAliveSeconds = 30;

void set_int(ssh_session session, ssh_options_e option, int value) {
    ssh_options_set(session, option, &value);
}

std::string get_option(ssh_session session, ssh_options_e option) {
    char* value = nullptr;
    if (ssh_options_get(session, option, &value) != SSH_OK || value == nullptr) return {};
    std::string text = value;
    ssh_string_free_char(value);
    return text;
}

void keep_alive(int socket) {
    const int on = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    for (const int option : {TCP_KEEPIDLE, TCP_KEEPINTVL})
        ::setsockopt(socket, IPPROTO_TCP, option, &kKeepAliveSeconds, sizeof kKeepAliveSeconds);
}

/// A libssh session on a socket that the event loop watches.
class SshSession {
public:
    explicit SshSession(asio::any_io_executor executor) : session_(ssh_new()), ready_(executor) {
        callbacks_.userdata = this;
        callbacks_.auth_function = refuse_to_ask;
        ssh_callbacks_init(&callbacks_);
        ssh_set_callbacks(session_, &callbacks_);
    }
    ~SshSession() {
        disconnect();
        ssh_free(session_);
    }
    SshSession(const SshSession&) = delete;
    SshSession& operator=(const SshSession&) = delete;

    ssh_session get() const { return session_; }

    void attach(tcp::socket socket) {
        close_on_exec(socket.native_handle());
        keep_alive(socket.native_handle());
        int fd = socket.release();
        socket_fd_ = fd;
        ssh_options_set(session_, SSH_OPTIONS_FD, &fd);
        ssh_set_blocking(session_, 0);
        ready_.assign(fd);
    }

    /// Repeats `step` whenever the socket is ready, while it answers `again`.
    template <class Step>
    asio::awaitable<Result<int>> drive(Step step, int again, Deadline deadline) {
        for (;;) {
            const int done = step();
            if (done != again) co_return done;
            const auto waited = co_await wait(deadline);
            if (!waited) co_return std::unexpected(waited.error());
        }
    }

    /// Waits until libssh can go on: the socket is readable, or writable if bytes wait to leave.
    /// \param now  libssh can go on already; only lets others run
    asio::awaitable<Result<void>> wait(Deadline deadline, bool now = false) {
        if (!ready_.is_open()) co_return fail(Errc::cancelled, "closed");
        if (Clock::now() >= deadline) co_return fail(Errc::timed_out, "no answer");
        if (now) {
            co_await asio::post(ready_.get_executor(), asio::use_awaitable);
            co_return Result<void>{};
        }
        // Our delayed ACKs and the server's Nagle algorithm would double the time of a login.
        const int on = 1;
        ::setsockopt(socket_fd_, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
        const auto kind = blocked() ? asio::posix::descriptor_base::wait_write
                                    : asio::posix::descriptor_base::wait_read;
        DeadlineGuard guard(ready_, deadline);
        const auto [error] = co_await ready_.async_wait(kind, use_tuple);
        if (guard.expired()) co_return fail(Errc::timed_out, "no answer");
        if (error) co_return fail(Errc::cancelled, "closed");
        co_return Result<void>{};
    }

    /// Whether bytes wait to leave until the socket is writable.
    bool blocked() const { return (ssh_get_poll_flags(session_) & SSH_WRITE_PENDING) != 0; }

    /// Ends a pending wait, and closes the socket; libssh frees all channels with it.
    void disconnect() noexcept {
        if (ready_.is_open()) ready_.release();  // the descriptor belongs to libssh
        if (!std::exchange(disconnected_, true)) ssh_silent_disconnect(session_);
    }
    bool disconnected() const { return disconnected_; }
    const char* error() const { return ssh_get_error(session_); }

    /// Reads a private key's file. Nobody is asked for a passphrase: that would stop all hosts, and a
    /// pipe on standard input is the job's.
    /// \return null if it is not there, under a passphrase, or no key
    ssh_key read_key(const std::string& file) {
        ssh_key key = nullptr;
        ssh_pki_import_privkey_file(file.c_str(), nullptr, refuse_to_ask, this, &key);
        return key;
    }
    /// Whether a key was left out because it is under a passphrase.
    bool wanted_passphrase() const { return wanted_passphrase_; }

private:
    static int refuse_to_ask(const char*, char*, std::size_t, int, int, void* session) {
        static_cast<SshSession*>(session)->wanted_passphrase_ = true;
        return -1;
    }

    ssh_session session_;
    ssh_callbacks_struct callbacks_{};
    asio::posix::stream_descriptor ready_;
    int socket_fd_ = -1;
    bool disconnected_ = false;
    bool wanted_passphrase_ = false;
};

class SshChannel final : public Channel {
public:
    SshChannel(std::unique_ptr<SshSession> session, ssh_channel channel)
        : session_(std::move(session)), channel_(channel) {}
    ~SshChannel() override { close(); }

    asio::awaitable<Result<std::size_t>> read(std::span<char> into, Deadline deadline) override {
        for (;;) {
            if (session_->disconnected()) co_return fail(Errc::cancelled, "closed");
            // Either call takes packets of both streams from the socket. So output is looked at last:
            // what came with the errors would wait in libssh, and the socket would not tell.
            collect_errors();
            const auto size = static_cast<std::uint32_t>(into.size());
            const int n = ssh_channel_read_nonblocking(channel_, into.data(), size, 0);
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
            const auto size = static_cast<std::uint32_t>(std::min(bytes.size(), kWriteBytesMax));
            const int n = ssh_channel_write(channel_, bytes.data(), size);
            if (n < 0 || ssh_channel_is_closed(channel_) != 0)
                co_return fail(Errc::closed, "{}", session_->error());
            bytes.remove_prefix(static_cast<std::size_t>(n));
            const int flushed = ssh_blocking_flush(session_->get(), 0);
            if (flushed == SSH_ERROR) co_return fail(Errc::closed, "{}", session_->error());
            if (n > 0 && flushed == SSH_OK) continue;
            // libssh does not report a close while bytes were unread; an empty write notices it.
            if (ssh_channel_write(channel_, bytes.data(), 0) < 0)
                co_return fail(Errc::closed, "{}", session_->error());
            // No window, or the socket is full: both end with an event on the socket, unless the
            // calls above have taken that event: the window is open again.
            const bool open = ssh_channel_window_size(channel_) > 0 && !session_->blocked();
            const auto waited = co_await session_->wait(deadline, open);
            if (!waited) co_return waited;
        }
        co_return Result<void>{};
    }

    std::string take_errors() override {
        if (!session_->disconnected()) collect_errors();
        return std::exchange(errors_, {});
    }

    asio::awaitable<std::string> ending(Deadline) override {
        if (session_->disconnected()) co_return std::string();
        const int status = ssh_channel_get_exit_status(channel_);
        if (status < 0) co_return std::string();
        co_return fmt::format("exit status {}", status);
    }

    void close() noexcept override { session_->disconnect(); }

private:
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
    std::string errors_;
};

/// Applies ~/.ssh/config and what the user said of this host.
void configure(ssh_session session, const Host& host, const SshOptions& options) {
    ssh_options_set(session, SSH_OPTIONS_HOST, host.name.c_str());
    ssh_options_parse_config(session, nullptr);
    const int port = host.port != 0 ? host.port : options.port;
    if (port != 0) set_int(session, SSH_OPTIONS_PORT, port);
    if (!host.user.empty()) ssh_options_set(session, SSH_OPTIONS_USER, host.user.c_str());
    const std::string& key =
        host.identity_file.empty() ? options.identity_file : host.identity_file;
    if (!key.empty()) ssh_options_set(session, SSH_OPTIONS_IDENTITY, key.c_str());
}

std::string key_fingerprint(ssh_session session) {
    ssh_key key = nullptr;
    if (ssh_get_server_publickey(session, &key) != SSH_OK) return {};
    unsigned char* hash = nullptr;
    std::size_t bytes = 0;
    std::string text;
    if (ssh_get_publickey_hash(key, SSH_PUBLICKEY_HASH_SHA256, &hash, &bytes) == SSH_OK) {
        char* shown = ssh_get_fingerprint_hash(SSH_PUBLICKEY_HASH_SHA256, hash, bytes);
        if (shown != nullptr)
            text = fmt::format("{} {}", ssh_key_type_to_char(ssh_key_type(key)), shown);
        ssh_string_free_char(shown);
        ssh_clean_pubkey_hash(&hash);
    }
    ssh_key_free(key);
    return text;
}

/// The user's known_hosts file with "~" and "%d", the home directory, replaced.
std::string in_home(std::string file) {
    const passwd* user = ::getpwuid(::geteuid());
    const std::string home = user != nullptr ? user->pw_dir : "";
    if (file.empty()) return home + "/.ssh/known_hosts";
    if (file.starts_with("~/")) file.replace(0, 1, home);
    if (const std::size_t at = file.find("%d"); at != std::string::npos) file.replace(at, 2, home);
    return file;
}

/// A host's name, and what is known of it.
struct Known {
    std::string host;
    std::string name;  ///< in known_hosts
    std::string file;  ///< the user's
    KnownHost says;
    Fd excerpt;  ///< for libssh
};

/// A known_hosts file of one host's keys, by which libssh asks for a key of a known type. It would
/// read whole files twice for each host.
Fd write_excerpt(const Known& known) {
    if (known.says.keys.empty()) return {};
    Fd file(::memfd_create("known_hosts", MFD_CLOEXEC));
    for (const HostKey& key : known.says.keys)
        if (file &&
            !write_all(file.get(), fmt::format("{} {} {}\n", known.name, key.type, key.base64)))
            file.reset();
    return file;
}

asio::awaitable<Result<Known>> read_known(SshSession& session, KnownHostsFiles& files, Pool& pool,
                                          unsigned int port, Deadline deadline) {
    Known known;
    known.host = get_option(session.get(), SSH_OPTIONS_HOST);
    known.name = known_hosts_name(known.host, port);
    known.file = in_home(get_option(session.get(), SSH_OPTIONS_KNOWNHOSTS));
    std::string global = get_option(session.get(), SSH_OPTIONS_GLOBAL_KNOWNHOSTS);
    if (global.empty()) global = "/etc/ssh/ssh_known_hosts";
    const auto table = files.read({known.file, global});
    if (table->is_slow()) {
        const auto work = [table, name = known.name] { return table->find(name); };
        auto found = co_await run_on(pool, work, deadline);
        if (!found) co_return fail(found.error(), "reading known_hosts");
        known.says = std::move(*found);
    } else {
        known.says = table->find(known.name);
    }
    known.excerpt = write_excerpt(known);
    const std::string path =
        known.excerpt ? fmt::format("/proc/self/fd/{}", known.excerpt.get()) : "/dev/null";
    ssh_options_set(session.get(), SSH_OPTIONS_KNOWNHOSTS, path.c_str());
    ssh_options_set(session.get(), SSH_OPTIONS_GLOBAL_KNOWNHOSTS, "/dev/null");
    co_return known;
}

Result<HostKey> server_key(ssh_session session) {
    ssh_key key = nullptr;
    if (ssh_get_server_publickey(session, &key) != SSH_OK)
        return fail(Errc::denied, "its host key: {}", ssh_get_error(session));
    char* base64 = nullptr;
    HostKey found;
    if (ssh_pki_export_pubkey_base64(key, &base64) == SSH_OK) found.base64 = base64;
    ssh_string_free_char(base64);
    found.type = ssh_key_type_to_char(ssh_key_type(key));
    ssh_key_free(key);
    return found;
}

Result<void> check_host_key(SshSession& session, const Known& known, KnownHostsFiles& files,
                            bool accept_new) {
    const auto key = server_key(session.get());
    if (!key) return std::unexpected(key.error());
    const std::string shown = key_fingerprint(session.get());
    switch (judge(known.says, *key)) {
        case KeyVerdict::known:
            return {};
        case KeyVerdict::revoked:
            return fail(
                Errc::denied,
                "its host key is marked @revoked in known_hosts ({}): whoever has stolen it "
                "could answer for any host",
                shown);
        case KeyVerdict::changed:
            return fail(Errc::denied,
                        "its host key has changed (now {}): another machine answers, or it was "
                        "reinstalled; if you know why, run: ssh-keygen -R {}",
                        shown, known.host);
        case KeyVerdict::needs_authority:
            return fail(Errc::denied,
                        "known_hosts has no key of it, only an authority that signs keys "
                        "(@cert-authority), which needs --ssh-command ssh");
        case KeyVerdict::unknown:
            break;
    }
    if (files.has_added(known.name, *key)) return {};
    if (!accept_new)
        return fail(Errc::denied,
                    "its host key is not in known_hosts ({}): log in once with ssh to check "
                    "it, or give --accept-new-host-keys",
                    shown);
    const auto added = files.add(known.file, known.name, *key);
    if (!added) return fail(added.error(), "cannot add its host key to known_hosts");
    return {};
}

/// Tries the user's first key without asking the server whether it would take it: that saves a
/// round trip, and is enough for nearly everybody.
asio::awaitable<Result<int>> try_first_key(SshSession& session, Deadline deadline) {
    const std::string file = get_option(session.get(), SSH_OPTIONS_IDENTITY);
    if (file.empty() || ::access(file.c_str(), R_OK) != 0) co_return SSH_AUTH_DENIED;
    const ssh_key key = session.read_key(file);
    if (key == nullptr) co_return SSH_AUTH_DENIED;  // ssh-agent may have it
    auto step = [&session, key] { return ssh_userauth_publickey(session.get(), nullptr, key); };
    const auto done = co_await session.drive(step, SSH_AUTH_AGAIN, deadline);
    ssh_key_free(key);
    co_return done;
}

asio::awaitable<Result<void>> authenticate(SshSession& session, Deadline deadline) {
    auto done = co_await try_first_key(session, deadline);
    if (done && *done != SSH_AUTH_SUCCESS && ssh_is_connected(session.get()) != 0) {
        auto step = [&session] {
            return ssh_userauth_publickey_auto(session.get(), nullptr, nullptr);
        };
        done = co_await session.drive(step, SSH_AUTH_AGAIN, deadline);
    }
    if (!done) co_return std::unexpected(done.error());
    if (*done == SSH_AUTH_SUCCESS) co_return Result<void>{};
    const char* hint = session.wanted_passphrase()
                           ? "a key under a passphrase works only through ssh-agent: ssh-add"
                           : "try: ssh-copy-id";
    co_return fail(Errc::denied,
                   "permission denied for user {}: none of your keys (ssh-agent, {}, and the other "
                   "default ones) is accepted; {}",
                   get_option(session.get(), SSH_OPTIONS_USER),
                   get_option(session.get(), SSH_OPTIONS_IDENTITY), hint);
}

asio::awaitable<Result<ssh_channel>> start_command(SshSession& session, std::string command,
                                                   Deadline deadline) {
    ssh_channel channel = ssh_channel_new(session.get());
    if (channel == nullptr) co_return fail(Errc::internal, "{}", session.error());
    auto open = [channel] { return ssh_channel_open_session(channel); };
    auto done = co_await session.drive(open, SSH_AGAIN, deadline);
    if (done && *done == SSH_OK) {
        auto exec = [channel, &command] {
            return ssh_channel_request_exec(channel, command.c_str());
        };
        done = co_await session.drive(exec, SSH_AGAIN, deadline);
    }
    if (done && *done == SSH_OK) co_return channel;
    ssh_channel_free(channel);
    if (!done) co_return std::unexpected(done.error());
    co_return fail(Errc::denied, "the server does not run commands: {}", session.error());
}

/// Has the error of a timeout name the phase.
std::unexpected<Error> in_phase(Error error, const char* phase) {
    if (error.code == Errc::timed_out) return fail(error, "{}", phase);
    return std::unexpected(std::move(error));
}

asio::awaitable<Result<SshLogin>> login_on(std::unique_ptr<SshSession> session, tcp::socket socket,
                                           Known known, KnownHostsFiles& files, SshOptions options,
                                           std::string command, Deadline deadline,
                                           std::function<void(const char*)> phase) {
    SshLogin login;
    login.local_address = numeric(socket.local_endpoint().address());
    session->attach(std::move(socket));

    phase("ssh key exchange");
    auto connect = [&session] { return ssh_connect(session->get()); };
    const auto connected = co_await session->drive(connect, SSH_AGAIN, deadline);
    if (!connected) co_return in_phase(connected.error(), "ssh key exchange");
    if (*connected != SSH_OK)
        co_return fail(Errc::unreachable, "ssh key exchange: {}", session->error());
    const auto trusted = check_host_key(*session, known, files, options.accept_new_host_keys);
    if (!trusted) co_return std::unexpected(trusted.error());

    phase("ssh authentication");
    const auto authenticated = co_await authenticate(*session, deadline);
    if (!authenticated) co_return in_phase(authenticated.error(), "ssh authentication");

    phase("starting the agent");
    const auto channel = co_await start_command(*session, command, deadline);
    if (!channel) co_return in_phase(channel.error(), "starting the agent");
    login.channel = std::make_unique<SshChannel>(std::move(session), *channel);
    co_return login;
}

}  // namespace

asio::awaitable<Result<SshLogin>> ssh_login(Pool& pool, KnownHostsFiles& files, Host host,
                                            SshOptions options, std::string command,
                                            Deadline deadline,
                                            std::function<void(const char*)> phase) {
    const auto executor = co_await asio::this_coro::executor;
    auto session = std::make_unique<SshSession>(executor);
    configure(session->get(), host, options);
    const std::string configured = get_option(session->get(), SSH_OPTIONS_HOST);
    unsigned int port = 22;
    ssh_options_get_port(session->get(), &port);

    auto known = co_await read_known(*session, files, pool, port, deadline);
    if (!known) co_return std::unexpected(known.error());
    phase("name look-up");
    const std::string name = host.address.empty() ? configured : host.address;
    const auto addresses = co_await look_up(pool, name, deadline);
    if (!addresses && name != host.name) co_return fail(addresses.error(), "{}", name);
    if (!addresses) co_return std::unexpected(addresses.error());
    phase("connecting");
    auto socket = co_await connect_any(*addresses, static_cast<std::uint16_t>(port), deadline);
    if (!socket) co_return std::unexpected(socket.error());
    co_return co_await login_on(std::move(session), std::move(*socket), std::move(*known), files,
                                std::move(options), std::move(command), deadline, std::move(phase));
}

bool ssh_config_needs_openssh(const Host& host) {
    const ssh_session session = ssh_new();
    configure(session, host, {});
    const std::string proxy = get_option(session, SSH_OPTIONS_PROXYCOMMAND);
    ssh_free(session);
    return !proxy.empty();
}

}  // namespace dtrun::transport
