#pragma once

#include "base/numbered.h"
#include "launcher/head/agent_session.h"
#include "launcher/plan/job_plan.h"
#include "rendezvous/job/tree.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/start_messages.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace dtrun::head {

/// What is known of one host of the job.
struct HostState {
    AgentSession* session = nullptr;  ///< once it has joined; its relay's if it has one
    bool relayed = false;             ///< it has joined through a relay
    bool joined = false;              ///< once
    bool refused = false;             ///< its agent has joined, and was told to end before any rank
    bool done = false;                ///< nothing of the job is left there, or it is lost
    std::string address;              ///< its agent's, for hosts behind it; numeric
    std::vector<std::string> addresses;          ///< all that it has
    std::string machine;                         ///< equal for two hosts that are one machine
    std::map<std::int64_t, plan::SlotId> ranks;  ///< by pid, of started ones
    std::uint16_t relay_port = 0;                ///< where its agent accepts others; 0: nowhere
    const char* phase = "waiting for its turn";  ///< what it does until it has joined
};

/// The hosts of a job: which have joined, over which connection, and what they are sent.
///
/// Thread: the loop's. Lifetime: `spec` and the sessions outlive it.
class Hosts {
public:
    explicit Hosts(const plan::JobSpec& spec);

    std::uint32_t count() const { return static_cast<std::uint32_t>(states_.size()); }
    /// The job has got more hosts, or more places on them.
    void grow();
    bool has(HostId host) const { return states_.has(host); }
    auto hosts() const { return states_.hosts(); }
    HostState& operator[](HostId host) { return states_[host]; }
    const HostState& operator[](HostId host) const { return states_[host]; }
    const std::string& name(HostId host) const { return spec_.hosts[host].host.name; }
    const Tree& tree() const { return tree_; }

    /// Another host that has joined, was not refused, and is the same machine by another name.
    std::optional<HostId> twin_of(HostId host) const;

    /// Whether the host has joined through this session, directly or behind a relay.
    bool is_behind(const AgentSession& session, HostId host) const;
    /// Whether a host counts as connected by this session.
    bool is_known(const AgentSession& session) const;
    /// The host of this name, as the user calls it.
    std::optional<HostId> named(const std::string& name) const;
    /// The host that has this address, numeric.
    std::optional<HostId> at(const std::string& address) const;
    /// Whether a host that is connected has this address, numeric.
    bool is_used(const std::string& address) const;
    /// The rank with this pid; else the host's rank if it has only one; else kNoRank.
    Rank rank_of(HostId host, std::int64_t pid) const;
    /// What the plan has at a place of a host, if there is one: agents speak for their own ranks only.
    std::optional<plan::SlotId> planned_on(HostId host, SlotIndex place) const;
    /// The name of a rank's host; "?" if the rank is not this launcher's.
    std::string name_of_host(Rank rank) const;
    const plan::RankNumbers& numbers() const { return numbers_; }
    void set_numbers(plan::RankNumbers numbers) { numbers_ = std::move(numbers); }
    /// A host's agent has joined: what it says of its addresses and its machine. `session` is to be set.
    void joined(HostId host, std::string address, const Join& join);
    /// A host is to get a new agent: nothing of the last one counts.
    void forget(HostId host);

    /// Sends through the host's relay if it has one; drops the frame unless it is connected.
    void send(HostId host, Bytes frame);
    void send_to_all(const Bytes& frame);

private:
    const plan::JobSpec& spec_;
    Tree tree_;
    PerHost<HostState> states_;
    std::unordered_map<std::string, HostId> by_name_;
    std::unordered_multimap<std::string, HostId> by_address_,
        by_machine_;  ///< of those that have joined
    plan::RankNumbers numbers_;
};

}  // namespace dtrun::head
