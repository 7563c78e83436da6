#pragma once

#include "rendezvous/msgpack.h"
#include "worker/client/client.h"

#include <functional>
#include <string>
#include <utility>

namespace dtrun::embedded {

/// Asks the store, as docs/PROTOCOL.md lists arguments and results.
/// \param arguments  their number, without the generation
/// \param pack       writes them: void(PackWriter&)
/// \param read       reads the results: void(PackReader&)
template <class Pack, class Read>
Outcome<void> ask(Client& client, Op op, std::uint32_t arguments, std::int64_t timeout_ms,
                  std::function<bool()> give_up, Pack pack, Read read) {
    Bytes frame = Client::start_request();
    PackWriter out(frame);
    out.array(1 + arguments);
    out.uint(client.generation());
    pack(out);
    const auto results = client.request(op, std::move(frame), timeout_ms, std::move(give_up));
    if (!results) return std::unexpected(results.error());
    PackReader in(*results);
    in.array();
    read(in);
    if (!in.ok()) return failure(DTRUN_INTERNAL, "malformed answer of the store");
    return {};
}

inline void read_nothing(PackReader&) {}

/// As the protocol has it; no limit for negative ones.
inline std::uint64_t wire_timeout(std::int64_t timeout_ms) {
    if (timeout_ms < 0) return kForeverMs;
    return std::min<std::uint64_t>(static_cast<std::uint64_t>(timeout_ms), kForeverMs - 1);
}

}  // namespace dtrun::embedded
