#pragma once

#include "collectives/group.h"
#include "collectives/host/copy.h"
#include "collectives/host/layout.h"
#include "collectives/host/machine_parts.h"
#include "collectives/host/shared_memory.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace dtrun::collectives {

/// The ranks of one host, which exchange data in memory that they share. Ranks are numbered by their place.
///
/// Each rank has two slots in the memory, which it alone writes. Operations are steps: in each, ranks fill
/// their slot, post its number, and read what others have posted. The steps use the two slots in turn, so a
/// rank that writes a step's slot has to know that all have finished the step before the last one; where
/// every rank waits for every other one, that is known without asking.
///
/// Where the ranks are bound to parts of the machine, as to its NUMA nodes, they have two levels for what is large:
/// the ranks of a part, and those with the same index in each part. Then an array crosses between parts once in
/// each direction, and not once for each rank.
///
/// Whoever waits looks in a loop first, then lets others have the processor, and then sleeps.
///
/// Thread: one at a time; abort() from any.
class HostGroup {
public:
    /// All ranks of the host call it. \param spec  of the whole group
    /// \param locality  where this rank is bound to
    /// Errc: not_found (they cannot share memory: why), timed_out, closed
    static Result<std::unique_ptr<HostGroup>> join(const GroupSpec& spec,
                                                   Locality locality = own_locality());
    ~HostGroup();
    HostGroup(const HostGroup&) = delete;
    HostGroup& operator=(const HostGroup&) = delete;

    std::uint32_t place() const { return place_; }
    std::uint32_t places() const { return places_; }
    /// The parts of the machine that it has levels for, or nullptr.
    const MachineParts* machine_parts() const { return levels_ ? &levels_->parts : nullptr; }
    /// What one step can move.
    std::size_t slot_bytes() const { return slot_bytes_; }

    /// An operation begins. Ranks that are in different ones wait, and nothing is mixed up.
    /// \param call  a number that differs for operations that must not be mixed up
    void begin(std::uint64_t call) {
        // All calls until now are in it: also those in which nobody waits for whoever was in another one, as when
        // each rank broadcasts what it has itself, are found out by the next one.
        call_ = (call_ ^ static_cast<std::uint32_t>(call ^ (call >> 32))) * 0x9e3779b1U;
        in_levels([call](HostGroup& level) { level.begin(call); });
    }

    // The same as those of Group; average divides by `places`. Errc: closed, cancelled
    Result<void> allreduce(const void* in, void* out, std::size_t count, DType type, Reduce reduce);
    Result<void> allreduce_many(std::span<const Array> arrays, DType type, Reduce reduce);
    Result<void> reduce(const void* in, void* out, std::size_t count, DType type, Reduce reduce,
                        std::uint32_t root);
    Result<void> reduce_scatter(const void* in, void* out, std::size_t count, DType type,
                                Reduce reduce);
    Result<void> broadcast(void* data, std::size_t bytes, std::uint32_t root);
    Result<void> allgatherv(const void* in, void* out, std::span<const std::size_t> bytes);
    Result<void> gather(const void* in, void* out, std::size_t bytes, std::uint32_t root);
    Result<void> scatter(const void* in, void* out, std::size_t bytes, std::uint32_t root);
    Result<void> alltoall(const void* in, void* out, std::size_t bytes);
    Result<void> barrier();

    /// Writes this rank's elements [at, at + n) to `to`.
    using Fill = std::function<void(std::size_t at, std::size_t n, std::byte* to)>;
    /// Is given elements [at, at + n), for as long as the call takes.
    using Take = std::function<void(std::size_t at, std::size_t n, const std::byte* from)>;
    /// Writes the sum of all ranks' elements [at, at + n) to `to`.
    using Sum = std::function<void(std::size_t at, std::size_t n, std::byte* to)>;
    /// May have the sums of [at, at + n) by `sum`, for as long as the call takes: each element once, from the first on.
    using TakeSums = std::function<void(std::size_t at, std::size_t n, const Sum& sum)>;

    /// Adds up all ranks' elements of each chunk, at the rank of the chunk's place, which goes on with a few of them
    /// at a time while they are in its first cache.
    /// \param chunks  of the first places, at most one for each; places beyond those only give
    /// \param take    is told of this rank's chunk, one part behind the other
    Result<void> sum_chunks(std::span<const Chunk> chunks, DType type, Reduce reduce,
                            const Fill& fill, const TakeSums& take);
    /// The same, all of whose sums go to one place. \param sums  room for this rank's chunk
    Result<void> sum_chunks(std::span<const Chunk> chunks, DType type, Reduce reduce,
                            const Fill& fill, void* sums);
    /// Gives each chunk, which the rank of its place has, to all others.
    /// \param unit  bytes of an element, which is not cut
    /// \param own   this rank's chunk
    Result<void> share_chunks(std::span<const Chunk> chunks, std::size_t unit, const void* own,
                              const Take& take);

