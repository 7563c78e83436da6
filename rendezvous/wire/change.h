#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

namespace dtrun {

/// Why a generation ends. Numbers of the protocol, and of <dtrun.h>.
enum class ChangeReason : std::uint8_t {
    none = 0,
    joined = 1,     ///< more slots are there
    left = 2,       ///< some are to be given up
    lost = 3,       ///< a rank or a host is lost: nobody can finish this generation
    restarted = 4,  ///< all ranks are ended, and start again
};

/// What is known of the end of a generation.
struct Change {
    std::uint64_t generation = 0;  ///< that runs
    std::uint64_t next = 0;        ///< that is coming; the same if none is
    ChangeReason reason{};
    std::uint64_t deadline_ms = 0;  ///< until which ranks may go on, as Unix time; 0: none is known
    std::uint64_t stop_step = 0;  ///< all ranks leave at this step; 0: whenever they see the change

    bool operator==(const Change&) const = default;
};

/// A page of memory with the Change of a host's generation. Its agent writes it, and the ranks of the host
/// have it in their memory, so that looking at it costs them no system call.
///
/// It lies in zeroed memory that other builds of this program may have mapped: fields keep their places.
///
/// Thread: one writes; any number read, in any process.
class ChangeBoard {
public:
    static constexpr std::size_t kBytes = 4'096;

    void write(const Change& change) {
        const std::uint64_t begun = sequence_.load(std::memory_order_relaxed) + 1;
        sequence_.store(begun, std::memory_order_relaxed);
        generation_.store(change.generation, std::memory_order_release);
        reason_.store(static_cast<std::uint64_t>(change.reason), std::memory_order_release);
        deadline_ms_.store(change.deadline_ms, std::memory_order_release);
        stop_step_.store(change.stop_step, std::memory_order_release);
        next_.store(change.next, std::memory_order_release);
        sequence_.store(begun + 1, std::memory_order_release);
    }

    /// All of it as of one moment. Should the writer have been killed while it wrote, as far as it came.
    Change read() const {
        Change change;
        for (int tries = 1; tries <= kTriesMax; ++tries) {
            if (tries % kTriesAtOnce == 0)
                std::this_thread::yield();  // the writer lost its processor
            const std::uint64_t before = sequence_.load(std::memory_order_acquire);
            change.generation = generation_.load(std::memory_order_acquire);
            change.next = next_.load(std::memory_order_acquire);
            change.reason = static_cast<ChangeReason>(reason_.load(std::memory_order_acquire));
            change.deadline_ms = deadline_ms_.load(std::memory_order_acquire);
            change.stop_step = stop_step_.load(std::memory_order_acquire);
            if (before % 2 == 0 && sequence_.load(std::memory_order_relaxed) == before) break;
        }
        return change;
    }

    /// The generation that is coming, or runs: one load.
    std::uint64_t next() const { return next_.load(std::memory_order_acquire); }

private:
    static constexpr int kTriesAtOnce = 1'000, kTriesMax = 10'000'000;

    std::atomic<std::uint64_t> sequence_{0};  ///< odd while it is written
    std::atomic<std::uint64_t> generation_{0};
    std::atomic<std::uint64_t> next_{0};
    std::atomic<std::uint64_t> reason_{0};
    std::atomic<std::uint64_t> deadline_ms_{0};
    std::atomic<std::uint64_t> stop_step_{0};
};
static_assert(sizeof(ChangeBoard) <= ChangeBoard::kBytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace dtrun
