#include "launcher/transport/ssh_login.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/loop/net.h"
#include "base/strings.h"
#include "launcher/transport/named_host.h"
#include "launcher/transport/ssh_channel.h"
#include "launcher/transport/ssh_session.h"

#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <ranges>
#include <utility>

namespace dtrun::transport {
namespace {

constexpr const char* kLookUp = "name look-up";
constexpr const char* kConnecting = "connecting";

/// Hands the settings to libssh, which is to look for none itself.
/// \return what of them it does not take; empty: nothing
std::string configure(ssh_session session, const SshSettings& set) {
    const int port = set.port;
    const bool reads_config = false;
    std::string refused;
    const auto give = [session, &refused](ssh_options_e option, const std::string& value) {
        if (value.empty() || ssh_options_set(session, option, value.c_str()) == SSH_OK) return;
        if (refused.empty()) refused = value;
    };
    ssh_options_set(session, SSH_OPTIONS_PROCESS_CONFIG, &reads_config);
    ssh_options_set(session, SSH_OPTIONS_PORT, &port);
    give(SSH_OPTIONS_SSH_DIR, set.directory);
    give(SSH_OPTIONS_HOST, set.host);
    give(SSH_OPTIONS_USER, set.user);
    // Each goes before those that were there.
    for (const std::string& file : set.identities | std::views::reverse)
        give(SSH_OPTIONS_IDENTITY, file);
    give(SSH_OPTIONS_IDENTITY_AGENT, set.agent);
    give(SSH_OPTIONS_CIPHERS_C_S, set.ciphers);
    give(SSH_OPTIONS_CIPHERS_S_C, set.ciphers);
    give(SSH_OPTIONS_HMAC_C_S, set.macs);
    give(SSH_OPTIONS_HMAC_S_C, set.macs);
    give(SSH_OPTIONS_KEY_EXCHANGE, set.key_exchange);
    give(SSH_OPTIONS_HOSTKEYS, set.host_key_types);
    give(SSH_OPTIONS_PUBLICKEY_ACCEPTED_TYPES, set.key_types);
    if (set.compression) give(SSH_OPTIONS_COMPRESSION, "yes");
    return refused;
}

std::string fingerprint(ssh_key key) {
    unsigned char* hash = nullptr;
    std::size_t bytes = 0;
    if (ssh_get_publickey_hash(key, SSH_PUBLICKEY_HASH_SHA256, &hash, &bytes) != SSH_OK) return {};
    char* const shown = ssh_get_fingerprint_hash(SSH_PUBLICKEY_HASH_SHA256, hash, bytes);
    const std::string text = fmt::format("{} {}", ssh_key_type_to_char(ssh_key_type(key)),
                                         shown == nullptr ? "" : shown);
    ssh_string_free_char(shown);
    ssh_clean_pubkey_hash(&hash);
    return text;
}

/// The key that a host has shown.
struct ShownKey {
    HostKey key;
    std::string fingerprint;
};

Result<ShownKey> shown_key(const SshSession& session) {
    ssh_key key = nullptr;
    if (ssh_get_server_publickey(session.get(), &key) != SSH_OK)
        return fail(Errc::denied, "its host key: {}", session.error());
    char* base64 = nullptr;
    ShownKey found;
    if (ssh_pki_export_pubkey_base64(key, &base64) == SSH_OK) found.key.base64 = base64;
    ssh_string_free_char(base64);
    found.key.type = ssh_key_type_to_char(ssh_key_type(key));
    found.fingerprint = fingerprint(key);
    ssh_key_free(key);
    return found;
}

/// A known_hosts file of one host's keys, by which libssh asks for a key of a known type. It would
/// read whole files twice for each host.
/// \param name  under which libssh looks for them
Fd write_excerpt(const std::vector<HostKey>& keys, const std::string& name) {
    if (keys.empty()) return {};
    Fd file(::memfd_create("known_hosts", MFD_CLOEXEC));
    for (const HostKey& key : keys)
        if (file && !write_all(file.get(), fmt::format("{} {} {}\n", name, key.type, key.base64)))
            file.reset();
    return file;
}

/// Whether it is libssh that has ended the connection, since what answers at the port does not speak ssh 2.
bool is_no_ssh_server(std::string_view error) {
    constexpr std::string_view kWords[] = {"too large banner", "No version of SSH protocol",
                                           "Packet len too high"};
    return std::ranges::any_of(
        kWords, [error](std::string_view words) { return error.find(words) != error.npos; });
}

/// One log-in.
class LogIn {
public:
    LogIn(asio::any_io_executor executor, Pool& pool, KnownHostsFiles& files, SshSettings settings,
          Deadline deadline, std::function<void(const char*)> phase)
        : session_(std::make_unique<SshSession>(std::move(executor))),
          pool_(pool),
          files_(files),
          set_(std::move(settings)),
          deadline_(deadline),
          phase_(std::move(phase)) {}

