#pragma once

#include "tests/simulation/head_job.h"

#include <cstdint>
#include <set>
#include <utility>

namespace dtrun::loopback {

/// How long lost hosts are left alone.
inline constexpr std::chrono::seconds kCooldownMin{6}, kCooldownMax{12};

/// Draws a job, one part after the other.
class Drawing {
public:
    explicit Drawing(std::mt19937& random) : random_(random) {}

    int draw(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }
    bool chance(int of_a_hundred) { return draw(100) < of_a_hundred; }
    milliseconds span(milliseconds least, milliseconds most) {
        return least + milliseconds(draw(static_cast<int>((most - least).count()) + 1));
    }
    HostId host() { return HostId(static_cast<std::uint32_t>(draw(static_cast<int>(hosts())))); }
    std::size_t hosts() const { return script.ranks_on_host.size(); }
    SlotIndex place(HostId at) {
        return SlotIndex(static_cast<std::uint32_t>(draw(std::max(1, most_slots_[at]))));
    }

    void draw_hosts(int least, int most, bool some_come = true);
    void draw_ranks(bool living, const RankScript& like);
    void draw_policy(bool with_refill);
    void list(milliseconds when, HostId at, int slots);
    void delist(milliseconds when, HostId at);
    void find_hosts();
    void stall(milliseconds when, HostId at, Way way, milliseconds time);
    void lose(milliseconds when, HostId at);
    void lose_for_good(milliseconds when, HostId at);
    void leave(milliseconds when, HostId at);
    void kill_many(milliseconds when, HostId at);
    void end_slowly();
    void fault(milliseconds when, bool living);
    void let_all_end(milliseconds until);
    std::uint32_t slots() const;
    std::uint32_t full_size() const;

    Script script;
    plan::ElasticOptions elastic;
    int world_size = 0;

    /// The job, with what must hold of it.
    HeadJob done(std::string kind, std::function<void(const Ending&)> judge) {
        script.options = [elastic = elastic, size = world_size](plan::Options& options) {
            options.elastic = elastic;
            if (size > 0) options.world_size = size;
        };
        return {std::move(kind), std::move(script), std::move(judge)};
    }

private:
    std::mt19937& random_;
    PerHost<int> slots_;  ///< that are listed, at last
    std::set<HostId> lost_for_good_;
    PerHost<int> most_slots_;
};

}  // namespace dtrun::loopback
