#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace dtrun::collectives {

inline constexpr std::size_t kCacheLine = 64;
inline constexpr std::size_t kPageBytes = 4'096;

/// The first page of a host's shared memory.
struct alignas(kPageBytes) HostPage {
    /// By which the memory is known to be the right one.
    std::array<char, 32> nonce;
    /// The place of whoever ended the group, or was lost, plus 1; 0: it goes on.
    std::atomic<std::uint32_t> ended;
};

/// What a rank says to the others of its host: that it has come to a step, and data if they are few, so that
/// one cache line has all of it.
struct alignas(kCacheLine) Line {
    static constexpr std::size_t kBytes = kCacheLine - sizeof(std::uint64_t);
    std::atomic<std::uint64_t> word;  ///< the lower half of the step's number, and the call's
    std::array<std::byte, kBytes> data;
};

/// A rank's own pages, of which it is the only writer. Its slots follow.
struct alignas(kPageBytes) RankPage {
    std::array<Line, 2> posted;  ///< by the parity of the step
    /// The last step of which this rank needs nothing any more. It is behind where all know better.
    alignas(kCacheLine) std::atomic<std::uint64_t> finished;
    /// Ranks that sleep until this one says something, and what they sleep on.
    alignas(kCacheLine) std::atomic<std::uint32_t> sleepers;
    std::atomic<std::uint32_t> bell;
    alignas(kCacheLine) std::atomic<std::int32_t> pid;
    std::atomic<std::uint64_t> started;  ///< when the process did, in the kernel's ticks
    std::atomic<std::uint32_t> left;     ///< 1: it will say nothing more
};

}  // namespace dtrun::collectives
