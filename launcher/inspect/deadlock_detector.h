#pragma once

#include "base/clock.h"
#include "base/numbered.h"
#include "rendezvous/wire/rank_messages.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::inspect {

/// Ranks that wait for one thing, and longer than is usual.
struct LongWait {
    std::string what;
    std::string who;       ///< "ranks 0-2", "rank 1 and 2 processes"
    bool several = false;  ///< ranks or processes
    Deadline since{};      ///< of the first of them
    bool starting = false, stalled = false, told = false;  ///< as RankWait has it, of any of them

    /// "ranks 0-2 have waited 60 s for …"
    std::string sentence(Deadline now) const;
};

/// Watches ranks wait for each other in MPI and in the stores of their frameworks, and tells when a
/// rank that is waited for will not come: a pure state machine, events in, verdicts out. No
/// sockets, no clock.
class DeadlockDetector {
public:
    /// \param host_of  name of a rank's host
    /// \param limit    --init-timeout
    DeadlockDetector(std::uint32_t ranks, std::function<std::string(Rank)> host_of,
                     std::optional<std::chrono::milliseconds> limit);

    /// All ranks start, or start again; there may be more or fewer.
    void begin(std::uint32_t ranks);
    /// All waits in the stores that a host's agent serves, in place of its last ones; ranks are set
    /// where they are known.
    void waits(HostId host, std::vector<RankWait> waits, Deadline now);
    /// A rank has ended by itself.
    void rank_ended(Rank rank, std::int64_t pid, MpiUse mpi, Deadline now);
    /// A rank has called MPI_Init: now every one has to call that, and MPI_Finalize.
    void mpi_used() { mpi_used_ = true; }
    /// A rank has called MPI_Comm_spawn, and was told that it cannot have that.
    void spawn_refused(Rank rank, Deadline now);

    struct Verdict {
        bool end = false;    ///< true: the job is to end; false: the text is a warning
        bool hangs = false;  ///< nobody knows why, so that stacks of the ranks may tell
        std::string text;    ///< ends without a period
    };
    /// Whether look() may soon have something to say: ranks meet, or began to wait or ended a moment ago.
    bool is_watching(Deadline now) const;
    /// Whether look() and long_waits() have nothing to say unless more is told.
    bool is_idle() const;
    /// The next verdict that has not been told yet. After one that ends the job, later waits() are
    /// ignored: ranks then stop waiting only because they are ended.
    std::optional<Verdict> look(Deadline now);
    /// The verdict on a rank that has ended outside MPI or without MPI_Finalize, not by MPI_Abort.
    std::optional<std::string> left_mpi() const;

    /// Who waits for what, for a report: one line for each thing, without '\n'.
    std::vector<std::string> describe(Deadline now) const;
    /// What is waited for since a minute, or will not come by itself, in the order of `what`.
    std::vector<LongWait> long_waits(Deadline now) const;

private:
    struct Waiting {
        RankWait wait;
        Deadline since{};
        Deadline told{};  ///< when the last report of it was made
    };
    std::vector<const Waiting*> meeting(Deadline now, std::chrono::milliseconds at_least) const;
    /// All that wait for one thing.
    struct Thing {
        std::vector<const RankWait*> waits{};
        Deadline since = Deadline::max();  ///< of the first of them
    };
    template <class Counts>
    std::map<std::string, Thing> by_what(Counts counts) const;
    static std::vector<const RankWait*> pointers(const std::vector<const Waiting*>& list);
    std::optional<std::string> hopeless(const std::vector<const Waiting*>& certain) const;
    std::optional<std::string> deserted(const std::vector<const Waiting*>& certain) const;
    std::optional<std::string> two_libraries(const std::vector<const Waiting*>& certain) const;
    std::optional<std::string> late(Deadline now, std::chrono::milliseconds limit,
                                    std::string_view flag) const;
    std::optional<std::string> in_vain(Deadline now) const;
    std::optional<std::string> too_late(Deadline now) const;
    std::optional<std::string> still_runs(Deadline now);
    std::string missing(const std::vector<const Waiting*>& meeting) const;
    std::string names(std::vector<Rank> ranks) const;

    std::uint32_t ranks_;
    std::function<std::string(Rank)> host_of_;
    std::optional<std::chrono::milliseconds> limit_;
    std::map<HostId, std::vector<Waiting>> waits_;  ///< by host
    std::map<Rank, std::int64_t> ended_;            ///< by rank: its pid
    Deadline last_ended_{};                         ///< the last of them
    bool mpi_used_ = false;
    std::map<Rank, MpiUse> left_mpi_;  ///< by rank: ended without MPI_Finalize
    std::set<Rank> spawn_refused_;
    Deadline refused_at_{};                     ///< the first of them
    std::chrono::milliseconds tell_refused_{};  ///< how long after that it is told again
    bool told_ = false;
    bool over_ = false;  ///< the last verdict has ended the job
};

}  // namespace dtrun::inspect
