#pragma once
// Jobs of Membership in a few words, for its tests.

#include "rendezvous/job/membership.h"
#include "tests/support/catch.h"

#include <fmt/format.h>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dtrun::membership {

using std::chrono::milliseconds;
using namespace std::chrono_literals;
using Cause = Membership::End::Cause;
using Phase = Membership::Phase;

inline const Deadline kStart{};
inline constexpr HostId h0{0}, h1{1}, h2{2}, h3{3};

inline JobPolicy limits(std::uint32_t min, std::uint32_t max) {
    JobPolicy limits;
    limits.elastic = true;
    limits.ranks_min = limits.ranks_start = min;
    limits.sizes.max = max;
    return limits;
}

/// The ranks' hosts, by rank; "-" without an order to begin.
inline std::string hosts_of(const Membership::Orders& orders) {
    if (!orders.begin) return "-";
    std::string hosts;
    for (const RankAssignment& assigned : *orders.begin)
        hosts += std::to_string(std::to_underlying(assigned.host));
    return hosts;
}

/// A job of `hosts` hosts with two slots each, whose first world has begun.
inline Membership begun(JobPolicy limits, std::uint32_t hosts) {
    Membership job(std::move(limits));
    for (std::uint32_t i = 0; i < hosts; ++i) job.host_listed(HostId{i}, 2, kStart);
    for (std::uint32_t i = hosts; i-- > 0;) job.host_ready(HostId{i}, kStart);
    REQUIRE(job.phase() == Phase::running);
    job.take_orders();
    return job;
}

/// Every host that is asked to has ended its ranks.
inline void pause_all(Membership& job, Deadline now, std::initializer_list<HostId> hosts) {
    for (const HostId host : hosts) job.host_paused(host, job.generation() + 1, now);
}

inline constexpr SlotIndex p0{0}, p1{1};

/// A job of `hosts` hosts with two slots each, all of whose processes can go on and have met.
inline Membership keeping(JobPolicy limits, std::uint32_t hosts) {
    Membership job = begun(std::move(limits), hosts);
    for (const RankAssignment& assigned : job.world())
        for (const RejoinState state : {RejoinState::rendezvoused, RejoinState::supports_rejoin})
            job.process_says(assigned.host, assigned.rank.place, state, kStart);
    return job;
}

inline void wait_at_desk(Membership& job, std::initializer_list<std::pair<HostId, SlotIndex>> who) {
    for (const auto& [host, place] : who)
        job.process_says(host, place, RejoinState::wants_rank, kStart);
}

/// Each seat as "host.slot", with a '*' if its process is fresh; "-" if there are none.
inline std::string written(const std::optional<std::vector<RankAssignment>>& world) {
    if (!world) return "-";
    std::string text;
    for (const RankAssignment& assigned : *world)
        text +=
            fmt::format("{}.{}{} ", assigned.host, assigned.rank.place, assigned.fresh ? "*" : "");
    return text;
}

/// All processes ask for a place, and every host answers the call.
inline void meet_again(Membership& job, std::initializer_list<std::pair<HostId, SlotIndex>> who,
                       std::initializer_list<HostId> hosts) {
    wait_at_desk(job, who);
    const auto query_commit = job.take_orders().query_commit;
    REQUIRE(query_commit);
    for (const HostId host : hosts) job.host_ready_to_commit(host, *query_commit, kStart);
}

}  // namespace dtrun::membership
