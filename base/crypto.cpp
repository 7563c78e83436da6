#include "base/crypto.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace dtrun {
namespace {

/// OpenSSL fails here only when it has no memory or no providers: nothing a caller could do.
void must(bool done, const char* what) {
    if (done) return;
    std::fprintf(stderr, "dtrun: OpenSSL: %s failed\n", what);
    std::abort();
}

}  // namespace

Sha256 sha256(std::string_view bytes) {
    Sha256 digest;
    must(EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr) == 1,
         "SHA-256");
    return digest;
}

Sha256 hmac_sha256(std::span<const std::uint8_t> key,
                   std::initializer_list<std::span<const std::uint8_t>> parts) {
    std::vector<std::uint8_t> message;
    for (const auto part : parts) message.insert(message.end(), part.begin(), part.end());
    Sha256 mac;
    must(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), message.data(),
              message.size(), mac.data(), nullptr) != nullptr,
         "HMAC");
    return mac;
}

bool equal_constant_time(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) {
    return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace dtrun
