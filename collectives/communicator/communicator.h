#pragma once

#include "base/result.h"
#include "collectives/algorithms/adasum.h"
#include "collectives/algorithms/compressed.h"
#include "collectives/algorithms/stand_ins.h"
#include "collectives/backends/choose.h"
#include "collectives/communicator/compression_trial.h"
#include "collectives/communicator/watchdog.h"
#include "collectives/communicator/worker_store.h"
#include "collectives/group.h"
#include "collectives/host/host_topology.h"
#include "collectives/work_queue.h"

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

namespace dtrun::collectives {

struct CommunicatorOptions {
    std::string backend = "auto";
    bool device = false;  ///< arrays are in memory of the GPU
    int gpu = -1;         ///< which one; -1: as <dtrun_collectives.h> says
    std::chrono::milliseconds timeout{300'000};
    std::chrono::milliseconds operation_timeout{0};  ///< 0: none
    /// After which ranks that do not come are told; 0: never; nothing: as the environment says.
    std::optional<std::chrono::milliseconds> stall_limit{};
    std::vector<std::string> interfaces;  ///< or an address of this host
    std::function<bool()> interrupted{};  ///< see GroupSpec
};

/// Some ranks of a job that make a communicator of their own.
struct NamedRanks {
    std::vector<std::uint32_t> ranks;  ///< of the job, by rank of the communicator; empty: all
    std::string name;                  ///< no other communicator of the job ever has it
};

/// The implementation of dtrun_comm: a group of ranks over one backend, with what backends lack: a
/// watchdog, a queue of asynchronous operations, fusion, compression, Adasum.
///
/// Thread: operations are called by one thread at a time, which work() sees to; abort() by any.
class Communicator {
public:
    /// Errc: invalid_input (`named` are no different ranks of the job, with this one)
    static Result<std::unique_ptr<Communicator>> create(dtrun_worker* worker,
                                                        CommunicatorOptions options,
                                                        NamedRanks named = {});
    /// \return nullptr with a negative colour
    Result<std::unique_ptr<Communicator>> split(std::int32_t colour, std::int32_t key);
    Result<std::unique_ptr<Communicator>> split_by_host();
    ~Communicator();
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    std::uint32_t rank() const { return rank_; }
    std::uint32_t size() const { return static_cast<std::uint32_t>(ranks_.size()); }
    const std::string& backend() const { return choice_.backend; }
    const std::string& why() const { return choice_.why; }
    /// Whether operations ask the interpreter of the thread that waits; other libraries cannot.
    bool is_interruptible() const;
    const std::string& facts() const { return facts_; }

    /// The queue that orders all operations.
    WorkQueue& work() { return work_; }
    bool on_device() const { return group_->on_device(); }                     ///< see Group
    std::shared_ptr<void> mark(void* stream) { return group_->mark(stream); }  ///< see Group
    void follow(std::shared_ptr<void> mark) { group_->follow(std::move(mark)); }

    /// \param what         as the caller has it, with elements of his type
    /// \param compression  nullptr: none; for allreduce, reduce-scatter and allgather
    Result<void> run(const Operation& what, const Compression* compression = nullptr);
    Result<void> allreduce_many(std::span<const Array> arrays, DType type, Reduce reduce,
                                const Compression* compression);
    Result<void> send(const void* data, std::size_t count, DType type, std::uint32_t to);
    Result<void> receive(void* data, std::size_t count, DType type, std::uint32_t from);
    Result<void> sendrecv(const void* out, std::size_t out_count, std::uint32_t to, void* in,
                          std::size_t in_count, std::uint32_t from, DType type);

    void abort(const std::string& why) { watchdog_->abort(why); }
    /// 0: none. From any thread; also for an operation that is under way.
    void set_operation_timeout(std::chrono::milliseconds timeout);
    /// Somebody else tells of ranks that do not come.
    void leave_stalls() { watchdog_->set_stall_limit({}); }
    /// Says to the launcher that this rank has waited so long for something; nothing: not any more. From any thread.
    void tell_stall(const std::string& what, std::optional<std::chrono::milliseconds> waited);

private:
    struct Rank {
        std::uint32_t world;  ///< rank in the job
        std::string host;
        std::string address;
    };
    /// What a communicator is made of before its ranks connect.
    struct Plan {
        CommunicatorOptions options;
        std::string prefix;
        Choice choice;
        std::vector<Rank> ranks;
        std::uint32_t rank;
    };
    Communicator(SharedWorker worker, Plan plan);
    /// \param given_up  ends the wait for the other ranks; may be nullptr
    static Result<std::unique_ptr<Communicator>> connect(
        SharedWorker worker, Plan plan, std::shared_ptr<const std::atomic<bool>> given_up);
    Result<void> join(const GroupSpec& spec);
    /// Makes a communicator of `chosen` ranks of this one, this rank among them.
    Result<std::unique_ptr<Communicator>> connect_part(std::span<const std::uint32_t> chosen,
                                                       std::string prefix);

