#include "collectives/algorithms/compressed.h"

#include "collectives/algorithms/host_mean.h"
#include "collectives/algorithms/segments.h"
#include "collectives/codec/format_table.h"
#include "collectives/codec/reduce.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>

namespace dtrun::collectives {
namespace {

/// Values that are gathered, encoded or decoded at a time, small enough for the first cache.
constexpr std::size_t kStrip = 4096;
/// Chunks that are on the way to the owners, and from them, while the next one is encoded.
constexpr std::size_t kUnderWay = 2;
constexpr std::size_t kSlots = kUnderWay + 1;
/// Values that are worked on between two polls of messages that are under way: a poll is a system call for each
/// direction of each connection, and a socket has room for more than a link carries meanwhile.
constexpr std::size_t kValuesPerPoll = 16 * kStrip;
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

/// Cuts values, at block boundaries, into what each owner has, and that into a chunk for each step. Owners are the
/// ranks of all rails: those of the first rail by host, then those of the second one, and so on.
class Cut {
public:
    Cut(std::size_t count, std::uint32_t rails, std::uint32_t hosts, Format format,
        const CompressedAllreduce::StepSizes& sizes)
        : count_(count), size_(rails * hosts), blocks_(round_up(count, kBlock) / kBlock) {
        const std::size_t longest = round_up(blocks_, size_) / size_ * kBlock;
        const std::size_t bytes =
            std::max(sizes.step_bytes / rails / (hosts - 1), sizes.message_bytes_min);
        const std::size_t aim = std::max(bytes * kBlock / encoded_bytes(format, kBlock), kBlock);
        const std::size_t about = std::max<std::size_t>((longest + aim - 1) / aim, 1);
        longest_ = std::max(round_up((longest + about - 1) / about, kBlock), kBlock);
        steps_ = (longest + longest_ - 1) / longest_;
    }

    std::size_t steps() const { return steps_; }
    std::size_t chunk_values_max() const { return longest_; }

    /// What a step takes of the owner's; empty beyond its end.
    Chunk chunk(std::size_t owner, std::size_t step) const {
        const std::size_t begin = std::min(begin_of(owner) + step * longest_, begin_of(owner + 1));
        const std::size_t end = std::min(begin + longest_, begin_of(owner + 1));
        return {begin, end - begin};
    }

private:
    std::size_t begin_of(std::size_t owner) const {
        const std::size_t block = blocks_ / size_ * owner + std::min(owner, blocks_ % size_);
        return std::min(block * kBlock, count_);
    }

    std::size_t count_;
    std::size_t size_;
    std::size_t blocks_;
    std::size_t longest_ = kBlock;  ///< values of a chunk
    std::size_t steps_ = 0;
};

/// One call on one rank. Peers are numbered by their host.
class Exchange {
public:
    Exchange(Group& group, const Topology& topology, HostGroup* host, const Segments& values,
             Reduce reduce, const Compression& compression, std::uint64_t call,
             const CompressedAllreduce::StepSizes& sizes, std::vector<std::byte>& messages)
        : group_(group),
          topology_(topology),
          host_(host),
          me_(topology.host()),
          hosts_(topology.hosts()),
          rail_(topology.place()),
          on_rail_(topology.place() < topology.rails()),
          values_(values),
          error_of_mean_(reduce == Reduce::average ? static_cast<float>(topology.size()) : 1.0F),
          mean_(topology, reduce, compression.format),
          past_caches_(values.count() * sizeof(float) >= kPastCachesBytes),
          format_(compression.format),
          rounding_(compression.rounding),
          call_(call),
          cut_(values.count(), topology.rails(), topology.hosts(), compression.format, sizes),
          message_bytes_(encoded_bytes(compression.format, cut_.chunk_values_max())),
          messages_(messages) {
        // Each slot has three boxes for each peer. Behind them are sums of the host that this rank owns, in each slot.
        boxes_bytes_ = round_up(kSlots * 3 * std::size_t{hosts_} * message_bytes_, kAlignment);
        const std::size_t sums = host != nullptr ? kSlots : 0;
        const std::size_t needed = boxes_bytes_ + sums * cut_.chunk_values_max() * sizeof(float);
        if (messages_.size() < needed) messages_.resize(needed);
    }

