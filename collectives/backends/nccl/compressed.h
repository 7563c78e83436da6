#pragma once

#include "collectives/backends/nccl/codec_cuda.h"
#include "collectives/backends/nccl/group.h"
#include "collectives/compression.h"

#include <span>
#include <vector>

namespace dtrun::collectives::nccl {

/// One compressed allreduce on one rank.
///
/// Two shots, as in collectives/algorithms/compressed.h, with the same chunks and owners, so that what is
/// rounded to nearest has the same bits as on the CPU. Random numbers differ: the CPU restarts them
/// for every few thousand values, as many as fit into its cache, which on a GPU would take a kernel
/// each.
///
/// What an owner has is cut into rounds, so that the memory that it takes does not grow with the arrays. All
/// steps follow one another in one stream: coding runs at the rate of the GPU's memory, which is a
/// small part of the time on the wire.
///
/// It has many members because it is one call's frame: the arguments, what the constructor computes
/// of them and where parts of the workspace begin; each of the steps of a round reads most of these.
class NcclGroup::Compressed {
public:
    Compressed(NcclGroup& group, std::span<const Segment> segments, Reduce reduce,
               const Compression& compression, std::uint64_t call);

    std::size_t workspace_bytes() const;
    /// Puts the whole operation into the stream; workspace_ has workspace_bytes().
    Result<void> enqueue();

private:
    /// What a round has of an owner's values.
    struct OwnersChunk : Chunk {
        const float* values = nullptr;  ///< of this rank
        const float* before = nullptr;  ///< errors of the last call that are not in `values` yet
        float* place = nullptr;         ///< where the result goes
        float* error = nullptr;         ///< where this call's errors go
    };

    void add(const Segment& segment);
    Result<void> do_round(std::size_t round);
    void cut(std::uint32_t owner, std::size_t round);
    Result<void> gather();
    Result<void> encode_values();
    Result<void> send_values();
    Result<void> combine();
    Result<void> gather_sums();
    Result<void> decode_sums();
    Result<void> scatter();

    std::size_t begin_of(std::size_t owner) const;
    std::vector<Segment> segments_of(std::size_t at, std::size_t count) const;
    /// How many chunks from `first` on are contiguous, encoded and decoded, so that one call codes
    /// them.
    std::uint32_t neighbours(std::uint32_t first, std::uint32_t end) const;
    std::size_t values_of(std::uint32_t first, std::uint32_t number) const;
    std::uint64_t seed(std::size_t at) const;
    std::size_t encoded(const Chunk& chunk) const;
    std::byte* box(std::byte* boxes, std::uint32_t rank) const { return boxes + rank * stride_; }
    /// Turns a codec's return code into a result; an error breaks the group.
    Result<void> launched(int code) const;

    const CudaCodecs& codecs() const { return *group_.codecs_; }

    NcclGroup& group_;
    const std::uint32_t rank_;
    const std::uint32_t size_;
    const std::uint32_t divisor_;
    const Compression compression_;
    const std::uint64_t call_;
    std::vector<Segment> segments_;  ///< the non-empty ones, and gaps, whose pointers are null
    std::vector<std::size_t> ends_;  ///< end of each in the whole sequence
    std::size_t count_ = 0;
    std::size_t blocks_ = 0;
    std::size_t rounds_ = 0;
    std::size_t chunk_ = 0;   ///< values of a whole chunk
    std::size_t stride_ = 0;  ///< bytes of one, encoded
    std::vector<OwnersChunk> chunks_;
    std::vector<CudaSegment> spread_;  ///< parts of segments in chunks that have several
    // In the workspace, for each rank: what goes to owners, comes from peers, and the sums, encoded;
    // values and errors of chunks that are spread.
    std::byte* to_owners_ = nullptr;
    std::byte* from_peers_ = nullptr;
    std::byte* sums_ = nullptr;
    float* values_ = nullptr;
    float* errors_ = nullptr;
};

}  // namespace dtrun::collectives::nccl