    template <class Body>
    Result<void> perform(const Call& call, Body body);
    Result<void> check_root(std::uint32_t root) const;
    Result<void> check_compression(DType type, Reduce reduce, const Compression* compression) const;
    Result<void> check_on_host(const Compression* compression) const;
    Result<void> check_values(DType type, const Compression* compression) const;
    Result<void> check(const Operation& what, const Compression* compression) const;
    const StandIn* with_room(DType type, Reduce reduce) const;
    Result<void> carry_out(const Operation& what, const Compression* compression,
                           std::uint64_t call);
    Result<void> move_parts(const Operation& what);
    Result<void> allreduce(const Operation& what, const Compression* compression,
                           std::uint64_t call);
    Result<void> reduce_one(const Operation& what);
    std::size_t fused(std::span<const Array> arrays, DType type, Reduce reduce) const;
    Result<void> reduce_fused(std::span<const Array> arrays, DType type, Reduce reduce);
    Result<void> reduce_compressed(std::span<const TypedSegment> segments, Reduce reduce,
                                   const Compression& compression, std::uint64_t call);
    /// Whether this many values in all go between hosts and gain if they are encoded.
    bool gains(std::size_t count) const;
    /// What is compressed that may be.
    enum class Compresses {
        what_gains,   ///< of what leaves a host
        what_leaves,  ///< a host, and is enough
        always,
    };
    static Compresses compresses_from_environment();
    /// How the values of a call go that may be compressed.
    struct Way {
        const Compression* compression = nullptr;  ///< nullptr: in full
        CompressionTrial* trial = nullptr;         ///< that the call is a part of, or nullptr
        /// Though they might have been compressed, since that takes longer, or to see whether it does.
        bool goes_in_full() const { return trial != nullptr && compression == nullptr; }
    };
    /// \param count  values in all
    Way way_of(CallName operation, const Compression* compression, DType type, std::size_t count);
    template <class Body>
    Result<void> in_trial(CompressionTrial* trial, std::size_t count, Body body);
    const Compression* for_halves(std::size_t count, DType type, Reduce reduce) const;
    /// Between what values are compressed: hosts, or ranks where somebody insists on it.
    struct Hierarchy {
        const Topology& topology;
        HostGroup* host;
    };
    Hierarchy levels() const;
    Result<void> message(const Call& call, std::span<const Send> sends,
                         std::span<const Receive> receives);

    SharedWorker worker_;
    WorkerStore store_;
    CommunicatorOptions options_;
    std::string prefix_;
    Choice choice_;
    std::vector<Rank> ranks_;
    std::uint32_t rank_;
    std::string facts_;
    HostTopology host_topology_;
    Topology apart_;  ///< every rank by itself
    const Compresses compresses_;
    /// By operation, format, type and the number of values as a power of two.
    std::map<std::tuple<std::uint64_t, Format, DType, int>, CompressionTrial> trials_;
    std::unique_ptr<Group> group_;
    CompressedAllreduce compressed_;
    std::vector<std::byte> fusion_;
    std::uint32_t splits_ = 0;
    std::shared_ptr<std::atomic<bool>> ended_ = std::make_shared<std::atomic<bool>>(false);
    std::optional<Error> broken_;  ///< why nothing can be done any more
    std::unique_ptr<Watchdog> watchdog_;
    std::optional<LossHook> loss_hook_;  ///< tells watchdog_
    WorkQueue work_;
};

template <class Body>
Result<void> Communicator::perform(const Call& call, Body body) {
    if (broken_) return fail(broken_->code, "the communicator is broken: {}", broken_->message);
    const std::uint64_t number = watchdog_->begin(call);
    group_->expect(call.collective ? number : 0);
    Result<void> done;
    try {
        done = body(number);
    } catch (const std::exception& error) {  // out of memory; the others are in the middle of it
        group_->abort();
        done = fail(Errc::internal, "{}", error.what());
    }
    watchdog_->end();
    if (done) return done;
    if (done.error().code == Errc::invalid_input) {
        watchdog_->withdraw(call);
        return done;
    }
    // The backend has seen that ranks do not do the same.
    if (done.error().code == Errc::denied) watchdog_->disagreed(done.error().message);
    broken_ = watchdog_->explain(done.error(), group_->lost());
    return std::unexpected(*broken_);
}

}  // namespace dtrun::collectives
