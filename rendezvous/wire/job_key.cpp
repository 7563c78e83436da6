#include "rendezvous/wire/job_key.h"

#include "base/crypto.h"

#include <algorithm>
#include <set>
#include <string>

namespace dtrun {
namespace {

// 32 hexadecimal digits are 128 bits. Random ones have 14 different digits on average, and at least
// 8.
constexpr std::size_t kTextBytesMin = 32;
constexpr std::size_t kKindsMin = 8;

}  // namespace

JobId job_id_of(std::string_view name) {
    const Sha256 digest = sha256("dtrun job " + std::string(name));
    JobId id;
    std::copy_n(digest.begin(), id.size(), id.begin());
    return id;
}

Secret job_secret_of(const Secret& daemon, const JobId& job) {
    return Secret(hmac_sha256(daemon.bytes(), {as_bytes("dtrun job secret"), job}));
}

StoreKey store_key_of(const Secret& job) {
    StoreKey key;
    const Sha256 digest = hmac_sha256(job.bytes(), {as_bytes("dtrun store id")});
    std::copy_n(digest.begin(), key.id.size(), key.id.begin());
    key.secret = Secret(hmac_sha256(job.bytes(), {as_bytes("dtrun store secret")}));
    return key;
}

Result<Secret> secret_of_text(std::string_view text) {
    const bool too_long = text.size() > kSecretTextBytesMax;
    text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
    const std::set<char> kinds(text.begin(), text.end());
    if (too_long || text.size() < kTextBytesMin || kinds.size() < kKindsMin)
        return fail(
            Errc::invalid_input,
            "a secret has {} to {} bytes, {} different ones at least: make it with `openssl "
            "rand -hex 32`",
            kTextBytesMin, kSecretTextBytesMax, kKindsMin);
    return Secret(sha256(text));
}

}  // namespace dtrun
