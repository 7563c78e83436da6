#include "rendezvous/membership.h"

#include <catch2/catch.hpp>

namespace dtrun {
namespace {

/// `hosts` hosts with two ranks each.
JobPlan plan_of(std::uint32_t hosts) {
    JobPlan plan;
    plan.world_size = hosts * 2;
    for (std::uint32_t host = 0; host < hosts; ++host)
        plan.hosts.push_back({{host * 2, 0, host, hosts, 0}, {host * 2 + 1, 1, host, hosts, 1}});
    return plan;
}

Arrival arrival(std::uint32_t host, std::string from, std::string to = "10.0.0.100") {
    Arrival made;
    made.join.host = host;
    made.join.free_port = static_cast<std::uint16_t>(20'000 + host);
    made.peer_address = std::move(from);
    made.server_address = std::move(to);
    return made;
}

}  // namespace

TEST_CASE("the first generation begins when the last host has joined, in whatever order",
          "[membership]") {
    Membership membership(plan_of(3));
    CHECK(membership.generation() == 0);
    CHECK(membership.join(arrival(2, "10.0.0.3")) == Membership::Verdict::accepted);
    CHECK(membership.join(arrival(0, "10.0.0.1")) == Membership::Verdict::accepted);
    CHECK(membership.missing() == std::vector<std::uint32_t>{1});
    CHECK(membership.generation() == 0);
    CHECK(membership.join(arrival(1, "10.0.0.2")) == Membership::Verdict::complete);
    CHECK(membership.generation() == 1);
    CHECK(membership.missing().empty());
}

TEST_CASE("every rank is told once where it is, and all are told the same about the rest",
          "[membership]") {
    Membership membership(plan_of(3));
    for (const std::uint32_t host : {0u, 1u, 2u})
        membership.join(arrival(host, "10.0.0." + std::to_string(host + 1)));
    const auto assignments = membership.assignments();
    REQUIRE(assignments.size() == 3);
    std::vector<bool> seen(6);
    for (std::uint32_t host = 0; host < 3; ++host) {
        const Assign& assign = assignments[host];
        CHECK(assign.generation == 1);
        CHECK(assign.world_size == 6);
        CHECK(assign.node_rank == host);
        CHECK(assign.node_count == 3);
        CHECK(assign.master_address == "10.0.0.1");
        CHECK(assign.master_port == 20'000);
        for (const RankSlot& slot : assign.ranks) {
            CHECK_FALSE(seen[slot.rank]);
            seen[slot.rank] = true;
        }
    }
    CHECK(std::find(seen.begin(), seen.end(), false) == seen.end());
}

TEST_CASE("a host cannot join twice, nor come back after it was lost, nor from nowhere",
          "[membership]") {
    Membership membership(plan_of(2));
    CHECK(membership.join(arrival(0, "10.0.0.1")) == Membership::Verdict::accepted);
    CHECK(membership.join(arrival(0, "10.0.0.9")) == Membership::Verdict::duplicate);
    CHECK(membership.join(arrival(7, "10.0.0.9")) == Membership::Verdict::unknown);
    CHECK(membership.lost(0));
    CHECK_FALSE(membership.lost(0));
    CHECK(membership.join(arrival(0, "10.0.0.1")) == Membership::Verdict::duplicate);
}

TEST_CASE("rank 0 on the head's own machine is announced by the address that others reached",
          "[membership]") {
    Membership mixed(plan_of(2));
    mixed.join(arrival(0, "127.0.0.1", "127.0.0.1"));
    mixed.join(arrival(1, "10.0.0.2", "10.0.0.100"));
    CHECK(mixed.assignments().front().master_address == "10.0.0.100");

    Membership alone(plan_of(1));
    alone.join(arrival(0, "127.0.0.1", "127.0.0.1"));
    CHECK(alone.assignments().front().master_address == "127.0.0.1");
}

}  // namespace dtrun
