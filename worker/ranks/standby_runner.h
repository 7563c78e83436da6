#pragma once

#include "base/fd.h"
#include "base/loop/asio.h"
#include "worker/ranks/rank_runner.h"
#include "worker/ranks/standby_plan.h"
#include "worker/ranks/supervisor.h"

#include <sys/types.h>
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::ranks {

/// A Supervisor that keeps processes ready to become ranks, once it has been told to: interpreters of the
/// user's own Python command that have imported what takes long, and wait for the environment of a rank
/// (standby_shim.h). A rank that is started becomes one of them, if there is one that fits; else it is
/// started as usual.
///
/// Thread: the executor's. Lifetime: as of Supervisor.
class StandbyRunner final : public RankRunner {
public:
    /// \param tell  a text for the user
    StandbyRunner(asio::any_io_executor executor, std::unique_ptr<Supervisor> supervisor,
                  std::function<void(std::string)> tell);
    ~StandbyRunner() override;

    void keep_ready(StandbyOptions options, const RankCommand& like) override;
    void start(const Request& request, std::function<void(Start)> started) override;
    void stop_all(int signal, std::chrono::milliseconds grace,
                  std::function<void(int orphans)> gone) override;
    void retire() override;

    std::vector<RunningRank> running_ranks() const override { return supervisor_->running_ranks(); }
    void signal(int signal) override { supervisor_->signal(signal); }
    void renumber(SlotIndex place, std::uint64_t generation, Rank rank) override {
        supervisor_->renumber(place, generation, rank);
    }
    void end(SlotIndex place, int signal) override { supervisor_->end(place, signal); }
    void kill(std::uint64_t generation, Rank rank) override { supervisor_->kill(generation, rank); }
    void clear_places() override { supervisor_->clear_places(); }
    asio::awaitable<void> cleared(SlotIndex place) override { return supervisor_->cleared(place); }
    void signalled(int signal) override { supervisor_->signalled(signal); }
    ResetResult reset_connections(const ConnectionSet& what) override {
        return supervisor_->reset_connections(what);
    }
    void spare(pid_t child) override { supervisor_->spare(child); }

private:
    /// What a process that is kept ready has been started with, and cannot change.
    struct Kind {
        std::string path, directory;
        std::vector<std::string> argv, env;
        bool own_session = false;
        std::uint64_t descriptor_limit = 0;
        bool operator==(const Kind&) const = default;
    };
    struct Waiting {
        explicit Waiting(asio::any_io_executor executor) : agent(std::move(executor)) {}
        RankProcess process;
        asio::posix::stream_descriptor agent;  ///< our end of its socket
        std::array<char, 1024> piece{};
        std::string said{};
        bool parked = false;
    };
    using WaitingMap = std::map<pid_t, std::shared_ptr<Waiting>>;

    static Kind kind_of(const RankCommand& command);
    void expect(const RankCommand& command);
    bool become(const Request& request, std::function<void(Start)>& started);
    void look();
    void start_one();
    Result<void> try_start();
    Result<std::string> shim_directory();
    void keep_listening(pid_t pid, const std::shared_ptr<Waiting>& waiting);
    void ended(pid_t pid, int status);
    void forget(WaitingMap::iterator which);
    void end_all();
    void give_up();

    asio::any_io_executor executor_;
    std::unique_ptr<Supervisor> supervisor_;
    std::function<void(std::string)> tell_;
    StandbyOptions options_;
    std::optional<StandbyPlan> plan_;  ///< unset: none are kept ready
    RankCommand like_;                 ///< what the next rank is expected to be
    WaitingMap waiting_;
    std::string directory_;  ///< of the shim; empty: there is none yet
    const bool can_yield_;   ///< processes can be made less important, and normal again
    Timer timer_;
};

}  // namespace dtrun::ranks