    Result<void> run();

private:
    /// The encoded messages of a slot, one of each kind per peer.
    enum class Box { to_owner = 0, from_peer = 1, sum_of_peer = 2 };
    using Slots = std::array<std::unique_ptr<Pending>, kSlots>;

    std::byte* box(Box which, std::size_t step, std::uint32_t peer) const {
        const std::size_t slot = (step % kSlots) * 3 + static_cast<std::size_t>(which);
        return messages_.data() + (slot * hosts_ + peer) * message_bytes_;
    }
    /// All hosts' sums are one behind the other, this one's among them.
    std::byte* own_sum(std::size_t step) const { return box(Box::sum_of_peer, step, me_); }

    /// What a peer of this rail owns of a step.
    Chunk chunk_of(std::uint32_t peer, std::size_t step) const {
        return chunk_of(rail_, peer, step);
    }
    Chunk chunk_of(std::uint32_t rail, std::uint32_t peer, std::size_t step) const {
        return cut_.chunk(std::size_t{rail} * hosts_ + peer, step);
    }
    std::uint32_t rank_of(std::uint32_t peer) const { return topology_.ranks_of(peer)[rail_]; }

    // A step's chunks on one rail, one behind the other, are added up by the host as one.
    std::size_t rail_values_max() const { return hosts_ * cut_.chunk_values_max(); }
    /// The host's sums of what this rank owns, which other ranks do not get as they are.
    float* host_sums(std::size_t step) const {
        return reinterpret_cast<float*>(messages_.data() + boxes_bytes_) +
               step % kSlots * cut_.chunk_values_max();
    }
    std::vector<Chunk> chunks_of_rails(std::size_t step) const;
    template <class Body>
    void in_chunks(std::size_t at, std::size_t n, std::size_t step, Body body) const;

    Result<void> sum_on_host(std::size_t step);
    template <class Sum>
    void use_sums(std::uint32_t peer, std::size_t step, Chunk sums, const Sum& sum);
    Result<void> share_on_host(std::size_t step);
    Result<void> send_values(std::size_t step);
    Result<void> send_sum(std::size_t step);
    Result<void> receive_sums(std::size_t step);
    const float* own_values(std::uint32_t peer, std::size_t step, std::size_t offset,
                            std::size_t n);
    void encode_values(std::uint32_t peer, std::size_t step);
    void encode_sum(std::size_t step);
    void add_up(std::size_t offset, std::size_t n, std::size_t encoded_at, std::size_t step);
    void encode_strip(std::size_t at, std::size_t n, const float* values, std::byte* to,
                      float error_factor);
    void decode_to_place(Chunk chunk, const std::byte* from);
    /// Calls strip(offset in the chunk, values, offset in its encoded bytes).
    template <class F>
    void strips(Chunk chunk, F strip);
    void worked_on(std::size_t values);
    /// Before messages that are under way are waited for.
    Result<void> failed_in_memory(const Error& error) {
        return std::unexpected(group_.failed_in_memory(error));
    }

