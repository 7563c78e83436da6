#pragma once

#include "tests/loopback/simulation.h"
#include "tests/support/catch.h"
#include "tests/support/seed.h"

#include <fmt/format.h>
#include <map>
#include <string>

namespace dtrun::loopback {

/// What holds of the events of every job: they are numbered, begin with its start and end with its end; each
/// process that starts ends once, or its host is lost.
inline void check_events(const Ending& ending) {
    REQUIRE(ending.events.size() >= 2);
    std::map<std::string, std::string> running;  // "HOST PID" -> host
    std::size_t endings = 0;
    for (std::size_t i = 0; i < ending.events.size(); ++i) {
        const watch::Event& event = ending.events[i];
        INFO(watch::to_json(event, "job"));
        CHECK(event.number == i + 1);
        endings += event.kind == watch::EventKind::job_ending ? 1 : 0;
        const auto* const host = event.fields.if_contains("host");
        const std::string on(host != nullptr ? std::string_view(host->as_string()) : "");
        const auto* const pid = event.fields.if_contains("pid");
        const std::string process =
            fmt::format("{} {}", on, pid != nullptr ? pid->to_number<std::int64_t>() : 0);
        if (event.kind == watch::EventKind::rank_started)
            CHECK(running.emplace(process, on).second);
        if (event.kind == watch::EventKind::rank_exited && pid->to_number<std::int64_t>() != 0)
            CHECK(running.erase(process) == 1);
        if (event.kind == watch::EventKind::host_lost)
            std::erase_if(running, [&on](const auto& each) { return each.second == on; });
    }
    CHECK(running.empty());
    CHECK(endings == 1);
    CHECK(ending.events.front().kind == watch::EventKind::job_started);
    CHECK(ending.events.back().kind == watch::EventKind::job_ended);
    CHECK(ending.events.back().fields.at("exit_code") == ending.code);
}

/// A job whose ranks would live for an hour, as far as it is up to them.
inline Script living_ranks(std::vector<int> ranks_on_host = {2, 2},
                           const RankScript& each = {.life = std::chrono::hours(1)}) {
    Script script;
    script.ranks_on_host = std::move(ranks_on_host);
    std::uint32_t ranks = 0;
    for (const int count : script.ranks_on_host) ranks += static_cast<std::uint32_t>(count);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) script.ranks[rank] = each;
    return script;
}

/// Runs a script with several seeds, and gives every ending to `check`.
template <class Check>
void in_many_orders(int count, const Script& script, Check check) {
    const std::uint32_t seed = test_seed();
    for (int i = 0; i < count; ++i) {
        const std::uint32_t one = count == 1 ? seed : seed + static_cast<std::uint32_t>(i);
        INFO("DTRUN_SEED=" << one);
        const Ending ending = simulate(script, one);
        INFO(ending.shown);
        CHECK(ending.left == 0);
        check_events(ending);
        check(ending);
    }
}

}  // namespace dtrun::loopback
