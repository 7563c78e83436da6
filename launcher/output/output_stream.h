#pragma once

#include "launcher/plan/slot_id.h"
#include "rendezvous/wire/output_messages.h"

#include <cstddef>
#include <cstdint>

namespace dtrun::output {

/// Position of a rank's stream in a table of all streams.
inline std::size_t stream_index(plan::SlotId rank, Stream stream) {
    return std::size_t{std::to_underlying(rank)} * 2 + (stream == Stream::err ? 1 : 0);
}
inline plan::SlotId rank_of(std::size_t index) {
    return static_cast<plan::SlotId>(index / 2);
}
inline Stream stream_of(std::size_t index) {
    return index % 2 == 0 ? Stream::out : Stream::err;
}

/// The size of a table of all streams.
inline std::size_t stream_count(int world_size) {
    return static_cast<std::size_t>(world_size) * 2;
}

/// Bytes of a stream that a sink has written: its sender may send as many again.
struct Written {
    std::uint32_t stream = 0;  ///< stream_index()
    std::size_t bytes = 0;     ///< as received, without prefixes
};

}  // namespace dtrun::output
