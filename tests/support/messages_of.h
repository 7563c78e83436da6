#pragma once

#include "rendezvous/wire/frame.h"

#include <set>
#include <string_view>

namespace dtrun {

/// The frames that messages.def lets go over connections in one direction, such as "agent → head". What begins a
/// connection ("first"), and what comes on standard input, has no other receiver there.
inline std::set<FrameType> messages_of(std::string_view direction) {
    const auto goes = [direction](std::string_view from_to) {
        if (from_to.ends_with(", first") || from_to.ends_with("standard input")) return false;
        if (from_to.find(direction) != from_to.npos) return true;
        const bool is_up = direction == "rank → agent" || direction == "agent → head" ||
                           direction == "member → daemon";
        const bool is_rank = direction.find("rank") != direction.npos;
        const bool is_job = direction == "agent → head" || direction == "head → agent";
        if (from_to == "towards the store" || from_to == "towards the root") return is_up;
        if (from_to == "towards the root, root → relays") return is_up || !is_rank;
        if (from_to == "from the store" || from_to == "from the root") return !is_up;
        if (from_to == "both ways") return !is_rank;
        if (from_to == "between head and agents") return is_job;
        if (from_to == "relay → head") return direction == "agent → head";
        return from_to == "to whom is refused" && !is_up;
    };
    std::set<FrameType> types;
#define DTRUN_FRAME(name, number, from_to, meaning) \
    if (goes(from_to)) types.insert(FrameType::name);
#define DTRUN_MESSAGE(name, number, Message, secrecy, from_to, meaning) \
    DTRUN_FRAME(name, number, from_to, meaning)
#include "rendezvous/wire/messages.def"
    return types;
}

/// Those that have a receiver. \param has  whether one type has
template <class Has>
std::set<FrameType> types_with(const Has& has) {
    std::set<FrameType> types;
    for (int type = 1; type < 256; ++type)
        if (has(static_cast<FrameType>(type))) types.insert(static_cast<FrameType>(type));
    return types;
}

}  // namespace dtrun
