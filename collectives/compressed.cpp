#include "collectives/compressed.h"

#include "collectives/codec/reduce.h"
#include "collectives/segments.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>

namespace dtrun::collectives {
namespace {

/// Values that are gathered, encoded or decoded at a time, small enough for the first cache.
constexpr std::size_t kStrip = 4096;
/// Chunks that are on the way to the owners, and from them, while the next one is encoded.
constexpr std::size_t kUnderWay = 2;
constexpr std::size_t kSlots = kUnderWay + 1;
/// Strips between two polls of messages that are under way.
constexpr std::size_t kStripsPerPoll = 4;
constexpr std::size_t kAlignment = 64;

constexpr std::size_t round_up(std::size_t n, std::size_t to) {
    return (n + to - 1) / to * to;
}

std::uint64_t seed_of(std::uint64_t call, std::uint64_t rank, std::uint64_t position) {
    std::uint64_t x = call * 0x9e3779b97f4a7c15 ^ rank * 0xc2b2ae3d27d4eb4f ^ position;
    x = (x ^ x >> 33) * 0xff51afd7ed558ccd;  // the finalizer of MurmurHash3
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53;
    return x ^ x >> 33;
}

/// Cuts values into a piece for each rank and pieces into chunks, at block boundaries.
class Cut {
public:
    struct Range {
        std::size_t at = 0;
        std::size_t count = 0;
    };

    Cut(std::size_t count, std::uint32_t size, Format format,
        const CompressedAllreduce::Chunks& chunks)
        : count_(count), size_(size), blocks_(round_up(count, kBlock) / kBlock) {
        const std::size_t longest = round_up(blocks_, size) / size * kBlock;
        const std::size_t bytes =
            std::max(chunks.step_bytes / (size - 1), chunks.message_bytes_min);
        const std::size_t aim = std::max(bytes * kBlock / encoded_bytes(format, kBlock), kBlock);
        const std::size_t about = std::max<std::size_t>((longest + aim - 1) / aim, 1);
        chunk_ = std::max(round_up((longest + about - 1) / about, kBlock), kBlock);
        chunks_ = (longest + chunk_ - 1) / chunk_;
    }

    std::size_t chunks() const { return chunks_; }
    std::size_t chunk_values_max() const { return chunk_; }

    /// A chunk of the owner's piece; empty beyond its end.
    Range chunk(std::uint32_t owner, std::size_t number) const {
        const std::size_t begin = std::min(piece(owner) + number * chunk_, piece(owner + 1));
        const std::size_t end = std::min(begin + chunk_, piece(owner + 1));
        return {begin, end - begin};
    }

private:
    std::size_t piece(std::size_t owner) const {
        const std::size_t block = blocks_ / size_ * owner + std::min(owner, blocks_ % size_);
        return std::min(block * kBlock, count_);
    }

    std::size_t count_;
    std::size_t size_;
    std::size_t blocks_;
    std::size_t chunk_ = kBlock;
    std::size_t chunks_ = 0;
};

/// One call on one rank.
class Exchange {
public:
    Exchange(Group& group, std::uint32_t rank, std::uint32_t size, const Segments& values,
             Reduce reduce, const Compression& compression, std::uint64_t call,
             const CompressedAllreduce::Chunks& chunks, std::vector<std::byte>& messages)
        : group_(group),
          rank_(rank),
          size_(size),
          values_(values),
          average_(reduce == Reduce::average),
          format_(compression.format),
          rounding_(compression.rounding),
          call_(call),
          cut_(values.count(), size, compression.format, chunks),
          message_bytes_(
              round_up(encoded_bytes(compression.format, cut_.chunk_values_max()), kAlignment)),
          messages_(messages) {
        // Each slot has three boxes for each rank, and one for this rank's own sum.
        const std::size_t needed = kSlots * (3 * std::size_t{size} + 1) * message_bytes_;
        if (messages_.size() < needed) messages_.resize(needed);
    }

    Result<void> run();

private:
    /// The encoded messages of a slot, one of each kind per peer.
    enum class Box { to_owner = 0, from_peer = 1, sum_of_peer = 2 };
    using Slots = std::array<std::unique_ptr<Pending>, kSlots>;

    std::byte* box(Box which, std::size_t chunk, std::uint32_t peer) const {
        const std::size_t slot = (chunk % kSlots) * (3 * std::size_t{size_} + 1);
        return messages_.data() +
               (slot + static_cast<std::size_t>(which) * size_ + peer) * message_bytes_;
    }
    std::byte* own_sum(std::size_t chunk) const { return box(Box::sum_of_peer, chunk, size_); }

