#include "worker/client/connect/handshake.h"

#include <algorithm>

namespace dtrun::embedded {
namespace {

/// \param bytes  as many as the record has
template <class Record>
Record record_of(std::string_view bytes) {
    Record record{};
    std::ranges::copy(as_bytes(bytes), record.begin());
    return record;
}

}  // namespace

Outcome<void> check_preamble(const std::optional<Preamble>& theirs) {
    if (!theirs) return failure(DTRUN_REFUSED, "it does not speak dtrun's protocol");
    if (theirs->version != kProtocolVersion)
        return failure(DTRUN_REFUSED, "it speaks another version of dtrun's protocol");
    if (theirs->flags != 0)
        return failure(DTRUN_REFUSED, "it wants encryption, which the client library cannot do");
    return {};
}

Outcome<void> authenticate(FrameSocket& socket, const ClientCredentials& credentials,
                           WaitContext context) {
    context.deadline = std::min(context.deadline, now() + kHandshakeTime);
    const ClientRecord ours =
        encode_hello(ClientHello{.job = credentials.job, .nonce = random_nonce()});
    if (auto sent = socket.send(as_text(ours)); !sent) return sent;
    const auto theirs = socket.read_exactly(ServerHello::kBytes, context);
    if (!theirs) return std::unexpected(theirs.error());
    if (auto fits = check_preamble(decode_preamble(as_bytes(*theirs))); !fits) return fits;

    const Proofs proofs = make_proofs(credentials.secret, ours, record_of<ServerRecord>(*theirs));
    if (auto sent = socket.send(as_text(proofs.client)); !sent) return sent;
    const auto shown = socket.read_exactly(proofs.server.size(), context);
    if (!shown) return std::unexpected(shown.error());
    if (!equal_constant_time(proofs.server, as_bytes(*shown)))
        return failure(DTRUN_REFUSED, "it has another secret");
    return {};
}

Outcome<Challenge> challenge(const ClientCredentials& credentials, std::string_view client) {
    const auto record = record_of<ClientRecord>(client);
    if (auto fits = check_preamble(decode_preamble(record)); !fits)
        return std::unexpected(fits.error());
    const auto hello = decode_hello(record);
    if (!hello) return failure(DTRUN_REFUSED, "{}", hello.error().message);
    const bool is_ours = hello->job == credentials.job;
    const Secret secret = is_ours ? credentials.secret : Secret::random();
    Challenge made;
    made.record = encode_hello(ServerHello{.nonce = random_nonce()});
    made.proofs = make_proofs(secret, record, made.record);
    return made;
}

}  // namespace dtrun::embedded
