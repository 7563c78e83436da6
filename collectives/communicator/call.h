#pragma once

#include "collectives/types.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace dtrun::collectives {

/// One direction of a message exchange between two ranks.
struct Message {
    static constexpr std::int64_t kNone = -1;
    std::int64_t peer = kNone;
    std::size_t count = 0;     ///< of elements
    std::uint64_t number = 0;  ///< counts messages to this peer in this direction; set by Watchdog
};

/// An operation that all ranks of a group call.
struct Call {
    const char* operation = "";
    std::size_t count = 0;
    DType type = DType::f32;
    int reduce = -1;          ///< a Reduce, or -1
    std::int64_t root = -1;   ///< -1: none
    int format = 0;           ///< of compression; 0: none
    std::uint64_t parts = 0;  ///< a digest of the counts, where there are several; 0: none
    bool collective = true;   ///< false: the messages below, between two ranks
    Message sends{}, receives{};
};

/// "allreduce of 12 f32 (sum)"
std::string describe(const Call& call);

/// For Call::parts.
std::uint64_t digest(std::span<const std::size_t> counts);

/// A number that is the same on all ranks whose call with this number is the same.
std::uint64_t digest(const Call& call, std::uint64_t number);

/// A call that one thread writes and another one reads, which sees by a version whether it was written meanwhile.
class SharedCall {
public:
    void store(const Call& call);
    Call load() const;

private:
    static constexpr std::size_t kWords = (sizeof(Call) + 7) / 8;
    std::array<std::atomic<std::uint64_t>, kWords> words_{};
};

}  // namespace dtrun::collectives
