#pragma once

#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/numbered.h"
#include "rendezvous/links/link.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/rank_messages.h"
#include "worker/ranks/rank_runner.h"

#include <chrono>
#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace dtrun::loopback {

/// What ranks of simulations are warned by.
inline constexpr int kWarnSignal = SIGUSR2;

/// What a rank of a simulation does.
struct RankScript {
    std::chrono::milliseconds life{50};     ///< until it ends by itself
    std::chrono::milliseconds until{0};     ///< since the job's start: it does not do so before
    int code = 0;                           ///< its exit status then
    int signal = 0;                         ///< that ends it instead; 0: none
    bool ignores_signals = false;           ///< only KILL ends it sooner
    std::chrono::milliseconds reaction{5};  ///< from a signal to its end
    std::size_t output_bytes = 40;          ///< that it writes at once, in lines
    bool not_executable = false;            ///< its program cannot be executed
    int orphans = 0;                        ///< processes that it leaves behind
    /// It is a program of dtrun's client that can live through several worlds. It does not end by itself
    /// while one of its world is missing.
    bool elastic = false;
    /// A framework in whose store it meets the others. Its life begins when it has.
    enum class Meets { nobody, torch, horovod } meets = Meets::nobody;
    std::uint32_t counts = 0;             ///< ranks, where it was told another number
    std::chrono::milliseconds import{0};  ///< until it says hello, or comes to the others
    bool never_asks = false;              ///< it hangs, and hears of no change
    /// It heeds the signal of --warn-signal: saves for so long, and ends well.
    std::optional<std::chrono::milliseconds> saves{};
};

/// Runs the ranks of a simulated host: no processes, but timers and real pipes.
class FakeRanks : public ranks::RankRunner {
public:
    /// A process, and what it has been told of itself.
    struct Process {
        SlotIndex place{};
        std::uint64_t generation = 0;
        Rank rank{};
        bool had_place = false;  ///< it has been part of a world
        bool has_place = false;  ///< and is so, and does not ask for another place
    };

    /// \param script_of  what a rank does
    /// \param welcomed   is told of each place that a process has got
    /// \param is_complete  whether all of a generation have their places
    FakeRanks(
        asio::any_io_executor executor, std::mt19937& random,
        std::function<RankScript(const Request&)> script_of,
        std::function<void(const Exited&, const Process&)> exited,
        std::function<void(const Welcome&)> welcomed = [](const Welcome&) {},
        std::function<bool(std::uint64_t generation)> is_complete =
            [](std::uint64_t) { return true; });
    ~FakeRanks() override;

    void start(const Request& request, std::function<void(Start)> started) override;
    std::vector<ranks::RunningRank> running_ranks() const override;
    void signal(int signal) override;
    void renumber(SlotIndex place, std::uint64_t generation, Rank rank) override;
    void end(SlotIndex place, int signal) override;
    void kill(std::uint64_t generation, Rank rank) override;
    void signalled(int) override {}
    void stop_all(int signal, std::chrono::milliseconds grace,
                  std::function<void(int orphans)> gone) override;
    ranks::ResetResult reset_connections(const ranks::ConnectionSet& what) override {
        connections_reset_.insert(connections_reset_.end(), what.addresses.begin(),
                                  what.addresses.end());
        return {};
    }
    void spare(pid_t) override {}

    /// A rank that runs has ended by itself.
    void end(std::uint64_t generation, Rank rank, int code);
    /// Somebody kills the process in this place, if there is one.
    void kill_at(SlotIndex place);
    /// A collective of the process in this place fails, and no other's: it asks for another place.
    void ask_at(SlotIndex place);
    /// What `dtrun-agent --sweep` does on this host. \return how many processes it has killed
    int sweep(std::uint64_t agent);

    std::size_t running() const { return ranks_.size(); }
    std::vector<Process> processes() const;
    /// How many were ended while they saved what they have.
    std::size_t saves_cut_short() const { return saves_cut_short_; }
    const std::vector<std::string>& connections_reset() const { return connections_reset_; }
    /// The host loses its power: nothing runs there any more, and nobody is told.
    void vanish();
    asio::awaitable<void> join();

private:
    struct Running {
        std::uint64_t generation = 0;
        Rank rank{};
        SlotIndex place{};
        RankScript script;
        Deadline started{};
        int sent_signal = 0;
        Fd out, err;
        std::unique_ptr<Timer> ends;
        std::string agent;  ///< DTRUN_AGENT
        std::shared_ptr<Link> link;
        std::shared_ptr<tcp::socket> store;  ///< of its framework
        bool had_place = false;
        bool has_place = false;  ///< and does not ask for another one
        bool saves = false;
    };
    asio::awaitable<void> be_elastic(pid_t pid, Hello hello, std::chrono::milliseconds import,
                                     std::string socket);
    static Process describe(const Running& rank);
    void ask(pid_t pid);
    asio::awaitable<void> rejoin(pid_t pid, std::uint64_t generation);
    asio::awaitable<void> meet(pid_t pid, std::vector<std::string> env);
    asio::awaitable<std::string> ask_store(pid_t pid, std::uint16_t port, std::string request,
                                           std::size_t bytes_min);
    Result<void> told(pid_t pid, const FrameView& frame);
    bool may_end(const Running& rank) const;
    static void hang_up(Running& rank);
    void write_output(Running& rank);
    void end_after(pid_t pid, std::chrono::nanoseconds delay, int code, int signal);
    void ended(pid_t pid, int code, int signal);
    void look_whether_gone();

    asio::any_io_executor executor_;
    std::mt19937& random_;
    std::function<RankScript(const Request&)> script_of_;
    std::function<void(const Exited&, const Process&)> exited_;
    std::function<void(const Welcome&)> welcomed_;
    std::function<bool(std::uint64_t)> is_complete_;
    std::map<pid_t, Running> ranks_;
    std::vector<std::string> connections_reset_;  ///< addresses
    pid_t last_pid_ = 100;
    int orphans_ = 0;
    std::size_t saves_cut_short_ = 0;
    std::function<void(int)> gone_;
    Timer grace_;
    bool vanished_ = false;
    std::shared_ptr<char> alive_ = std::make_shared<char>();
    TaskGroup tasks_;
};

}  // namespace dtrun::loopback
