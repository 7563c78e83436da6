#include "worker/client/connect/credentials.h"

#include "base/crypto.h"
#include "base/fd.h"
#include "rendezvous/wire/job_key.h"

#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace dtrun::embedded {
namespace {

Outcome<std::string> read_all(int fd) {
    std::string text(kSecretTextBytesMax + 1, '\0');
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

Outcome<std::string> read_secret_file(const std::string& path) {
    const char* credentials = ::getenv("CREDENTIALS_DIRECTORY");
    auto text =
        read_private_file(path, kSecretTextBytesMax, credentials != nullptr ? credentials : "");
    if (!text) return failure(DTRUN_INVALID, "{}", text.error().message);
    return std::move(*text);
}

}  // namespace

Outcome<Secret> read_secret(const std::string& file, int fd) {
    const std::string source = file.empty() ? fmt::format("DTRUN_SECRET_FD={}", fd)
                                            : fmt::format("DTRUN_SECRET_FILE='{}'", file);
    Outcome<std::string> text;
    if (!file.empty()) {
        text = read_secret_file(file);
    } else {
        const Fd owned(fd);
        text = read_all(owned.get());
    }
    if (!text) return failure(DTRUN_INVALID, "{}: {}", source, text.error().text);
    const auto secret = secret_of_text(*text);
    ::explicit_bzero(text->data(), text->size());
    if (!secret) return failure(DTRUN_INVALID, "{}: {}", source, secret.error().message);
    return *secret;
}

ClientCredentials derive_credentials(const Secret& from, std::string_view role, const JobId& job) {
    return {job, Secret(hmac_sha256(from.bytes(), {as_bytes(role), job}))};
}

JobId job_id_of(std::string_view name) {
    const Sha256 digest = sha256(name);
    JobId id;
    std::copy_n(digest.begin(), id.size(), id.begin());
    return id;
}

}  // namespace dtrun::embedded
