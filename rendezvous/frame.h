#pragma once

#include "base/result.h"
#include "rendezvous/msgpack.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace dtrun {

/// What a frame carries. Values are part of the wire protocol (docs/PROTOCOL.md): never reused.
enum class FrameType : std::uint8_t {
    bootstrap = 1,      ///< head -> agent, on its standard input: who it is and what to run
    join = 2,           ///< agent -> head: this host is ready, or why it cannot be
    assign = 3,         ///< head -> agent: a generation's ranks; start them
    started = 4,        ///< agent -> head: pids of the ranks
    exited = 5,         ///< agent -> head: one rank ended
    output = 6,         ///< agent -> head: bytes of a rank's stdout or stderr
    output_end = 7,     ///< agent -> head: that stream is at its end
    credit = 8,         ///< head -> agent: so many more bytes of output may be sent
    input = 9,          ///< head -> agent: bytes for ranks' standard input, or its end
    input_credit = 10,  ///< agent -> head: so many bytes of input were taken
    signal = 11,        ///< head -> agent: send a signal to ranks; back: a scheduler sent me one
    stop = 12,          ///< head -> agent: end all ranks, then say `done` and leave
    done = 13,          ///< agent -> head: nothing of the job is left on this host
    refuse = 14,        ///< head -> agent, agent -> rank: you are not wanted, and why

    hello = 15,      ///< rank -> agent, first: who is there
    welcome = 16,    ///< agent -> rank: your place
    request = 17,    ///< towards the store: one operation
    reply = 18,      ///< from the store: what came of it
    gone = 19,       ///< towards the store: this client waits for nothing any more
    fence = 20,      ///< towards the root: ranks have arrived at a fence, with their bytes
    unfence = 21,    ///< towards the root: a rank has waited long enough; the fence fails
    fenced = 22,     ///< from the root: a fence is complete, or has failed, for all
    progress = 23,   ///< rank -> agent: how far it has come
    event = 24,      ///< towards ranks: something they may want to know
    heartbeat = 25,  ///< both ways: alive; up, with the progress of everybody below

    relayed = 26,     ///< between a host behind a relay and the head: a frame of that host
    relay_lost = 27,  ///< relay -> head: a host behind it is gone
    pause = 28,       ///< head -> agent: end all ranks, but stay
    paused = 29,      ///< agent -> head: they have ended

    enter = 30,    ///< member -> daemon: these slots want to take part in the job
    propose = 31,  ///< daemon -> member: a new generation is coming, end your ranks
    accept = 32,   ///< member -> daemon: they have ended
    leave = 33,    ///< member -> daemon: this member has ended

    relays = 34,  ///< head -> agent, on its standard input: where relays wait for those behind them
    probe = 35,   ///< head -> agent: which of these addresses can you reach?
    reached = 36,  ///< agent -> head: these
    waits = 37,    ///< agent -> head: who waits for whom, in the stores that it serves
    mpi = 38,      ///< agent -> head: a rank has begun to use MPI, or cannot have it
    group_fence =
        39,  ///< rank of another launcher -> daemon: it has come to a fence, or gives it up
};

/// Every frame: u32 payload bytes, u8 type, three zero bytes; big-endian; then the payload.
struct FrameHeader {
    static constexpr std::size_t kBytes = 8;
    /// Larger announcements end the connection before anything is allocated.
    static constexpr std::uint32_t kPayloadBytesMax = 16u << 20;

    FrameType type{};
    std::uint32_t payload_bytes = 0;
};

std::array<char, FrameHeader::kBytes> encode_header(const FrameHeader& header);

/// Errc: invalid_input for a payload above kPayloadBytesMax, type 0, or non-zero reserved bytes.
/// \param bytes  at least FrameHeader::kBytes
Result<FrameHeader> decode_header(std::string_view bytes);

/// Bytes that several connections send.
using SharedBytes = std::shared_ptr<const Bytes>;

/// One whole frame; `payload` must be at most kPayloadBytesMax.
Bytes encode_frame(FrameType type, std::string_view payload);

/// What a whole frame carries.
inline std::string_view payload_of(const Bytes& frame) {
    return std::string_view(frame).substr(FrameHeader::kBytes);
}

struct FrameView {
    FrameType type{};
    std::string_view payload;
};

/// Cuts frames off a growing buffer.
/// \param[in,out] bytes  what was received and not yet used; a returned frame is removed from it and
///                       views into it
/// \return a frame, nothing if more bytes are needed, or invalid_input
Result<std::optional<FrameView>> next_frame(std::string_view& bytes);

}  // namespace dtrun
