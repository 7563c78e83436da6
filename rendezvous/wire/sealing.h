#pragma once

#include "base/ids.h"
#include "base/result.h"
#include "rendezvous/wire/handshake.h"
#include "rendezvous/wire/msgpack.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

struct evp_cipher_ctx_st;
struct evp_pkey_st;

namespace dtrun {

using Key = std::array<std::uint8_t, 32>;

/// One side of an X25519 key exchange (RFC 7748), used once.
class KeyExchange {
public:
    KeyExchange();  ///< a fresh pair
    Key public_key() const;
    /// Errc: denied (the other side's key is invalid)
    Result<Key> shared_secret(const Key& others) const;

private:
    struct Free {
        void operator()(evp_pkey_st* key) const;
    };
    std::unique_ptr<evp_pkey_st, Free> pair_;
};

/// One direction of an encrypted connection: AES-256-GCM records as docs/PROTOCOL.md has them. The
/// number of a record is its nonce, so a record that is lost, repeated, moved or changed fails.
class Seal {
public:
    static constexpr std::size_t kPlainBytesMax = 16'384;
    static constexpr std::size_t kOverheadBytes = 2 + 16;

    /// For one of seal() and open().
    explicit Seal(const Key& key);

    /// Appends records with all of `plain` to `out`.
    void seal(std::string_view plain, Bytes& out);

    /// Takes whole records off the begin of `sealed` and appends what was in them to `plain`.
    /// Errc: invalid_input (a record was sealed with another key or in another order)
    Result<void> open(std::string_view& sealed, Bytes& plain);

private:
    struct Free {
        void operator()(evp_cipher_ctx_st* context) const;
    };
    std::array<std::uint8_t, 12> next_nonce();

    std::unique_ptr<evp_cipher_ctx_st, Free> context_;
    Key key_;
    std::uint64_t records_ = 0;
};

/// For what the head has a relay pass on to another host (docs/PROTOCOL.md, "Log-ins by relays"). It would go through an ssh
/// of the head's otherwise, which encrypts.
/// \param secret  of the job
/// \param login   a number that no other log-in of the job has
Seal login_seal(const Secret& secret, std::uint32_t login);

/// Both directions of one connection.
struct Sealing {
    Seal out;
    Seal in;
};

/// What a side brings along to a handshake: for an encrypted connection the public key of a fresh exchange.
HandshakeTerms make_terms(bool encrypt, std::optional<KeyExchange>& exchange);

/// The keys of a connection whose handshake is done, if it is encrypted: both sides make them of the handshake's
/// hellos and of the secret under which they have proved themselves. Errc: denied (the other side's key is invalid)
Result<std::optional<Sealing>> make_sealing(const std::optional<KeyExchange>& exchange,
                                            const Handshake& handshake);

}  // namespace dtrun