    asio::awaitable<Result<SshLogin>> run(std::string address, std::string command) {
        SshLogin login;
        const auto channel = co_await open(std::move(address), std::move(command), login);
        login.only_ssh = only_ssh_;
        if (!channel) login.refused = channel.error();
        if (!channel && only_ssh_.empty()) co_return std::unexpected(channel.error());
        if (channel)
            login.channel = make_ssh_channel(std::move(session_), *channel, remote_address_);
        co_return login;
    }

private:
    /// Fails in a way that ssh may know how to avoid.
    std::unexpected<Error> only_ssh(std::string why, Error error) {
        only_ssh_ = std::move(why);
        return std::unexpected(std::move(error));
    }

    asio::awaitable<Result<ssh_channel>> open(std::string address, std::string command,
                                              SshLogin& login) {
        if (const std::string refused = configure(session_->get(), set_); !refused.empty())
            co_return only_ssh(refused, {Errc::internal, "libssh knows nothing of " + refused});
        const auto read = co_await read_known();
        if (!read) co_return std::unexpected(read.error());
        const auto connected = co_await connect(std::move(address), login);
        if (!connected) co_return std::unexpected(connected.error());

        phase_("ssh key exchange");
        const auto exchanged = co_await exchange_keys();
        if (!exchanged) co_return in_phase(exchanged.error(), "ssh key exchange");
        phase_("ssh authentication");
        const auto authenticated = co_await authenticate();
        if (!authenticated) co_return in_phase(authenticated.error(), "ssh authentication");
        phase_("starting the agent");
        const auto channel = co_await start_command(std::move(command));
        if (!channel) co_return in_phase(channel.error(), "starting the agent");
        co_return *channel;
    }

    /// Has the error of a timeout name the phase.
    static std::unexpected<Error> in_phase(Error error, const char* phase) {
        if (error.code == Errc::timed_out) return fail(error, "{}", phase);
        return std::unexpected(std::move(error));
    }

    asio::awaitable<Result<void>> read_known() {
        auto found = co_await find_keys(pool_, files_, set_, deadline_);
        if (!found) co_return std::unexpected(found.error());
        named_ = std::move(*found);
        const std::string of_libssh =
            known_hosts_name(set_.host, static_cast<unsigned int>(set_.port));
        excerpt_ = write_excerpt(named_.keys(), of_libssh);
        const std::string path =
            excerpt_ ? fmt::format("/proc/self/fd/{}", excerpt_.get()) : "/dev/null";
        ssh_options_set(session_->get(), SSH_OPTIONS_KNOWNHOSTS, path.c_str());
        ssh_options_set(session_->get(), SSH_OPTIONS_GLOBAL_KNOWNHOSTS, "/dev/null");
        co_return Result<void>{};
    }

    asio::awaitable<Result<void>> connect(std::string address, SshLogin& login) {
        phase_(kLookUp);
        const std::string name = address.empty() ? set_.host : address;
        const auto addresses = co_await look_up(pool_, name, deadline_);
        const bool is_other = !address.empty() || set_.has_other_name;
        if (!addresses && is_other) co_return fail(addresses.error(), "looking up {}", name);
        if (!addresses) co_return std::unexpected(addresses.error());
        phase_(kConnecting);
        auto socket =
            co_await connect_any(*addresses, static_cast<std::uint16_t>(set_.port), deadline_);
        if (!socket) co_return std::unexpected(socket.error());
        login.local_address = numeric(socket->local_endpoint().address());
        remote_address_ = remote_address(*socket);
        co_return session_->attach(std::move(*socket));
    }

    asio::awaitable<Result<void>> exchange_keys() {
        const ssh_session session = session_->get();
        auto step = [session] { return ssh_connect(session); };
        const auto done = co_await session_->drive(step, SSH_AGAIN, deadline_);
        const bool hung_up =
            done ? *done != SSH_OK && session_->lost() : done.error().code == Errc::closed;
        if (!done && !hung_up) co_return std::unexpected(done.error());
        const std::string error = session_->error();
        // What libssh itself has not found in the server's list.
        if (error.starts_with("kex error"))
            co_return only_ssh(error.substr(0, error.find(": server")),
                               {Errc::unreachable, "ssh key exchange: " + error});
        if (hung_up && !is_no_ssh_server(error))
            co_return fail(Errc::closed, "it hangs up before the key exchange: {}", error);
        if (hung_up || *done != SSH_OK)
            co_return fail(Errc::unreachable, "ssh key exchange: {}", error);
        co_return check_host_key();
    }

