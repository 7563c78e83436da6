#include "worker/client/handshake.h"

#include "rendezvous/message.h"

#include <algorithm>
#include <array>

namespace dtrun::embedded {
namespace {

using Nonce = std::array<std::uint8_t, 32>;
constexpr std::size_t kJobAt = 8;

Nonce make_nonce() {
    Nonce nonce;
    random_bytes(nonce);
    return nonce;
}

Sha256 proof(std::string_view role, const Secret& secret, std::string_view client,
             std::string_view server) {
    return hmac_sha256(secret.bytes(), {as_bytes(role), as_bytes(client), as_bytes(server)});
}

/// Failures: refused
Outcome<void> check_preamble(std::string_view theirs) {
    const std::string ours = preamble();
    if (theirs.substr(0, 4) != ours.substr(0, 4))
        return failure(DTRUN_REFUSED, "it does not speak dtrun's protocol");
    if (theirs.substr(4, 2) != ours.substr(4, 2))
        return failure(DTRUN_REFUSED, "it speaks another version of dtrun's protocol");
    if (theirs.substr(6, 2) != ours.substr(6, 2))
        return failure(DTRUN_REFUSED, "it wants encryption, which the client library cannot do");
    return {};
}

}  // namespace

std::string preamble() {
    return {'d', 't', 'r', 'n', kProtocolVersion >> 8, kProtocolVersion & 0xff, 0, 0};
}

Outcome<void> authenticate(FrameSocket& socket, const Credentials& credentials, Patience patience) {
    patience.deadline = std::min(patience.deadline, now() + kHandshakeTime);
    std::string ours = preamble();
    ours += as_text(credentials.job);
    ours += as_text(make_nonce());
    if (auto sent = socket.send(ours); !sent) return sent;

    const auto theirs = socket.read_exactly(kServerRecordBytes, patience);
    if (!theirs) return std::unexpected(theirs.error());
    if (auto fits = check_preamble(*theirs); !fits) return fits;
    const Sha256 mine = proof("dtrun client", credentials.secret, ours, *theirs);
    if (auto sent = socket.send(as_text(mine)); !sent) return sent;
    const auto shown = socket.read_exactly(kProofBytes, patience);
    if (!shown) return std::unexpected(shown.error());
    const Sha256 expected = proof("dtrun server", credentials.secret, ours, *theirs);
    if (!equal_constant_time(expected, as_bytes(*shown)))
        return failure(DTRUN_REFUSED, "it has another secret");
    return {};
}

Outcome<Challenge> challenge(const Credentials& credentials, std::string_view client) {
    if (auto fits = check_preamble(client); !fits) return std::unexpected(fits.error());
    const bool is_ours = client.substr(kJobAt, credentials.job.size()) == as_text(credentials.job);
    const Secret secret = is_ours ? credentials.secret : Secret::random();
    Challenge made;
    made.record = preamble();
    made.record += as_text(make_nonce());
    made.expected = proof("dtrun client", secret, client, made.record);
    made.proof = proof("dtrun server", secret, client, made.record);
    return made;
}

}  // namespace dtrun::embedded
