#pragma once

#include "base/result.h"
#include "rendezvous/wire/frame.h"

#include <cstdint>
#include <string_view>

namespace dtrun {

/// Operations of a job's store; values are part of the wire protocol. docs/PROTOCOL.md lists
/// arguments and results.
enum class Op : std::uint8_t {
    set = 1,
    get = 2,
    wait = 3,
    add = 4,
    compare_set = 5,
    append = 6,
    check = 7,
    erase = 8,
    multi_get = 9,
    multi_set = 10,
    list = 11,
    push = 12,
    pop = 13,
    length = 14,
    watch = 15,
    count = 16,
    cancel = 17,
    status = 18,
    drop = 19,
};

/// Whether the answer of an operation must be remembered until the client has it.
constexpr bool changes_something(Op op) {
    switch (op) {
        case Op::set:
        case Op::add:
        case Op::compare_set:
        case Op::append:
        case Op::erase:
        case Op::multi_set:
        case Op::push:
        case Op::pop:
            return true;
        default:
            return false;
    }
}

/// Whether an operation may make the store larger.
constexpr bool adds_something(Op op) {
    return changes_something(op) && op != Op::erase && op != Op::pop;
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
