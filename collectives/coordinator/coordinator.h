#pragma once

#include "collectives/coordinator/executor.h"
#include "collectives/coordinator/fusion.h"

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

namespace dtrun::collectives {

struct CoordinatorOptions {
    std::size_t fused_bytes = 64u << 20;  ///< the least of all ranks' counts
    std::chrono::microseconds delay{0};   ///< before a cycle, so that more is known in it
    StallTimes stall;                     ///< likewise the least of all ranks'
    std::vector<std::uint32_t> names;     ///< by rank: its rank in the job; empty: its own number
    StallReports::Tell tell_stall;        ///< empty: nobody is told but the user
};

/// The implementation of dtrun_coordinator. Its thread goes through cycles: ranks tell each other
/// in one small allgather what is new, and then do what all of them have.
///
/// A rank with nothing pending enters no cycle, and those that have wait for it in theirs. A cycle
/// in which nobody had anything new is followed by a short sleep, which what is submitted ends. Now
/// and then ranks enter one that have nothing, so that all know who waits for whom: what is told of
/// stalled operations, and when they are given up, is decided by all alike, by rank 0's clock.
///
/// Thread: all functions from any; `comm` is used by the coordinator's thread alone.
class Coordinator {
public:
    using Handle = std::uint64_t;

    Coordinator(OwnedComm comm, CoordinatorOptions options);
    ~Coordinator();  ///< see dtrun_coordinator_free()
    Coordinator(const Coordinator&) = delete;
    Coordinator& operator=(const Coordinator&) = delete;

    std::uint32_t size() const { return size_; }
    Result<Handle> submit(Task task);
    bool poll(Handle handle) const;
    /// \return nothing: the time has passed
    std::optional<Result<Outcome>> wait(Handle handle, std::chrono::milliseconds timeout);

private:
    struct Waiting {
        Task task;
        Handle handle = 0;
    };

    void run();
    /// Waits until there is a reason for a cycle. \return false: the coordinator ends
    bool wait_for_work(std::chrono::microseconds pause);
    struct Messages {
        std::vector<std::string> by_rank;
        std::chrono::milliseconds now{0};  ///< at rank 0
    };

    Result<void> cycle(std::chrono::microseconds& pause);
    Result<void> agree_on_options();
    std::string take_fresh();
    Result<Messages> exchange(const std::string& own);
    Result<void> perform(std::vector<Response> responses);
    Result<void> look_for_stalls(std::chrono::milliseconds now);
    SilenceCheck::Finding silence();
    void finish(const std::string& name, Result<Outcome> result);
    void fail_all(const Error& error);

    OwnedComm comm_;
    const std::chrono::microseconds delay_;
    std::size_t fused_bytes_;      ///< of the thread alone, as soon as it runs
    StallTimes stall_;             ///< likewise
    bool options_agreed_ = false;  ///< likewise
    const std::uint32_t rank_;
    const std::uint32_t size_;
    const bool enters_idle_;  ///< cycles in which it has nothing
    const std::vector<std::uint32_t> names_;
    Negotiator negotiator_;                  ///< of the thread alone
    Executor executor_;                      ///< likewise
    std::optional<StallCheck> stall_check_;  ///< likewise, once options are agreed on
    std::chrono::milliseconds next_look_{0};

    mutable std::mutex mutex_;
    std::condition_variable work_;
    std::condition_variable done_;
    std::unordered_map<std::string, Waiting> waiting_;  ///< by name; tasks do not move in it
    std::vector<Waiting*> fresh_;                       ///< not announced yet
    std::unordered_map<Handle, std::optional<Result<Outcome>>> results_;
    Handle next_handle_ = 1;
    bool stopping_ = false;
    SilenceCheck silence_;  ///< of a cycle in which something is pending
    bool is_idle_ = false;  ///< the thread is in a cycle that it has entered with nothing pending
    std::optional<Error> broken_;
    StallReports reports_;
    std::thread thread_;
};

}  // namespace dtrun::collectives