    Result<void> check_host_key() {
        const auto shown = shown_key(*session_);
        if (!shown) return std::unexpected(shown.error());
        switch (judge(named_.known, shown->key)) {
            case KeyVerdict::known:
                return {};
            case KeyVerdict::revoked:
                return fail(Errc::denied,
                            "its host key is marked @revoked in known_hosts ({}): whoever has "
                            "stolen it could answer for any host",
                            shown->fingerprint);
            case KeyVerdict::changed:
                return changed(*shown);
            case KeyVerdict::needs_authority:
                return only_ssh("@cert-authority in known_hosts",
                                {Errc::denied,
                                 "known_hosts has no key of it, only an authority that signs keys "
                                 "(@cert-authority), which only ssh can check"});
            case KeyVerdict::unknown:
                break;
        }
        if (judge(named_.known_anywhere, shown->key) == KeyVerdict::known) return {};
        return accept(*shown);
    }

    Result<void> changed(const ShownKey& shown) {
        Error error{Errc::denied,
                    fmt::format("its host key has changed (now {}): another machine answers, or it "
                                "was reinstalled; if you know why, run: ssh-keygen -R {}",
                                shown.fingerprint, shell_quote(named_.name))};
        // It then lets its user in, but forwards nothing.
        if (set_.new_host_keys == NewHostKeys::anything)
            return only_ssh("StrictHostKeyChecking no for a key that has changed",
                            std::move(error));
        return std::unexpected(std::move(error));
    }

    Result<void> accept(const ShownKey& shown) {
        if (files_.has_added(named_.name, shown.key)) return {};
        if (set_.new_host_keys == NewHostKeys::refused)
            return fail(Errc::denied,
                        "its host key is not in known_hosts ({}): log in once with ssh to check "
                        "it, or give --accept-new-host-keys",
                        shown.fingerprint);
        const auto added = files_.add(set_.known_hosts.front(), named_.name, shown.key);
        if (!added) log::warn("cannot add host keys to known_hosts: {}", added.error().message);
        return {};
    }

    asio::awaitable<Result<int>> try_key(std::string file) {
        const ssh_key key = session_->read_key(file);
        if (key == nullptr) co_return SSH_AUTH_DENIED;  // ssh-agent may have it
        const ssh_session session = session_->get();
        auto step = [session, key] { return ssh_userauth_publickey(session, nullptr, key); };
        const auto done = co_await session_->drive(step, SSH_AUTH_AGAIN, deadline_);
        ssh_key_free(key);
        co_return done;
    }

    /// The files whose keys may be tried where no others may.
    std::vector<std::string> named_keys() const {
        if (!set_.identities.empty()) return set_.identities;
        std::vector<std::string> files;
        for (const char* const kind : {"rsa", "ecdsa", "ed25519"})
            files.push_back(fmt::format("{}/id_{}", set_.directory, kind));
        return files;
    }

    /// Tries keys without asking the server whether it would take them: that saves a round trip.
    asio::awaitable<Result<int>> try_keys(std::vector<std::string> files) {
        for (const std::string& file : files) {
            if (file.empty() || ::access(file.c_str(), R_OK) != 0) continue;
            const auto done = co_await try_key(file);
            if (!done || *done != SSH_AUTH_DENIED || session_->lost()) co_return done;
        }
        co_return SSH_AUTH_DENIED;
    }

    /// Which keys ssh would try: those that are named, else the default ones, and ssh-agent's.
    asio::awaitable<Result<void>> authenticate() {
        const bool named = !set_.identities.empty() || set_.only_identities;
        std::vector<std::string> files = named_keys();
        if (!named) files = {get_option(SSH_OPTIONS_IDENTITY)};  // enough for nearly everybody
        auto done = co_await try_keys(std::move(files));
        const bool others = done && *done == SSH_AUTH_DENIED && !set_.only_identities;
        if (others && !session_->lost()) {
            const ssh_session session = session_->get();
            auto step = [session, named] {
                return named ? ssh_userauth_agent(session, nullptr)
                             : ssh_userauth_publickey_auto(session, nullptr, nullptr);
            };
            done = co_await session_->drive(step, SSH_AUTH_AGAIN, deadline_);
        }
        if (!done && done.error().code != Errc::closed) co_return std::unexpected(done.error());
        if (done && *done == SSH_AUTH_SUCCESS) co_return Result<void>{};
        co_return refusal(done && *done == SSH_AUTH_PARTIAL);
    }

    /// \param partial  the key was taken, but does not do
    std::unexpected<Error> refusal(bool partial) {
        if (session_->lost()) return hung_up();
        const int methods = ssh_userauth_list(session_->get(), nullptr);
        const auto offers = [methods](int method) { return (methods & method) != 0; };
        Error error{Errc::denied, (partial ? second_factor(methods) : no_key()) + or_by_ssh()};
        if (set_.master) return only_ssh("ControlPath", std::move(error));
        if (partial && offers(SSH_AUTH_METHOD_PUBLICKEY))
            return only_ssh("a second key", std::move(error));
        if (set_.gssapi && offers(SSH_AUTH_METHOD_GSSAPI_MIC))
            return only_ssh("Kerberos", std::move(error));
        if (set_.only_identities && !partial)
            return only_ssh("IdentitiesOnly with keys of ssh-agent", std::move(error));
        return std::unexpected(std::move(error));
    }

