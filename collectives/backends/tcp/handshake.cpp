#include "collectives/backends/tcp/handshake.h"

#include <openssl/crypto.h>
#include <sys/uio.h>

#include <algorithm>

namespace dtrun::collectives::over_tcp {
namespace {

constexpr std::size_t kWords =
    4;  ///< of 4 bytes each in the place of a job's id; the last one is 0

HandshakeTerms handshake_terms(const Terms& terms, std::optional<KeyExchange>& exchange) {
    // Ours is a copy in other people's processes, whom the system's configuration of OpenSSL is for.
    if (terms.encrypt) OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
    HandshakeTerms made = make_terms(terms.encrypt, exchange);
    made.words = {"it", "does not know what the ranks of this group know", " (DTRUN_ENCRYPT)"};
    return made;
}

}  // namespace

JobId encode(const ConnectRequest& request) {
    const std::array<std::uint32_t, kWords> words{static_cast<std::uint32_t>(request.kind),
                                                  request.from, request.to, 0};
    JobId id{};
    for (std::size_t i = 0; i < id.size(); ++i)
        id[i] = static_cast<std::uint8_t>(words[i / 4] >> (24 - 8 * (i % 4)));
    return id;
}

std::optional<ConnectRequest> decode_connect_request(const JobId& id) {
    std::array<std::uint32_t, kWords> words{};
    for (std::size_t i = 0; i < id.size(); ++i) words[i / 4] = words[i / 4] << 8 | id[i];
    const ConnectRequest request{static_cast<ConnectionKind>(words[0]), words[1], words[2]};
    if (request.kind != ConnectionKind::streams && request.kind != ConnectionKind::messages)
        return std::nullopt;
    if (words[3] != 0) return std::nullopt;
    return request;
}

RankHandshake::RankHandshake(const ConnectRequest& request, const Terms& terms)
    : handshake_(encode(request), terms.secret, handshake_terms(terms, exchange_)) {}

RankHandshake::RankHandshake(const Terms& terms)
    : handshake_(
          [secret = terms.secret](const JobId& id) {
              return decode_connect_request(id) ? std::optional(secret) : std::nullopt;
          },
          handshake_terms(terms, exchange_)) {}

Result<bool> RankHandshake::advance(const Socket& socket) {
    Result<void> fits;
    for (;;) {
        out_ += handshake_.take_output();
        if (!out_.empty()) {
            const iovec part{out_.data(), out_.size()};
            const auto sent = socket.send({&part, 1});
            if (fits && !sent) return std::unexpected(sent.error());
            out_.erase(0, sent.value_or(0));
        }
        if (!fits) return std::unexpected(fits.error());
        if (!out_.empty()) return false;
        const auto room = handshake_.room();
        if (room.empty()) break;
        const auto come = socket.receive(room.data(), room.size());
        if (!come) return std::unexpected(come.error());
        if (*come == 0) return false;
        fits = handshake_.come(*come);
    }
    auto sealing = make_sealing(exchange_, handshake_);
    if (!sealing) return std::unexpected(sealing.error());
    sealing_ = std::move(*sealing);
    return true;
}

}  // namespace dtrun::collectives::over_tcp
