#pragma once

#include "collectives/operation.h"
#include "collectives/types.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
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

/// What an operation is called in messages, with a number by which ranks tell it from others, made by the compiler.
struct CallName {
    const char* text;
    std::uint64_t number = 0;

    consteval CallName(const char* name) : text(name) {
        for (; *name != 0; ++name)
            number = (number + static_cast<unsigned char>(*name)) * 0x100000001b3;
    }
};

inline constexpr CallName kCallNames[] = {
#define DTRUN_OPERATION(kind, number, words, ...) words,
#include "collectives/operations.def"
#undef DTRUN_OPERATION
};

constexpr const CallName& call_name_of(Operation::Kind kind) {
    return kCallNames[static_cast<std::size_t>(kind) - 1];
}

/// An operation that all ranks of a group call.
struct Call {
    CallName operation = "";
    std::size_t count = 0;
    DType type = DType::f32;
    int reduce = -1;          ///< a Reduce, or -1
    std::int64_t root = -1;   ///< -1: none
    int format = 0;           ///< of compression; 0: none
    std::uint64_t parts = 0;  ///< a digest of the counts, where there are several; 0: none
    bool on_trial = false;    ///< whether it is compressed is decided by a trial of all ranks
    bool collective = true;   ///< false: the messages below, between two ranks
    Message sends{}, receives{};
};

/// "allreduce of 12 f32 (sum)"
std::string describe(const Call& call);

/// For Call::parts.
std::uint64_t digest(std::span<const std::size_t> counts);

/// A number that is the same on all ranks whose call with this number is the same.
inline std::uint64_t digest(const Call& call, std::uint64_t number) {
    const auto small = static_cast<std::uint64_t>(call.on_trial) << 63 |
                       static_cast<std::uint64_t>(call.type) << 56 |
                       (static_cast<std::uint64_t>(call.reduce + 1) & 0xff) << 48 |
                       (static_cast<std::uint64_t>(call.format) & 0xff) << 40 |
                       (static_cast<std::uint64_t>(call.root + 1) & 0xff'ffff'ffff);
    // Four independent products instead of one chain of them.
    const std::uint64_t hash = number * 0x9e3779b97f4a7c15 ^
                               call.operation.number * 0xc2b2ae3d27d4eb4f ^
                               small * 0x165667b19e3779f9 ^ call.count * 0xff51afd7ed558ccd;
    return mixed(hash + call.parts);
}

/// A call that one thread writes and another one reads, which sees by a version whether it was written meanwhile.
class SharedCall {
public:
    void store(const Call& call) {
        for (std::size_t i = 0; i < kWords; ++i) {
            std::uint64_t word = 0;
            std::memcpy(&word, reinterpret_cast<const std::byte*>(&call) + i * sizeof word,
                        sizeof word);
            words_[i].store(word, std::memory_order_relaxed);
        }
    }
    Call load() const;

private:
    static_assert(sizeof(Call) % sizeof(std::uint64_t) == 0, "it is copied word by word");
    static constexpr std::size_t kWords = sizeof(Call) / sizeof(std::uint64_t);
    std::array<std::atomic<std::uint64_t>, kWords> words_{};
};

}  // namespace dtrun::collectives