    Group& group_;
    const Topology& topology_;
    HostGroup* const host_;
    const std::uint32_t me_;     ///< this rank's host
    const std::uint32_t hosts_;  ///< which are the peers of a rail
    const std::uint32_t rail_;
    const bool on_rail_;  ///< false: this rank only adds and copies
    const Segments& values_;
    const float
        error_of_mean_;  ///< in one rank's values, which the mean divides by the number of ranks
    const HostMean mean_;
    const bool past_caches_;  ///< results are too large for them
    const Format format_;
    const Rounding rounding_;
    const std::uint64_t call_;
    const Cut cut_;
    const std::size_t message_bytes_;
    std::size_t boxes_bytes_ = 0;
    std::vector<std::byte>& messages_;
    alignas(kAlignment) std::array<float, kStrip> room_;
    alignas(kAlignment) std::array<float, kStrip> sums_;
    alignas(kAlignment) std::array<float, kStrip> errors_;
    std::size_t sums_left_ = 0;  ///< of the host, at the beginning of sums_: less than a block
    std::size_t worked_on_ = 0;  ///< values since the last poll
    Slots to_owners_;            ///< messages with ranks' values
    Slots from_owners_;          ///< messages with sums
};

template <class F>
void Exchange::strips(Chunk chunk, F strip) {
    for (std::size_t done = 0; done < chunk.count; done += kStrip) {
        strip(done, std::min(kStrip, chunk.count - done), encoded_bytes(format_, done));
        worked_on(std::min(kStrip, chunk.count - done));
    }
}

/// Lets messages move now and then: some backends send only while they are called.
void Exchange::worked_on(std::size_t values) {
    worked_on_ += values;
    if (worked_on_ < kValuesPerPoll) return;
    worked_on_ = 0;
    for (Slots* slots : {&to_owners_, &from_owners_})
        for (const auto& pending : *slots)
            if (pending) pending->poll();
}

// ---- on a host ------------------------------------------------------------------------------

/// What a step adds up on each rail, numbered one behind the other at equal distances.
std::vector<Chunk> Exchange::chunks_of_rails(std::size_t step) const {
    std::vector<Chunk> chunks;
    for (std::uint32_t rail = 0; rail < topology_.rails(); ++rail) {
        chunks.push_back({rail * rail_values_max(), 0});
        for (std::uint32_t peer = 0; peer < hosts_; ++peer)
            chunks.back().count += chunk_of(rail, peer, step).count;
    }
    return chunks;
}

/// Calls body(peer, first value, number, offset from `at`) for what [at, at + n) of chunks_of_rails() consists of.
template <class Body>
void Exchange::in_chunks(std::size_t at, std::size_t n, std::size_t step, Body body) const {
    const auto rail = static_cast<std::uint32_t>(at / rail_values_max());
    std::size_t begin = rail * rail_values_max();
    for (std::uint32_t peer = 0; peer < hosts_; ++peer) {
        const Chunk chunk = chunk_of(rail, peer, step);
        const std::size_t first = std::max(begin, at);
        const std::size_t last = std::min(begin + chunk.count, at + n);
        if (first < last) body(peer, chunk.at + (first - begin), last - first, first - at);
        begin += chunk.count;
    }
}

Result<void> Exchange::sum_on_host(std::size_t step) {
    const auto fill = [&](std::size_t at, std::size_t n, std::byte* to) {
        in_chunks(at, n, step,
                  [&](std::uint32_t, std::size_t first, std::size_t number, std::size_t offset) {
                      auto* const room = reinterpret_cast<float*>(to) + offset;
                      const float* const from = values_.take(first, number, room);
                      if (from != room) std::copy_n(from, number, room);
                  });
        worked_on(n);
    };
    const auto take = [&](std::size_t at, std::size_t n, const HostGroup::Sum& sum) {
        in_chunks(
            at, n, step,
            [&](std::uint32_t peer, std::size_t first, std::size_t number, std::size_t offset) {
                use_sums(peer, step, {first, number},
                         [&](std::size_t done, std::size_t some, float* to) {
                             sum(at + offset + done, some, reinterpret_cast<std::byte*>(to));
                         });
            });
    };
    return host_->sum_chunks(chunks_of_rails(step), DType::f32, Reduce::sum, fill, take);
}

/// Encodes the host's sums for a peer as they are added up, or keeps those that this rank owns.
/// \param sums  comes next of the peer's chunk, up to its end or to anywhere before that
/// \param sum   void(std::size_t offset, std::size_t number, float* to)
template <class Sum>
void Exchange::use_sums(std::uint32_t peer, std::size_t step, Chunk sums, const Sum& sum) {
    const Chunk chunk = chunk_of(peer, step);
    for (std::size_t done = 0; done < sums.count;) {
        // Blocks are encoded as a whole: the values of one that is not complete wait for the rest.
        const std::size_t first = sums.at + done - sums_left_;
        const std::size_t some = std::min(sums.count - done, kStrip - sums_left_);
        sum(done, some, sums_.data() + sums_left_);
        done += some;
        std::size_t n = sums_left_ + some;
        if (first + n != chunk.end()) n -= n % kBlock;
        sums_left_ += some - n;
        const std::size_t offset = first - chunk.at;
        mean_.divide_sums(sums_.data(), n);
        if (peer == me_)
            std::copy_n(sums_.data(), n, host_sums(step) + offset);
        else
            encode_strip(first, n, sums_.data(),
                         box(Box::to_owner, step, peer) + encoded_bytes(format_, offset),
                         mean_.divisor());
        std::copy_n(sums_.data() + n, sums_left_, sums_.data());
    }
}

/// Hands the sums out as they have come, encoded: every rank decodes them to where they belong.
Result<void> Exchange::share_on_host(std::size_t step) {
    const std::size_t unit = encoded_bytes(format_, kBlock);
    const std::size_t blocks = cut_.chunk_values_max() / kBlock;  // of a peer
    const std::size_t all = blocks * hosts_;
    std::vector<Chunk> chunks;
    for (std::uint32_t rail = 0; rail < topology_.rails(); ++rail)
        chunks.push_back({rail * all, all});
    const auto take = [&](std::size_t at, std::size_t n, const std::byte* from) {
        const auto rail = static_cast<std::uint32_t>(at / all);
        for (std::size_t done = 0; done < n;) {
            const std::size_t block = (at + done) % all;
            const Chunk chunk = chunk_of(rail, static_cast<std::uint32_t>(block / blocks), step);
            const std::size_t here = std::min(n - done, blocks - block % blocks);
            const std::size_t begin = std::min(block % blocks * kBlock, chunk.count);
            const std::size_t end = std::min(begin + here * kBlock, chunk.count);
            decode_to_place({chunk.at + begin, end - begin}, from + done * unit);
            done += here;
        }
    };
    return host_->share_chunks(chunks, unit, box(Box::sum_of_peer, step, 0), take);
}

// ---- between hosts --------------------------------------------------------------------------

/// This rank's values of what a peer owns, with the errors of the last call; its host's of what it owns itself.
const float* Exchange::own_values(std::uint32_t peer, std::size_t step, std::size_t offset,
                                  std::size_t n) {
    if (host_ != nullptr) return host_sums(step) + offset;
    const float* const own = values_.take(chunk_of(peer, step).at + offset, n, room_.data());
    if (!mean_.divides()) return own;
    if (own != room_.data()) std::copy_n(own, n, room_.data());
    mean_.divide_sums(room_.data(), n);
    return room_.data();
}

/// Encodes values and stores the rounding errors if the caller keeps them.
void Exchange::encode_strip(std::size_t at, std::size_t n, const float* values, std::byte* to,
                            float error_factor) {
    const std::uint64_t seed = seed_of(call_, topology_.rank(), at);
    if (!values_.has_errors(at, n)) return encode(format_, rounding_, seed, values, n, to);
    std::fill_n(errors_.data(), n, 0.0F);
    encode(format_, rounding_, seed, values, n, to, errors_.data());
    if (error_factor != 1)
        for (std::size_t i = 0; i < n; ++i) errors_[i] *= error_factor;
    values_.put_errors(at, n, errors_.data());
}

void Exchange::encode_values(std::uint32_t peer, std::size_t step) {
    std::byte* const to = box(Box::to_owner, step, peer);
    const Chunk chunk = chunk_of(peer, step);
    strips(chunk, [&](std::size_t offset, std::size_t n, std::size_t encoded_at) {
        encode_strip(chunk.at + offset, n, own_values(peer, step, offset, n), to + encoded_at,
                     mean_.divisor());
    });
}

/// Sets sums_ to the sum or mean of all hosts' values at an offset of this rank's chunk, added in the order of
/// hosts.
void Exchange::add_up(std::size_t offset, std::size_t n, std::size_t encoded_at, std::size_t step) {
    const auto encoded = [&](std::uint32_t peer) {
        return box(Box::from_peer, step, peer) + encoded_at;
    };
    // The first two may change places, so that nobody has to copy his own values.
    const std::uint32_t first = me_ == 0 ? 1 : 0;
    decode(format_, encoded(first), n, sums_.data());
    for (std::uint32_t peer = 0; peer < hosts_; ++peer) {
        if (peer == first) continue;
        if (peer == me_)
            reduce_into(sums_.data(), own_values(me_, step, offset, n), sums_.data(), n, DType::f32,
                        Reduce::sum);
        else
            decode_add(format_, encoded(peer), n, sums_.data());
    }
    mean_.finish(sums_.data(), n);
}

void Exchange::encode_sum(std::size_t step) {
    std::byte* const to = own_sum(step);
    const Chunk mine = chunk_of(me_, step);
    strips(mine, [&](std::size_t offset, std::size_t n, std::size_t encoded_at) {
        add_up(offset, n, encoded_at, step);
        encode_strip(mine.at + offset, n, sums_.data(), to + encoded_at, error_of_mean_);
    });
}

/// Puts encoded values where they belong.
void Exchange::decode_to_place(Chunk chunk, const std::byte* from) {
    strips(chunk, [&](std::size_t offset, std::size_t n, std::size_t encoded_at) {
        const std::size_t at = chunk.at + offset;
        if (float* place = values_.place(at, n))
            return decode(format_, from + encoded_at, n, place, past_caches_);
        decode(format_, from + encoded_at, n, room_.data());
        values_.put(at, n, room_.data());
    });
}

/// Sends this host's values of a step to the owners.
Result<void> Exchange::send_values(std::size_t step) {
    std::vector<Send> sends;
    std::vector<Receive> receives;
    const std::size_t mine = encoded_bytes(format_, chunk_of(me_, step).count);
    for (std::uint32_t turn = 1; turn < hosts_; ++turn) {
        // Each rank begins with another peer, so that not all wait for one link.
        const std::uint32_t to = (me_ + turn) % hosts_;
        const std::uint32_t from = (me_ + hosts_ - turn) % hosts_;
        if (host_ == nullptr) encode_values(to, step);
        const std::size_t bytes = encoded_bytes(format_, chunk_of(to, step).count);
        if (bytes != 0) sends.push_back({rank_of(to), box(Box::to_owner, step, to), bytes});
        if (mine != 0) receives.push_back({rank_of(from), box(Box::from_peer, step, from), mine});
    }
    auto pending = group_.start(sends, receives);
    if (!pending) return std::unexpected(pending.error());
    to_owners_[step % kSlots] = std::move(*pending);
    return {};
}

/// Waits for all hosts' values of what this rank owns of a step, then sends their encoded sum.
Result<void> Exchange::send_sum(std::size_t step) {
    std::unique_ptr<Pending>& values = to_owners_[step % kSlots];
    if (auto arrived = values->wait(); !arrived) return arrived;
    values.reset();
    const Chunk mine = chunk_of(me_, step);
    encode_sum(step);
    std::vector<Send> sends;
    std::vector<Receive> receives;
    for (std::uint32_t turn = 1; turn < hosts_; ++turn) {
        const std::uint32_t to = (me_ + turn) % hosts_;
        const std::uint32_t from = (me_ + hosts_ - turn) % hosts_;
        if (mine.count != 0)
            sends.push_back({rank_of(to), own_sum(step), encoded_bytes(format_, mine.count)});
        const std::size_t bytes = encoded_bytes(format_, chunk_of(from, step).count);
        if (bytes != 0)
            receives.push_back({rank_of(from), box(Box::sum_of_peer, step, from), bytes});
    }
    auto pending = group_.start(sends, receives);
    if (!pending) return std::unexpected(pending.error());
    from_owners_[step % kSlots] = std::move(*pending);
    if (host_ == nullptr) decode_to_place(mine, own_sum(step));
    return {};
}

Result<void> Exchange::receive_sums(std::size_t step) {
    std::unique_ptr<Pending>& sums = from_owners_[step % kSlots];
    if (auto arrived = sums->wait(); !arrived) return arrived;
    sums.reset();
    if (host_ != nullptr) return {};  // which all its ranks decode
    for (std::uint32_t peer = 0; peer < hosts_; ++peer)
        if (peer != me_) decode_to_place(chunk_of(peer, step), box(Box::sum_of_peer, step, peer));
    return {};
}

Result<void> Exchange::run() {
    const std::size_t steps = cut_.steps();
    for (std::size_t step = 0; step < steps + 2 * kUnderWay; ++step) {
        const bool begins = step < steps;
        const bool adds = on_rail_ && step >= kUnderWay && step - kUnderWay < steps;
        const bool ends = step >= 2 * kUnderWay;
        if (begins && host_ != nullptr)
            if (auto ok = sum_on_host(step); !ok) return failed_in_memory(ok.error());
        if (begins && on_rail_)
            if (auto ok = send_values(step); !ok) return ok;
        if (adds)
            if (auto ok = send_sum(step - kUnderWay); !ok) return ok;
        if (ends && on_rail_)
            if (auto ok = receive_sums(step - 2 * kUnderWay); !ok) return ok;
        if (ends && host_ != nullptr)
            if (auto ok = share_on_host(step - 2 * kUnderWay); !ok)
                return failed_in_memory(ok.error());
    }
    return {};
}

}  // namespace

Result<void> CompressedAllreduce::run(Group& group, const Topology& topology, HostGroup* host,
                                      std::span<const TypedSegment> segments, Reduce reduce,
                                      const Compression& compression, std::uint64_t call) {
    if (reduce != Reduce::sum && reduce != Reduce::average)
        return fail(Errc::invalid_input, "only sum and average can be compressed, not {}",
                    name_of(reduce));
    if (topology.hosts() > 1) {
        // A tensor's gradients may be a hundred times another's, which would leave those one bit of eight.
        const Segments values(segments, row_of(compression.format).is_scaled()
                                            ? Segments::Blocks::apart
                                            : Segments::Blocks::shared);
        if (host != nullptr) host->begin(call);
        Exchange exchange(group, topology, host, values, reduce, compression, call, sizes_,
                          messages_);
        return exchange.run();
    }
    for (const TypedSegment& segment : segments)
        if (segment.count != 0 && segment.in != segment.out)
            std::memcpy(segment.out, segment.in, segment.count * bytes_of(segment.type));
    return {};
}

Result<void> CompressedAllreduce::run(Group& group, std::uint32_t rank, std::uint32_t size,
                                      std::span<const Segment> segments, Reduce reduce,
                                      const Compression& compression, std::uint64_t call) {
    std::vector<TypedSegment> typed;
    for (const Segment& one : segments) typed.push_back({one.in, one.out, one.count, one.error});
    return run(group, Topology::apart(rank, size), nullptr, typed, reduce, compression, call);
}

Result<void> CompressedAllreduce::run(Group& group, std::uint32_t rank, std::uint32_t size,
                                      const float* in, float* out, std::size_t count, Reduce reduce,
                                      const Compression& compression, std::uint64_t call) {
    const Segment all{in, out, count, compression.error};
    return run(group, rank, size, {&all, 1}, reduce, compression, call);
}

}  // namespace dtrun::collectives
