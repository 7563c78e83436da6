// SHA-256 comes from the few objects of libcrypto.a that need nothing but libc: OpenSSL's EVP would add
// its providers, 4 MB of them, to every program that embeds the client library.

#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/crypto.h"

#include <openssl/sha.h>
#include <algorithm>

namespace dtrun {
namespace {

class Hash {
public:
    Hash() { SHA256_Init(&context_); }
    Hash& add(std::span<const std::uint8_t> bytes) {
        SHA256_Update(&context_, bytes.data(), bytes.size());
        return *this;
    }
    Sha256 end() {
        Sha256 digest;
        SHA256_Final(digest.data(), &context_);
        return digest;
    }

private:
    SHA256_CTX context_{};
};

}  // namespace

Sha256 sha256(std::string_view bytes) {
    return Hash().add({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}).end();
}

Sha256 hmac_sha256(std::span<const std::uint8_t> key,
                   std::initializer_list<std::span<const std::uint8_t>> parts) {
    std::array<std::uint8_t, SHA256_CBLOCK> inner{};
    if (key.size() > inner.size())
        std::ranges::copy(Hash().add(key).end(), inner.begin());
    else
        std::ranges::copy(key, inner.begin());
    std::array<std::uint8_t, SHA256_CBLOCK> outer = inner;
    for (std::uint8_t& byte : inner) byte ^= 0x36;
    for (std::uint8_t& byte : outer) byte ^= 0x5c;
    Hash hash;
    hash.add(inner);
    for (const auto part : parts) hash.add(part);
    return Hash().add(outer).add(hash.end()).end();
}

bool equal_constant_time(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) {
    if (a.size() != b.size()) return false;
    unsigned difference = 0;
    for (std::size_t i = 0; i < a.size(); ++i) difference |= unsigned{a[i]} ^ b[i];
    volatile unsigned result = difference;  // volatile: the compiler must not leave the loop early
    return result == 0;
}

}  // namespace dtrun