    /// This process goes on for the one that joined, which it is a fork of; for tests.
    void take_over();
    /// Ends what is under way on all ranks of the host.
    void abort() noexcept { end_for_all(); }
    /// The place of the rank because of which an operation failed.
    std::optional<std::uint32_t> lost() const { return lost_; }

private:
    HostGroup(SharedMemory memory, std::uint32_t place, std::uint32_t places,
              std::size_t slot_bytes);

    /// The groups of the two levels, in which this rank is a member, too.
    struct Hierarchy {
        MachineParts parts;
        std::uint32_t part, index;          ///< of this rank
        std::unique_ptr<HostGroup> inside;  ///< its part; places are indices
        std::unique_ptr<HostGroup> across;  ///< ranks with its index; places are parts
        std::vector<std::byte> of_index{};  ///< what the ranks with its index have together
        std::vector<std::byte> own{};       ///< what it adds up itself

        std::byte* room(std::size_t bytes);
    };

    /// All sharers call it. Until its deadline is taken away, it waits for those who have not come yet.
    static Result<std::unique_ptr<HostGroup>> meet(const GroupSpec& spec, const Sharers& sharers);

    RankPage& page(std::uint32_t place) const;
    std::byte* slot_of(std::uint32_t place, std::uint64_t step) const;
    HostPage& host() const { return *reinterpret_cast<HostPage*>(memory_.data()); }

    // A step: claim(), fill the slot, post(), await(), read, and then one of the two ends.
    Result<void> claim();
    void post();
    Result<void> await(std::uint32_t place);
    Result<void> await_others();
    void finish_all() { known_ = step_ - 1; }  ///< every rank has waited for every other one
    void finish();                             ///< some have not
    std::byte* own_slot() const { return slot_of(place_, step_); }
    const std::byte* slot(std::uint32_t place) const { return slot_of(place, step_); }
    std::uint64_t word() const { return step_ << 32 | call_; }
    RankPage& own() const { return page(place_); }

    template <class Ready>
    Result<void> wait(std::uint32_t place, const Ready& ready);
    std::optional<Error> look_around(std::uint32_t place);
    bool has_gone(std::uint32_t place) const;
    Error give_up_for(std::uint32_t place);
    void tell(RankPage& page);
    void end_for_all() noexcept;
    void ring(RankPage& page) noexcept;
    void decide_patience();
    void tell_who();

    Result<void> reduce_tiny(const void* in, void* out, std::size_t count, DType type,
                             Reduce reduce, std::optional<std::uint32_t> root);
    Result<void> reduce_small(const void* in, void* out, std::size_t count, DType type,
                              Reduce reduce, std::optional<std::uint32_t> root);
    template <class Runs>
    Result<void> reduce_large(const Runs& runs, std::size_t count, DType type, Reduce reduce,
                              std::optional<std::uint32_t> root, const ResultCopy& copy);
    Result<void> reduce_to(const void* in, void* out, std::size_t count, DType type, Reduce reduce,
                           std::optional<std::uint32_t> root);

    // hierarchy.cpp
    Result<void> join_levels(const GroupSpec& spec, Locality locality);
    template <class Body>
    void in_levels(const Body& body) {
        if (levels_ == nullptr) return;
        body(*levels_->inside);
        body(*levels_->across);
    }
    bool by_levels(std::size_t bytes) const;
    bool by_levels(std::span<const Chunk> chunks, std::size_t unit) const;
    std::size_t level_step(std::size_t element, std::size_t chunks) const;
    Result<void> of_inside(Result<void> done);
    Result<void> of_across(Result<void> done);
    Result<void> allreduce_by_levels(std::size_t count, DType type, Reduce reduce, const Fill& fill,
                                     const Take& take);
    Result<void> sum_by_levels(std::span<const Chunk> chunks, DType type, Reduce reduce,
                               const Fill& fill, const TakeSums& take);
    Result<void> share_by_levels(std::span<const Chunk> chunks, std::size_t unit, const void* own,
                                 const Take& take);

    SharedMemory memory_;
    const std::uint32_t place_;
    const std::uint32_t places_;
    const std::size_t slot_bytes_;
    std::uint32_t call_ = 0;
    std::uint64_t step_ = 1;
    std::uint64_t known_ = 0;  ///< all are known to have finished this step
    int loops_ = 0;            ///< looks before the processor is given to others
    std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::time_point::max();
    std::function<bool()> interrupted_;
    std::optional<std::uint32_t> lost_;
    std::atomic<bool> aborted_ = false;
    std::unique_ptr<Hierarchy> levels_;  ///< nullptr: it has none
};

}  // namespace dtrun::collectives
