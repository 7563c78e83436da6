#pragma once

#include "base/numbered.h"
#include "launcher/head/hosts.h"
#include "launcher/head/job.h"
#include "launcher/inspect/deadlock_detector.h"
#include "launcher/plan/job_plan.h"
#include "launcher/watch/event.h"
#include "rendezvous/wire/look_messages.h"
#include "rendezvous/wire/rank_messages.h"

#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::head {

/// Remembers what has become of each host and rank, for people and programs that look at the job, and tells
/// listeners of it as it happens. Nothing is formatted unless somebody listens or asks.
///
/// Thread: the loop's. Lifetime: what it was given outlives it.
class JobRecord {
public:
    JobRecord(const plan::JobSpec& spec, const Hosts& hosts, const Job& job);

    /// Before the first event. \param id  the job's, hexadecimal
    void set_id(std::string id) { id_ = std::move(id); }
    const std::string& id() const { return id_; }
    /// The address of the job's page, with its key.
    void set_page(std::string address) { page_ = std::move(address); }
    void add_listener(watch::EventListener& listener) { listeners_.push_back(&listener); }

    // What happens.
    void job_started();
    void host_connecting(HostId host);  ///< an agent is started there once more
    void host_joined(HostId host);
    void host_failed(HostId host, const std::string& why);
    void host_lost(HostId host, const std::string& why);
    void host_left(HostId host);  ///< nothing of the job is left there, though the job goes on
    void ranks_started(HostId host, const Started& started);
    void rank_exited(plan::SlotId slot, HostId host, const Exited& exited);
    void restart(const Exited& because);
    void stalled(const inspect::LongWait& wait);      ///< ranks wait too long
    void stall_ended(const inspect::LongWait& wait);  ///< they do not any more
    void job_ending();
    /// \param report  what the user is told
    void job_ended(int code, const std::string& report);
    void measured(HostId host, UsageReport report);

    /// The job as it is now; docs/EVENTS.md has the fields. \param waiting  who waits for what
    boost::json::object view(const std::vector<std::string>& waiting) const;
    /// What is in it of one rank: its `rank` and its `host`; empty where no place has this rank. Where its whole output
    /// is kept, the command that shows it (`log`), and the folder of its files (`files`).
    boost::json::object view_of(Rank rank) const;
    bool has_ended() const { return ended_code_.has_value(); }
    std::string program() const;     ///< as people call it, "python3 train.py"
    std::string_view cause() const;  ///< of the end, as events have it
    const std::string& report() const { return report_; }  ///< of job_ended()

private:
    /// What is known of the process at a place.
    struct Place {
        enum class State : std::uint8_t { waiting, running, ended, lost } state = State::waiting;
        std::int64_t pid = 0;
        std::uint64_t generation = 0;               ///< in which it was started
        std::int64_t started_ns = 0, ended_ns = 0;  ///< since 1970
        int code = 0, signal = 0;
        bool by_dtrun = false;                                          ///< dtrun has ended it
        bool out_of_memory = false, core_dumped = false, hung = false;  ///< as Exited has it
        std::uint64_t memory_max_bytes = 0;                             ///< as well
    };
    /// What it uses, from two measures.
    struct Usage {
        RankUsage last{};
        std::int64_t at_ns = 0;
        double processors = 0;  ///< that were busy with it, between the two
    };

    void world_started(std::uint64_t generation);
    void rank_started(plan::SlotId slot, HostId host, const RankPid& rank,
                      std::uint64_t generation);
    /// Why a host cannot be used.
    struct HostFailure {
        bool lost = false;  ///< after it had joined
        std::string why{};  ///< empty: none
    };

    boost::json::array stalls_view() const;
    void end_stalls();
    void set_trouble(HostId host, HostFailure failure);
    void tell(watch::EventKind kind, boost::json::object fields);
    Place& at(plan::SlotId slot);
    boost::json::object host_view(HostId host) const;
    boost::json::object rank_view(plan::SlotId slot) const;
    void add_usage(boost::json::object& rank, plan::SlotId slot, bool runs) const;
    boost::json::object named(HostId host) const;
    std::string_view host_state(HostId host) const;
    std::string_view rank_state(const Place& slot) const;
    std::uint32_t world_size() const;
    std::string_view state() const;  ///< "starting", "running", "restarting", "ending" or "ended"

    const plan::JobSpec& spec_;
    const Hosts& hosts_;
    const Job& job_;
    std::string id_, page_;
    std::vector<watch::EventListener*> listeners_;
    std::uint64_t events_ = 0;
    std::int64_t started_ns_ = 0;
    std::uint64_t generation_ = 0;
    bool ran_ = false;         ///< ranks have been started once
    bool restarting_ = false;  ///< since a rank has failed
    std::optional<int> ended_code_;
    std::string report_;  ///< what the user was told at the end
    bool has_told_end_ = false;
    std::vector<inspect::LongWait> stalls_;  ///< that are not over
    std::vector<Place> slots_;
    std::vector<Usage> usages_;                  ///< by place; empty until somebody measures
    PerHost<HostFailure> failures_;              ///< of hosts that have failed, or are lost
    PerHost<std::optional<UsageReport>> usage_;  ///< the last of each
};

}  // namespace dtrun::head
