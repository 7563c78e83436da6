#pragma once

#include "base/result.h"
#include "collectives/codec/codec.h"
#include "collectives/compression.h"
#include "collectives/group.h"
#include "collectives/host/host_group.h"
#include "collectives/topology.h"
#include "collectives/types.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dtrun::collectives {

/// Allreduce of f32 that travel in fewer bits.
///
/// Ranks of a host add up their values in memory first, in full; what follows is between hosts, along rails (see
/// Topology), and "rank" means the ranks of a rail. Where no host has two ranks, that is all of them.
///
/// Two shots: the values are cut into one chunk for each rank. Every rank sends its values of each
/// piece, encoded, to the piece's owner; the owner adds them up as f32, in the order of ranks, and
/// sends the sum, encoded once more, to all. So values are rounded twice, however many ranks there
/// are, where a ring would round them at every hop; and a rank sends 2 (n - 1) / n times the values,
/// as in a ring.
///
/// All ranks get the same bits: the owner, too, decodes what it has sent instead of taking its
/// exact sum. Its own values enter the sum unrounded, since no other rank computes that sum; so
/// `error` of its own piece is free to hold the error of the sum. Whatever the owner adds to its
/// own values next time is added to the sum, so error feedback covers both roundings with one
/// buffer. With average, what the owner keeps is the error of the mean times the number of ranks.
///
/// Pieces are cut into chunks that follow one another through encoding, the wire, adding, the wire
/// and decoding, so that the links are busy in both directions from the first chunk to the last.
///
/// A single rank's result is its input, exactly, and its error is left alone. After a failure buffers for error
/// feedback have lost what the values that were under way had taken from them: set them to zeros.
class CompressedAllreduce {
public:
    /// How pieces are cut into chunks.
    struct StepSizes {
        /// Bytes of one chunk that a host's ranks send to all others together: few compared with a whole
        /// call and with its caches, many compared with the fixed cost of a message.
        std::size_t step_bytes = 512 << 10;
        std::size_t message_bytes_min = 16 << 10;  ///< least part of that for one other rank
    };

    CompressedAllreduce() = default;
    explicit CompressedAllreduce(const StepSizes& sizes) : sizes_(sizes) {}

    /// \param topology  of the ranks of `group`
    /// \param host      of this rank's host; nullptr: the topology has it apart
    /// \param segments  have the same total of values on all ranks; compression.error is ignored
    /// \param reduce    sum or average, which is divided before it is encoded
    /// \param call      seed of stochastic rounding: the same on all ranks, another for each call
    /// Errc: invalid_input (reduce); and those of Group
    Result<void> run(Group& group, const Topology& topology, HostGroup* host,
                     std::span<const TypedSegment> segments, Reduce reduce,
                     const Compression& compression, std::uint64_t call);
    /// Without hosts, for f32.
    Result<void> run(Group& group, std::uint32_t rank, std::uint32_t size, const float* in,
                     float* out, std::size_t count, Reduce reduce, const Compression& compression,
                     std::uint64_t call);
    Result<void> run(Group& group, std::uint32_t rank, std::uint32_t size,
                     std::span<const Segment> segments, Reduce reduce,
                     const Compression& compression, std::uint64_t call);

private:
    StepSizes sizes_{};
    std::vector<std::byte> messages_;  ///< kept for the next call
};

}  // namespace dtrun::collectives
