#include "worker/client/credentials.h"

#include "base/crypto.h"
#include "base/fd.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

namespace dtrun::embedded {
namespace {

constexpr std::size_t kSecretBytesMin = 16;
constexpr std::size_t kSecretBytesMax = 64u << 10;

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

}  // namespace

Outcome<Secret> read_secret(const std::string& file, int fd) {
    const std::string source = file.empty() ? fmt::format("DTRUN_SECRET_FD={}", fd)
                                            : fmt::format("DTRUN_SECRET_FILE='{}'", file);
    Outcome<std::string> text;
    if (!file.empty()) {
        text = read_private_file(file);
    } else {
        const Fd owned(fd);
        text = read_all(owned.get());
    }
    if (!text) return failure(DTRUN_INVALID, "{}: {}", source, text.error().text);
    const auto secret = make_secret(*text);
    ::explicit_bzero(text->data(), text->size());
    if (!secret)
        return failure(DTRUN_INVALID, "{}: a secret has {} to {} bytes", source, kSecretBytesMin,
                       kSecretBytesMax);
    return *secret;
}

Credentials derive_credentials(const Secret& from, std::string_view role, const JobId& job) {
    return {job, Secret(hmac_sha256(from.bytes(), {as_bytes(role), job}))};
}

JobId job_id_of(std::string_view name) {
    const Sha256 digest = sha256(name);
    JobId id;
    std::copy_n(digest.begin(), id.size(), id.begin());
    return id;
}

}  // namespace dtrun::embedded