    /// The server has ended the connection, and may have shown why: PAM's words come as a banner.
    std::unexpected<Error> hung_up() {
        std::string why = session_->error();
        const std::string banner = session_->banner();
        if (banner.contains(kBooting))
            return fail(Errc::closed, "it still boots, and lets nobody log in before it has");
        if (why.starts_with("Socket error") && !banner.empty())
            why = "its last words are: " + banner.substr(banner.rfind('\n') + 1);
        if (why.size() > kSaidBytesMax) why.resize(kSaidBytesMax);
        const bool tried_too_many = why.starts_with("Too many authentication failures");
        return fail(Errc::denied, "it hangs up during the log-in of user {}: {}{}{}", set_.user,
                    why, tried_too_many ? "; name the right key with -i" : "", or_by_ssh());
    }

    /// Where ssh may know more ways in. Without the host's name, since many hosts may refuse alike.
    const char* or_by_ssh() const {
        return set_.ssh_is_here ? "; if ssh gets in there, so does --ssh-command ssh" : "";
    }

    std::string second_factor(int methods) const {
        std::string wanted = "another proof";
        if ((methods & SSH_AUTH_METHOD_INTERACTIVE) != 0) wanted = "keyboard-interactive";
        if ((methods & SSH_AUTH_METHOD_PUBLICKEY) != 0) wanted = "another key";
        return fmt::format(
            "permission denied for user {}: your key is accepted, but the host asks for more ({}), "
            "and "
            "nobody can be asked here; have one ssh stay logged in (ControlMaster, ControlPath and "
            "ControlPersist in ~/.ssh/config), and dtrun will use its connection",
            set_.user, wanted);
    }

    std::string no_key() const {
        const char* const hint =
            session_->wanted_passphrase()
                ? "a key under a passphrase works only through ssh-agent: ssh-add"
                : "try: ssh-copy-id";
        const std::string files = set_.identities.empty() ? get_option(SSH_OPTIONS_IDENTITY) +
                                                                ", and the other default ones"
                                                          : join_names(set_.identities);
        return fmt::format(
            "permission denied for user {}: none of your keys (ssh-agent, {}) is accepted; {}",
            set_.user, files, hint);
    }

    asio::awaitable<Result<ssh_channel>> start_command(std::string command) {
        ssh_channel channel = ssh_channel_new(session_->get());
        if (channel == nullptr) co_return fail(Errc::internal, "{}", session_->error());
        auto open = [channel] { return ssh_channel_open_session(channel); };
        auto done = co_await session_->drive(open, SSH_AGAIN, deadline_);
        if (done && *done == SSH_OK) {
            auto exec = [channel, &command] {
                return ssh_channel_request_exec(channel, command.c_str());
            };
            done = co_await session_->drive(exec, SSH_AGAIN, deadline_);
        }
        if (done && *done == SSH_OK) co_return channel;
        if (!done && done.error().code != Errc::closed) co_return std::unexpected(done.error());
        if (session_->lost()) co_return hung_up();
        co_return fail(Errc::denied, "the server does not run commands: {}", session_->error());
    }

    std::string get_option(ssh_options_e option) const {
        char* value = nullptr;
        if (ssh_options_get(session_->get(), option, &value) != SSH_OK || value == nullptr)
            return {};
        std::string text = value;
        ssh_string_free_char(value);
        return text;
    }

    static constexpr std::size_t kSaidBytesMax = 200;

    std::unique_ptr<SshSession> session_;
    Pool& pool_;
    KnownHostsFiles& files_;
    SshSettings set_;
    Deadline deadline_;
    std::function<void(const char*)> phase_;
    std::string remote_address_;
    NamedHost named_;
    Fd excerpt_;  ///< for libssh
    std::string only_ssh_;
};

}  // namespace

bool is_knocking(std::string_view phase) {
    return phase == kConnecting;
}

asio::awaitable<Result<SshLogin>> ssh_login(Pool& pool, KnownHostsFiles& files,
                                            SshSettings settings, std::string address,
                                            std::string command, Deadline deadline,
                                            std::function<void(const char*)> phase) {
    const auto executor = co_await asio::this_coro::executor;
    LogIn login(executor, pool, files, std::move(settings), deadline, std::move(phase));
    auto done = co_await login.run(std::move(address), std::move(command));
    co_return done;
}

}  // namespace dtrun::transport
