#include "collectives/backends/tcp/group.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

namespace dtrun::collectives::over_tcp {
namespace {

/// Up to this size in all, few steps matter more than few bytes.
constexpr std::size_t kBruckBytesMax = 64UL << 10;
/// Blocks up to this size are sent along with others', to ranks that pass them on.
constexpr std::size_t kBruckBlockMax = 1UL << 10;

}  // namespace

Result<void> TcpGroup::allgather(const Operation& what) {
    const std::vector<std::size_t> bytes = parts_of(what, size_);
    const std::size_t all = std::accumulate(bytes.begin(), bytes.end(), std::size_t{0});
    auto* const out = static_cast<std::byte*>(what.out);
    if (size_ > 2 && all <= kBruckBytesMax) return allgather_bruck(what.in, out, bytes);
    return allgather_ring(what.in, out, bytes);
}

/// Blocks go round; each is passed on as it comes.
Result<void> TcpGroup::allgather_ring(const void* in, std::byte* out,
                                      std::span<const std::size_t> bytes) {
    std::vector<std::size_t> offsets(size_, 0);
    std::partial_sum(bytes.begin(), bytes.end() - 1, offsets.begin() + 1);
    std::vector<Chunk> chunks;  // of this rank's block, and of those that come
    std::size_t own = 0, passed_on = 0;
    for (std::uint32_t step = 0; step < size_; ++step) {
        const std::uint32_t block = at(-std::int64_t{step});
        for (std::size_t at = 0; at < bytes[block]; at += chunk_bytes_)
            chunks.push_back({offsets[block] + at, std::min(chunk_bytes_, bytes[block] - at)});
        if (step == 0) own = chunks.size();
        if (step + 1 < size_) passed_on = chunks.size();
    }
    if (bytes[rank_] > 0 && out + offsets[rank_] != in)
        std::memcpy(out + offsets[rank_], in, bytes[rank_]);
    if (size_ == 1) return {};
    const std::size_t all = offsets.back() + bytes.back();
    SendStream outgoing(*streams_, at(1), tag(all), out);
    RecvStream incoming(*streams_, at(-1), tag(all), out, all);
    return flow(
        outgoing, incoming, {.sends = passed_on, .receives = chunks.size() - own, .lead = own},
        [&](std::size_t number) {
            const auto [offset, length] = chunks[number];
            return outgoing.send(offset, length, offset);
        },
        [&](std::size_t, IfLate if_late) { return incoming.receive(if_late); });
}

/// In step k, everybody hands on all it has (Bruck et al., "Efficient algorithms for all-to-all
/// communications in multiport message-passing systems", 1997).
Result<void> TcpGroup::allgather_bruck(const void* in, std::byte* out,
                                       std::span<const std::size_t> bytes) {
    std::vector<std::size_t> offsets(size_ + 1, 0);  // of this rank's block, the next one's, ...
    for (std::uint32_t i = 0; i < size_; ++i) offsets[i + 1] = offsets[i] + bytes[at(i)];
    std::byte* blocks = scratch(offsets.back());
    if (bytes[rank_] > 0) std::memcpy(blocks, in, bytes[rank_]);
    for (std::uint32_t distance = 1; distance < size_; distance *= 2) {
        const std::uint32_t count = std::min(distance, size_ - distance);
        const auto done =
            exchange(at(-std::int64_t{distance}), blocks, offsets[count], at(distance),
                     blocks + offsets[distance], offsets[distance + count] - offsets[distance]);
        if (!done) return done;
    }
    const std::size_t wrapped = size_ - rank_;  // blocks[wrapped] is that of rank 0
    const std::size_t upper = offsets[wrapped];
    const std::size_t lower = offsets.back() - upper;
    if (lower > 0) std::memcpy(out, blocks + upper, lower);
    if (upper > 0) std::memcpy(out + lower, blocks, upper);
    return {};
}

Result<void> TcpGroup::alltoall(const Operation& what) {
    const std::size_t bytes = what.bytes();
    if (bytes == 0) return {};
    const auto* from = static_cast<const std::byte*>(what.in);
    auto* to = static_cast<std::byte*>(what.out);
    return size_ > 4 && bytes <= kBruckBlockMax ? alltoall_bruck(from, to, bytes)
                                                : alltoall_pairs(from, to, bytes);
}

Result<void> TcpGroup::alltoall_pairs(const std::byte* in, std::byte* out, std::size_t bytes) {
    std::memcpy(out + rank_ * bytes, in + rank_ * bytes, bytes);
    if (size_ == 1) return {};
    std::vector<std::uint32_t> peers;
    for (std::uint32_t step = 1; step < size_; ++step) peers.push_back(at(step));
    if (auto connected = streams_->connect(peers); !connected) return connected;
    for (std::uint32_t step = 1; step < size_; ++step) {
        const std::uint32_t to = at(step);
        const std::uint32_t from = at(-std::int64_t{step});
        const auto done = exchange(to, in + to * bytes, bytes, from, out + from * bytes, bytes);
        if (!done) return done;
    }
    return {};
}

/// A block for the rank at distance d travels along the ones of d's binary digits.
Result<void> TcpGroup::alltoall_bruck(const std::byte* in, std::byte* out, std::size_t bytes) {
    std::byte* blocks = scratch(3 * size_ * bytes);
    std::byte* sent = blocks + size_ * bytes;
    std::byte* come = sent + size_ * bytes;
    for (std::uint32_t i = 0; i < size_; ++i)
        std::memcpy(blocks + i * bytes, in + at(i) * bytes, bytes);
    for (std::uint32_t distance = 1; distance < size_; distance *= 2) {
        std::size_t count = 0;
        for (std::uint32_t i = 0; i < size_; ++i)
            if (i & distance) std::memcpy(sent + count++ * bytes, blocks + i * bytes, bytes);
        const auto done = exchange(at(distance), sent, count * bytes, at(-std::int64_t{distance}),
                                   come, count * bytes);
        if (!done) return done;
        count = 0;
        for (std::uint32_t i = 0; i < size_; ++i)
            if (i & distance) std::memcpy(blocks + i * bytes, come + count++ * bytes, bytes);
    }
    for (std::uint32_t i = 0; i < size_; ++i)
        std::memcpy(out + at(-std::int64_t{i}) * bytes, blocks + i * bytes, bytes);
    return {};
}

/// In step k, everybody hears of 2^k ranks more.
Result<void> TcpGroup::barrier(const Operation&) {
    for (std::uint32_t distance = 1; distance < size_; distance *= 2) {
        const char here = 0;
        char there = 0;
        const auto done = exchange(at(distance), &here, 1, at(-std::int64_t{distance}), &there, 1);
        if (!done) return done;
    }
    return {};
}

}  // namespace dtrun::collectives::over_tcp