    Result<void> send_values(std::size_t chunk);
    Result<void> send_sum(std::size_t chunk);
    Result<void> receive_sums(std::size_t chunk);
    void encode_values(Cut::Range range, std::byte* to);
    void encode_sum(Cut::Range range, std::size_t chunk);
    void add_up(std::size_t at, std::size_t n, std::size_t encoded_at, std::size_t chunk);
    void encode_strip(std::size_t at, std::size_t n, const float* values, std::byte* to,
                      float error_factor);
    void decode_to_place(Cut::Range range, const std::byte* from);
    /// Calls strip(offset in the range, values, offset in its encoded bytes).
    template <class F>
    void strips(Cut::Range range, F strip);
    void poll();

    Group& group_;
    const std::uint32_t rank_;
    const std::uint32_t size_;
    const Segments& values_;
    const bool average_;
    const Format format_;
    const Rounding rounding_;
    const std::uint64_t call_;
    const Cut cut_;
    const std::size_t message_bytes_;
    std::vector<std::byte>& messages_;
    alignas(kAlignment) std::array<float, kStrip> room_;
    alignas(kAlignment) std::array<float, kStrip> sums_;
    alignas(kAlignment) std::array<float, kStrip> errors_;
    std::size_t strips_done_ = 0;
    Slots to_owners_;    ///< messages with ranks' values
    Slots from_owners_;  ///< messages with sums
};

template <class F>
void Exchange::strips(Cut::Range range, F strip) {
    for (std::size_t done = 0; done < range.count; done += kStrip) {
        strip(done, std::min(kStrip, range.count - done), encoded_bytes(format_, done));
        if (++strips_done_ % kStripsPerPoll == 0) poll();
    }
}

/// Some backends send only while they are called.
void Exchange::poll() {
    for (Slots* slots : {&to_owners_, &from_owners_})
        for (const auto& pending : *slots)
            if (pending) pending->poll();
}

/// Encodes values and stores the rounding errors if the caller keeps them.
void Exchange::encode_strip(std::size_t at, std::size_t n, const float* values, std::byte* to,
                            float error_factor) {
    const std::uint64_t seed = seed_of(call_, rank_, at);
    if (!values_.has_errors(at, n)) return encode(format_, rounding_, seed, values, n, to);
    std::fill_n(errors_.data(), n, 0.0F);
    encode(format_, rounding_, seed, values, n, to, errors_.data());
    if (error_factor != 1)
        for (std::size_t i = 0; i < n; ++i) errors_[i] *= error_factor;
    values_.put_errors(at, n, errors_.data());
}

void Exchange::encode_values(Cut::Range range, std::byte* to) {
    strips(range, [&](std::size_t offset, std::size_t n, std::size_t encoded_at) {
        const std::size_t at = range.at + offset;
        encode_strip(at, n, values_.take(at, n, room_.data()), to + encoded_at, 1);
    });
}

/// Sets sums_ to the sum or mean of all ranks' values at [at, at + n), added in the order of ranks.
void Exchange::add_up(std::size_t at, std::size_t n, std::size_t encoded_at, std::size_t chunk) {
    for (std::uint32_t peer = 0; peer < size_; ++peer) {
        if (peer == rank_) {
            const float* own = values_.take(at, n, room_.data());
            if (peer == 0)
                std::copy_n(own, n, sums_.data());
            else
                reduce_into(sums_.data(), sums_.data(), own, n, DType::f32, Reduce::sum);
            continue;
        }
        const std::byte* encoded = box(Box::from_peer, chunk, peer) + encoded_at;
        if (peer == 0)
            decode(format_, encoded, n, sums_.data());
        else
            decode_add(format_, encoded, n, sums_.data());
    }
    if (average_) divide(sums_.data(), n, DType::f32, size_);
}

void Exchange::encode_sum(Cut::Range range, std::size_t chunk) {
    std::byte* to = own_sum(chunk);
    strips(range, [&](std::size_t offset, std::size_t n, std::size_t encoded_at) {
        const std::size_t at = range.at + offset;
        add_up(at, n, encoded_at, chunk);
        // This error is added to one rank's values, which the mean divides by the number of ranks.
        encode_strip(at, n, sums_.data(), to + encoded_at,
                     average_ ? static_cast<float>(size_) : 1.0F);
    });
}

void Exchange::decode_to_place(Cut::Range range, const std::byte* from) {
    strips(range, [&](std::size_t offset, std::size_t n, std::size_t encoded_at) {
        const std::size_t at = range.at + offset;
        if (float* place = values_.place(at, n)) {
            decode(format_, from + encoded_at, n, place);
        } else {
            decode(format_, from + encoded_at, n, room_.data());
            values_.put(at, n, room_.data());
        }
    });
}

/// Sends this rank's values of a chunk of every piece to the owners.
Result<void> Exchange::send_values(std::size_t chunk) {
    std::vector<Send> sends;
    std::vector<Receive> receives;
    const std::size_t mine = encoded_bytes(format_, cut_.chunk(rank_, chunk).count);
    for (std::uint32_t step = 1; step < size_; ++step) {
        // Each rank begins with another peer, so that not all wait for one link.
        const std::uint32_t to = (rank_ + step) % size_;
        const std::uint32_t from = (rank_ + size_ - step) % size_;
        const Cut::Range range = cut_.chunk(to, chunk);
        encode_values(range, box(Box::to_owner, chunk, to));
        if (range.count != 0)
            sends.push_back(
                {to, box(Box::to_owner, chunk, to), encoded_bytes(format_, range.count)});
        if (mine != 0) receives.push_back({from, box(Box::from_peer, chunk, from), mine});
    }
    auto pending = group_.start(sends, receives);
    if (!pending) return std::unexpected(pending.error());
    to_owners_[chunk % kSlots] = std::move(*pending);
    return {};
}

/// Waits for all ranks' values of a chunk of this rank's piece, then sends their encoded sum.
Result<void> Exchange::send_sum(std::size_t chunk) {
    std::unique_ptr<Pending>& values = to_owners_[chunk % kSlots];
    if (auto arrived = values->wait(); !arrived) return arrived;
    values.reset();
    const Cut::Range mine = cut_.chunk(rank_, chunk);
    encode_sum(mine, chunk);
    std::vector<Send> sends;
    std::vector<Receive> receives;
    for (std::uint32_t step = 1; step < size_; ++step) {
        const std::uint32_t to = (rank_ + step) % size_;
        const std::uint32_t from = (rank_ + size_ - step) % size_;
        if (mine.count != 0)
            sends.push_back({to, own_sum(chunk), encoded_bytes(format_, mine.count)});
        const std::size_t bytes = encoded_bytes(format_, cut_.chunk(from, chunk).count);
        if (bytes != 0) receives.push_back({from, box(Box::sum_of_peer, chunk, from), bytes});
    }
    auto pending = group_.start(sends, receives);
    if (!pending) return std::unexpected(pending.error());
    from_owners_[chunk % kSlots] = std::move(*pending);
    decode_to_place(mine, own_sum(chunk));
    return {};
}

Result<void> Exchange::receive_sums(std::size_t chunk) {
    std::unique_ptr<Pending>& sums = from_owners_[chunk % kSlots];
    if (auto arrived = sums->wait(); !arrived) return arrived;
    sums.reset();
    for (std::uint32_t peer = 0; peer < size_; ++peer)
        if (peer != rank_)
            decode_to_place(cut_.chunk(peer, chunk), box(Box::sum_of_peer, chunk, peer));
    return {};
}

Result<void> Exchange::run() {
    const std::size_t chunks = cut_.chunks();
    for (std::size_t step = 0; step < chunks + 2 * kUnderWay; ++step) {
        if (step < chunks)
            if (auto ok = send_values(step); !ok) return ok;
        if (step >= kUnderWay && step - kUnderWay < chunks)
            if (auto ok = send_sum(step - kUnderWay); !ok) return ok;
        if (step >= 2 * kUnderWay)
            if (auto ok = receive_sums(step - 2 * kUnderWay); !ok) return ok;
    }
    return {};
}

}  // namespace

Result<void> CompressedAllreduce::run(Group& group, std::uint32_t rank, std::uint32_t size,
                                      std::span<const Segment> segments, Reduce reduce,
                                      const Compression& compression, std::uint64_t call) {
    if (reduce != Reduce::sum && reduce != Reduce::average)
        return fail(Errc::invalid_input, "only sum and average can be compressed, not {}",
                    name_of(reduce));
    if (size > 1) {
        const Segments values(segments);
        Exchange exchange(group, rank, size, values, reduce, compression, call, chunks_, messages_);
        return exchange.run();
    }
    for (const Segment& segment : segments)
        if (segment.count != 0 && segment.in != segment.out)
            std::copy_n(segment.in, segment.count, segment.out);
    return {};
}

Result<void> CompressedAllreduce::run(Group& group, std::uint32_t rank, std::uint32_t size,
                                      const float* in, float* out, std::size_t count, Reduce reduce,
                                      const Compression& compression, std::uint64_t call) {
    const Segment all{in, out, count, compression.error};
    return run(group, rank, size, {&all, 1}, reduce, compression, call);
}

}  // namespace dtrun::collectives
