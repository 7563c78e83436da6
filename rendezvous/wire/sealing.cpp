#include "rendezvous/wire/sealing.h"

#include "base/crypto.h"

#include <openssl/evp.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace dtrun {
namespace {

constexpr std::size_t kTagBytes = 16;

/// OpenSSL fails here only when it has no memory or no providers: nothing a caller could do.
void must(bool done, const char* what) {
    if (done) return;
    std::fprintf(stderr, "dtrun: OpenSSL: %s failed\n", what);
    std::abort();
}

std::uint8_t* bytes(char* text) {
    return reinterpret_cast<std::uint8_t*>(text);
}
const std::uint8_t* bytes(const char* text) {
    return reinterpret_cast<const std::uint8_t*>(text);
}

/// HKDF-SHA256 (RFC 5869), one block.
Key derive_key(std::span<const std::uint8_t> secret, std::span<const std::uint8_t> salt,
               std::string_view info) {
    const Sha256 extracted = hmac_sha256(salt, {secret});
    const std::span<const std::uint8_t> label(bytes(info.data()), info.size());
    const std::array<std::uint8_t, 1> block{1};
    return hmac_sha256(extracted, {label, block});
}

}  // namespace

void KeyExchange::Free::operator()(evp_pkey_st* key) const {
    EVP_PKEY_free(key);
}

KeyExchange::KeyExchange() : pair_(EVP_PKEY_Q_keygen(nullptr, nullptr, "X25519")) {
    must(pair_ != nullptr, "X25519");
}

Key KeyExchange::public_key() const {
    Key key;
    std::size_t size = key.size();
    must(EVP_PKEY_get_raw_public_key(pair_.get(), key.data(), &size) == 1, "X25519");
    return key;
}

Result<Key> KeyExchange::shared_secret(const Key& others) const {
    const std::unique_ptr<evp_pkey_st, Free> peer(
        EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, nullptr, others.data(), others.size()));
    const std::unique_ptr<EVP_PKEY_CTX, decltype(&EVP_PKEY_CTX_free)> context(
        EVP_PKEY_CTX_new(pair_.get(), nullptr), EVP_PKEY_CTX_free);
    must(peer && context, "X25519");
    must(EVP_PKEY_derive_init(context.get()) == 1, "X25519");
    Key secret;
    std::size_t size = secret.size();
    // A point of small order gives zero, which OpenSSL refuses.
    if (EVP_PKEY_derive_set_peer(context.get(), peer.get()) != 1 ||
        EVP_PKEY_derive(context.get(), secret.data(), &size) != 1)
        return fail(Errc::denied, "the other side's key is none");
    return secret;
}

HandshakeTerms make_terms(bool encrypt, std::optional<KeyExchange>& exchange) {
    if (!encrypt) return {};
    exchange.emplace();
    return {kFlagEncrypt, exchange->public_key()};
}

Result<std::optional<Sealing>> make_sealing(const std::optional<KeyExchange>& exchange,
                                            const Handshake& handshake) {
    if (!exchange) return std::nullopt;
    const auto shared = exchange->shared_secret(handshake.others_nonce());
    if (!shared) return std::unexpected(shared.error());
    const auto secret = handshake.secret().bytes();
    std::vector<std::uint8_t> both(shared->begin(), shared->end());
    both.insert(both.end(), secret.begin(), secret.end());
    const ClientRecord& client = handshake.client_record();
    const ServerRecord& server = handshake.server_record();
    std::string records(client.size() + server.size(), '\0');
    std::ranges::copy(server, std::ranges::copy(client, records.begin()).out);
    const Sha256 salt = sha256(records);
    Seal of_client(derive_key(both, salt, "dtrun client key"));
    Seal of_server(derive_key(both, salt, "dtrun server key"));
    if (handshake.is_server()) std::swap(of_client, of_server);
    return Sealing{std::move(of_client), std::move(of_server)};
}

