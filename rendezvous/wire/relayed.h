#pragma once

#include "base/numbered.h"
#include "rendezvous/wire/frame.h"

#include <cstdint>

namespace dtrun {

/// Content of a `relayed` frame: a frame from or for a host that has no connection to the head.
struct RelayedView {
    HostId host{};
    FrameView frame;
};

/// The payload of a `relayed` frame.
Bytes encode_relayed(HostId host, FrameType type, std::string_view payload);
/// Errc: invalid_input (not one whole frame, or one that is itself relayed)
Result<RelayedView> decode_relayed(std::string_view payload);

}  // namespace dtrun
