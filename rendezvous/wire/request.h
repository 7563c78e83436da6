#pragma once

#include "base/result.h"
#include "rendezvous/wire/frame.h"

#include <cstdint>
#include <string_view>

namespace dtrun {

/// Operations of a job's store; values are part of the wire protocol. docs/PROTOCOL.md lists
/// arguments and results.
enum class Op : std::uint8_t {
#define DTRUN_OPERATION(name, number, function, effect, arguments) name = number,
#include "rendezvous/wire/operations.def"
};

/// What an operation does to the store; reads: nothing.
enum class Effect : std::uint8_t { reads, grows, shrinks };

constexpr Effect effect_of(Op op) {
    switch (op) {
#define DTRUN_OPERATION(name, number, function, effect, arguments) \
    case Op::name:                                                 \
        return Effect::effect;
#include "rendezvous/wire/operations.def"
    }
    return Effect::reads;
}

/// Whether an operation may wait in the store, for what others do; it has a timeout then.
constexpr bool may_wait(Op op) {
    switch (op) {
#define DTRUN_OPERATION(name, number, function, effect, arguments) \
    case Op::name:                                                 \
        return false;
#define DTRUN_WAITING_OPERATION(name, number, function, effect, arguments) \
    case Op::name:                                                         \
        return true;
#include "rendezvous/wire/operations.def"
    }
    return false;
}

/// Whether the answer of an operation must be remembered until the client has it.
constexpr bool changes_something(Op op) {
    return effect_of(op) != Effect::reads;
}

/// Whether an operation may make the store larger.
constexpr bool adds_something(Op op) {
    return effect_of(op) == Effect::grows;
}

/// How a request ended.
enum class Status : std::uint8_t {
    ok = 0,
    not_found = 1,
    timed_out = 2,
    stale = 3,       ///< the generation is over; result: the current one
    cancelled = 4,   ///< by the client
    refused = 5,     ///< a limit or a mistake; result: text
    wrong_type = 6,  ///< a queue where a value was expected, or the other way round, or no number
};

inline constexpr std::size_t kKeyBytesMax = 64u << 10;
/// Limit of a value's size: a frame must also hold its headers and other arguments.
inline constexpr std::size_t kValueBytesMax = FrameHeader::kPayloadBytesMax - (256u << 10);
/// A timeout in milliseconds that means no limit.
inline constexpr std::uint64_t kForeverMs = 0xffff'ffff;

/// Header of the arguments in a `request` frame; of fixed size, so that relays need not parse
/// arguments.
struct RequestHeader {
    static constexpr std::size_t kBytes = 24;
    std::uint64_t client = 0;  ///< random id of the client, never 0; the same after a reconnect
    std::uint64_t id = 0;      ///< from 1 up
    std::uint32_t behind = 0;  ///< `id` less the lowest id that is still without an answer
    Op op{};
};

/// Header of the results in a `reply` frame.
struct ReplyHeader {
    static constexpr std::size_t kBytes = 24;
    std::uint64_t client = 0;
    std::uint64_t id = 0;
    Status status{};
};

struct RequestView {
    RequestHeader header;
    std::string_view arguments;  ///< a MessagePack array
};
struct ReplyView {
    ReplyHeader header;
    std::string_view results;  ///< a MessagePack array
};

/// A whole frame.
Bytes encode_request(const RequestHeader& header, std::string_view arguments);
Bytes encode_reply(const ReplyHeader& header, std::string_view results);

/// Errc: invalid_input (too short, client or id 0, reserved bytes). An op that is not known is let
/// through: it is refused with a reply.
Result<RequestView> decode_request(std::string_view payload);
Result<ReplyView> decode_reply(std::string_view payload);

}  // namespace dtrun