Seal login_seal(const Secret& secret, std::uint32_t login) {
    std::array<std::uint8_t, 4> salt{};
    for (unsigned i = 0; i < salt.size(); ++i)
        salt[i] = static_cast<std::uint8_t>(login >> (8 * (3 - i)));
    return Seal(derive_key(secret.bytes(), salt, "dtrun log-in by a relay"));
}

void Seal::Free::operator()(evp_cipher_ctx_st* context) const {
    EVP_CIPHER_CTX_free(context);
}

Seal::Seal(const Key& key) : context_(EVP_CIPHER_CTX_new()), key_(key) {
    must(context_ != nullptr, "AES-GCM");
}

std::array<std::uint8_t, 12> Seal::next_nonce() {
    std::array<std::uint8_t, 12> nonce{};
    for (int i = 0; i < 8; ++i)
        nonce[static_cast<std::size_t>(11 - i)] = static_cast<std::uint8_t>(records_ >> (8 * i));
    ++records_;
    return nonce;
}

void Seal::seal(std::string_view plain, Bytes& out) {
    while (!plain.empty()) {
        const std::string_view part = plain.substr(0, kPlainBytesMax);
        plain.remove_prefix(part.size());
        const bool first = records_ == 0;  // the key stays set
        const auto nonce = next_nonce();
        const std::size_t at = out.size();
        out.resize(at + 2 + part.size() + kTagBytes);
        char* record = out.data() + at;
        record[0] = static_cast<char>(part.size() >> 8);
        record[1] = static_cast<char>(part.size());
        auto* context = context_.get();
        int size = 0;
        must(EVP_EncryptInit_ex2(context, first ? EVP_aes_256_gcm() : nullptr,
                                 first ? key_.data() : nullptr, nonce.data(), nullptr) &&
                 EVP_EncryptUpdate(context, nullptr, &size, bytes(record), 2) &&
                 EVP_EncryptUpdate(context, bytes(record + 2), &size, bytes(part.data()),
                                   static_cast<int>(part.size())) &&
                 EVP_EncryptFinal_ex(context, bytes(record + 2 + part.size()), &size) &&
                 EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, kTagBytes,
                                     record + 2 + part.size()),
             "AES-GCM");
    }
}

Result<void> Seal::open(std::string_view& sealed, Bytes& plain) {
    while (sealed.size() >= 2) {
        const std::size_t size =
            static_cast<std::size_t>(bytes(sealed.data())[0]) << 8 | bytes(sealed.data())[1];
        if (size == 0 || size > kPlainBytesMax)
            return fail(Errc::invalid_input, "encrypted record of {} bytes", size);
        if (sealed.size() < size + kOverheadBytes) return {};
        const bool first = records_ == 0;
        const auto nonce = next_nonce();
        std::array<std::uint8_t, kTagBytes> tag;
        std::copy_n(bytes(sealed.data()) + 2 + size, kTagBytes, tag.begin());
        const std::size_t at = plain.size();
        plain.resize(at + size);
        auto* context = context_.get();
        int written = 0;
        must(EVP_DecryptInit_ex2(context, first ? EVP_aes_256_gcm() : nullptr,
                                 first ? key_.data() : nullptr, nonce.data(), nullptr) &&
                 EVP_DecryptUpdate(context, nullptr, &written, bytes(sealed.data()), 2) &&
                 EVP_DecryptUpdate(context, bytes(plain.data() + at), &written,
                                   bytes(sealed.data() + 2), static_cast<int>(size)) &&
                 EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, kTagBytes, tag.data()),
             "AES-GCM");
        if (EVP_DecryptFinal_ex(context, bytes(plain.data() + at), &written) != 1) {
            plain.resize(at);
            return fail(Errc::invalid_input, "encrypted record does not verify");
        }
        sealed.remove_prefix(size + kOverheadBytes);
    }
    return {};
}

}  // namespace dtrun
