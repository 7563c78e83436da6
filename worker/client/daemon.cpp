#include "worker/client/daemon.h"

#include "base/crypto.h"
#include "rendezvous/messages.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

namespace dtrun::embedded {
namespace {

constexpr std::chrono::seconds kHandshakeTime{5};
constexpr std::chrono::milliseconds kPauseMin{50};
constexpr std::chrono::milliseconds kPauseMax{500};
constexpr std::size_t kProofBytes = 32;
constexpr std::size_t kSecretBytesMin = 16;
constexpr std::size_t kSecretBytesMax = 64u << 10;

std::span<const std::uint8_t> as_bytes(std::string_view text) {
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

Outcome<std::string> read_all(int fd) {
    std::string text(kSecretBytesMax + 1, '\0');
    std::size_t size = 0;
    while (size < text.size()) {
        const ssize_t n = ::read(fd, text.data() + size, text.size() - size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return failure(DTRUN_INVALID, "{}", strerror(errno));
        if (n == 0) break;
        size += static_cast<std::size_t>(n);
    }
    text.resize(size);
    return text;
}

Outcome<std::string> read_private_file(const std::string& path) {
    const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
    struct stat status {};
    if (!file || ::fstat(file.get(), &status) != 0)
        return failure(DTRUN_INVALID, "{}", strerror(errno));
    if (status.st_uid != ::geteuid() && status.st_uid != 0)
        return failure(DTRUN_INVALID, "belongs to user {}, not to us", status.st_uid);
    if ((status.st_mode & 077) != 0)
        return failure(DTRUN_INVALID, "others may use it (mode {:04o}): chmod 600 it",
                       status.st_mode & 07777);
    return read_all(file.get());
}

/// As docs/PROTOCOL.md makes it of what is in the secret file.
std::optional<Secret> make_secret(std::string_view text) {
    if (text.size() > kSecretBytesMax) return {};
    text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
    if (text.size() < kSecretBytesMin) return {};
    return Secret(sha256(text));
}

Sha256 proof(std::string_view role, const Secret& secret, std::string_view client,
             std::string_view server) {
    return hmac_sha256(secret.bytes(), {as_bytes(role), as_bytes(client), as_bytes(server)});
}

std::string preamble() {
    const char version = static_cast<char>(kProtocolVersion);
    return {'d', 't', 'r', 'n', 0, version, 0, 0};
}

std::string_view as_text(std::span<const std::uint8_t> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Outcome<void> authenticate(FrameSocket& socket, const Credentials& credentials, Patience patience) {
    patience.deadline = std::min(patience.deadline, now() + kHandshakeTime);
    std::array<std::uint8_t, 32> nonce;
    random_bytes(nonce);
    std::string ours = preamble();
    ours += as_text(credentials.job);
    ours += as_text(nonce);
    if (auto sent = socket.send(ours); !sent) return sent;

    const auto answer = socket.read_exactly(ours.size() - 16 + kProofBytes, patience);
    if (!answer) return std::unexpected(answer.error());
    const std::string_view theirs = std::string_view(*answer).substr(0, ours.size() - 16);
    const std::string_view shown = std::string_view(*answer).substr(theirs.size());
    if (!theirs.starts_with("dtrn")) return failure(DTRUN_REFUSED, "not a daemon of dtrun");
    if (theirs.substr(4, 2) != preamble().substr(4, 2))
        return failure(DTRUN_REFUSED, "it speaks another version of dtrun's protocol");
    if (theirs.substr(6, 2) != preamble().substr(6, 2))
        return failure(DTRUN_REFUSED, "it wants encryption, which the client library cannot do");
    if (!equal_constant_time(proof("dtrun server", credentials.secret, ours, theirs),
                             as_bytes(shown)))
        return failure(DTRUN_REFUSED, "it has another secret");
    return socket.send(as_text(proof("dtrun client", credentials.secret, ours, theirs)));
}

/// Failures: timed_out, cancelled
Outcome<void> sleep_for(std::chrono::milliseconds pause, const Patience& patience) {
    const Moment end = now() + pause;
    for (;;) {
        ::poll(nullptr, 0, poll_timeout(std::min(end, patience.slice())));
        if (patience.give_up && patience.give_up()) return failure(DTRUN_CANCELLED, "interrupted");
        if (patience.over()) return failure(DTRUN_TIMED_OUT, "no answer");
        if (now() >= end) return {};
    }
}

}  // namespace

Outcome<Credentials> read_credentials(const DaemonAddress& address) {
    const bool is_file = !address.secret_file.empty();
    const std::string source = is_file ? fmt::format("DTRUN_SECRET_FILE='{}'", address.secret_file)
                                       : fmt::format("DTRUN_SECRET_FD={}", address.secret_fd);
    Outcome<std::string> text;
    if (is_file) {
        text = read_private_file(address.secret_file);
    } else {
        const Fd file(address.secret_fd);
        text = read_all(file.get());
    }
    if (!text) return failure(DTRUN_INVALID, "{}: {}", source, text.error().text);
    const auto daemon_secret = make_secret(*text);
    if (!daemon_secret)
        return failure(DTRUN_INVALID, "{}: a secret has {} to {} bytes", source, kSecretBytesMin,
                       kSecretBytesMax);
    ::explicit_bzero(text->data(), text->size());

    Credentials credentials;
    const Sha256 id = sha256("dtrun job " + address.job_name);
    std::copy_n(id.begin(), credentials.job.size(), credentials.job.begin());
    credentials.secret = Secret(
        hmac_sha256(daemon_secret->bytes(), {as_bytes("dtrun job secret"), credentials.job}));
    return credentials;
}

Outcome<FrameSocket> dial_daemon(const DaemonAddress& address, const Credentials& credentials,
                                 const Patience& patience) {
    auto pause = kPauseMin;
    for (;;) {
        Outcome<FrameSocket> socket =
            FrameSocket::connect_tcp(address.host, address.port, patience);
        Outcome<void> proved;
        if (socket) proved = authenticate(*socket, credentials, patience);
        if (socket && proved) return socket;

        const Failure problem = socket ? proved.error() : socket.error();
        const std::string who = fmt::format("DTRUN_SERVE='{}:{}'", address.host, address.port);
        if (problem.code == DTRUN_REFUSED || problem.code == DTRUN_CANCELLED)
            return failure(problem.code, "{}: {}", who, problem.text);
        if (const auto slept = sleep_for(pause, patience); !slept)
            return failure(slept.error().code, "{}: {} (DTRUN_SERVER_TIMEOUT)", who, problem.text);
        pause = std::min(2 * pause, kPauseMax);
    }
}

std::string local_address(const FrameSocket& socket) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    char text[NI_MAXHOST] = "";
    if (::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size) == 0)
        ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, text, sizeof text, nullptr,
                      0, NI_NUMERICHOST);
    return text;
}

}  // namespace dtrun::embedded
