#include "tests/simulation/drawn_job.h"

#include "rendezvous/job/world_plan.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace dtrun::loopback {
namespace {

using std::chrono::seconds;

constexpr std::uint32_t kRanksMost = 16;

}  // namespace

/// Hosts of which the last ones may come later.
void Drawing::draw_hosts(int least, int most, bool some_come) {
    script.ranks_on_host.clear();
    for (int left = least + draw(most - least + 1); left > 0; --left) {
        script.ranks_on_host.push_back(1 + draw(3));
        slots_.push_back(script.ranks_on_host.back());
        most_slots_.push_back(script.ranks_on_host.back());
    }
    for (std::uint32_t i = 0; i < hosts(); ++i) {
        HostScript& does = script.hosts[HostId{i}];
        does.login_takes = span(milliseconds(1), milliseconds(300));
        if (chance(20)) does.slow = span(milliseconds(1), milliseconds(200));
    }
    elastic.ranks_min = world_size = 1 + draw(script.ranks_on_host.front());
    if (some_come && chance(15)) return find_hosts();
    if (some_come && hosts() > 1 && chance(40))
        script.hosts[HostId{static_cast<std::uint32_t>(hosts() - 1)}].listed =
            span(milliseconds(500), seconds(12));
}

/// The job has no hosts at first, and waits for them.
void Drawing::find_hosts() {
    elastic.discovery_script = "true";
    milliseconds when(0);
    for (std::uint32_t i = 0; i < hosts(); ++i)
        script.hosts[HostId{i}].listed = when += span(milliseconds(200), seconds(2));
}

/// What each rank is, whatever its number in whichever world.
void Drawing::draw_ranks(bool living, const RankScript& like) {
    for (std::uint32_t rank = 0; rank < kRanksMost; ++rank) {
        RankScript& does = script.ranks[rank] = like;
        does.elastic = living;
        does.output_bytes = 0;
        does.reaction = span(milliseconds(0), milliseconds(50));
        does.import = span(milliseconds(0), seconds(3));
    }
}

void Drawing::draw_policy(bool with_refill) {
    elastic.cooldown_min = kCooldownMin;
    elastic.cooldown_max = kCooldownMax;
    if (chance(30)) elastic.ranks_max = *elastic.ranks_min + draw(6);
    if (chance(20)) elastic.standby = draw(3);
    if (with_refill) elastic.refill = std::array{Refill::now, Refill::wait, Refill::never}[draw(3)];
    if (chance(20))
        elastic.spares = 1;
    else if (chance(20))
        for (int size = *elastic.ranks_min; size <= static_cast<int>(kRanksMost); size += 2)
            elastic.allowed.push_back(size);
    if (!elastic.allowed.empty() && elastic.ranks_max)
        std::erase_if(elastic.allowed, [&](int size) { return size > *elastic.ranks_max; });
}

void Drawing::list(milliseconds when, HostId at, int slots) {
    script.happenings.push_back({when, at, Mishap::listed, Way::both, slots});
    slots_[at] = slots;
    most_slots_[at] = std::max(most_slots_[at], slots);
}

void Drawing::delist(milliseconds when, HostId at) {
    script.happenings.push_back({when, at, Mishap::delisted});
    slots_[at] = 0;
}

/// Its network delivers nothing, or nothing one way.
void Drawing::stall(milliseconds when, HostId at, Way way, milliseconds time) {
    script.happenings.push_back({when, at, Mishap::stalls, way});
    script.happenings.push_back({when + time, at, Mishap::delivers});
}

/// A host is lost in one of the ways in which it can be, and comes back.
void Drawing::lose(milliseconds when, HostId at) {
    const milliseconds back = when + span(milliseconds(10), seconds(10));
    switch (draw(4)) {
        case 0:
            script.happenings.push_back({when, at, Mishap::loses_power});
            script.happenings.push_back({back, at, Mishap::gets_power});
            return;
        case 1:
            script.happenings.push_back({when, at, Mishap::agent_killed});
            return;
        case 2:
            script.happenings.push_back({when, at, Mishap::cut_off});
            return;
        default:
            stall(when, at, static_cast<Way>(draw(3)), back - when);
    }
}

/// It stays listed, but nobody can log in to it any more. Not the first host, without which the job has too few slots.
void Drawing::lose_for_good(milliseconds when, HostId at) {
    if (std::to_underlying(at) == 0) return;
    lost_for_good_.insert(at);
    std::erase_if(script.happenings, [at](const Script::Happening& other) {
        return other.host == at && other.what == Mishap::gets_power;
    });
    script.happenings.push_back({when, at, Mishap::loses_power});
}

/// A host is delisted, and listed again while its ranks may still be ending; it may be lost meanwhile, or before.
void Drawing::leave(milliseconds when, HostId at) {
    const milliseconds delisted = when + seconds(3);
    delist(delisted, at);
    const milliseconds again =
        delisted + span(milliseconds(1), chance(70) ? seconds(2) : seconds(8));
    if (chance(70)) list(again, at, 1 + draw(3));
    if (chance(60)) lose(when + span(milliseconds(0), seconds(6)), at);
}

/// As when memory is short; perhaps once more while others are being started in their places.
void Drawing::kill_many(milliseconds when, HostId at) {
    if (chance(60)) kill_many(when + span(milliseconds(100), seconds(3)), at);
    for (std::uint32_t place = 0; std::cmp_less(place, most_slots_[at]); ++place)
        if (chance(70)) script.kills.push_back({when, at, SlotIndex{place}});
}

/// Processes that are told to end need time for that.
void Drawing::end_slowly() {
    for (auto& [rank, does] : script.ranks) does.reaction = span(milliseconds(0), seconds(4));
}

/// Something goes wrong, or the list of hosts changes. The first host stays listed.
void Drawing::fault(milliseconds when, bool living) {
    const HostId at = host();
    const bool is_first = std::to_underlying(at) == 0;
    const bool is_coming = script.hosts[at].listed.value_or(milliseconds(0)) >= when;
    if (lost_for_good_.contains(at)) return;
    switch (draw(living ? 9 : 8)) {
        case 0:
        case 1:
            return chance(15) ? lose_for_good(when, at) : lose(when, at);
        case 2:
            if (is_first || is_coming) return;
            return leave(when, at);
        case 3:
            if (is_coming || slots_[at] == 0) return;
            return list(when, at,
                        is_first ? std::max(*elastic.ranks_min, 1 + draw(4)) : 1 + draw(4));
        case 4:
            return kill_many(when, at);
        case 8:
            script.asks.push_back({when, at, place(at)});
            return;
        default:
            script.kills.push_back({when, at, place(at)});
    }
}

/// No rank ends by itself before that.
void Drawing::let_all_end(milliseconds until) {
    for (auto& [rank, does] : script.ranks) does.until = until;
    for (auto& [which, does] : script.attempts) does.until = until;
}

/// That can be used at last.
std::uint32_t Drawing::slots() const {
    std::vector<int> listed = script.ranks_on_host;
    auto happenings = script.happenings;
    std::ranges::stable_sort(happenings, {}, &Script::Happening::when);
    for (const Script::Happening& each : happenings)
        if (each.what == Mishap::listed || each.what == Mishap::delisted)
            listed[std::to_underlying(each.host)] = each.slots;
    for (const HostId host : lost_for_good_) listed[std::to_underlying(host)] = 0;
    return static_cast<std::uint32_t>(std::accumulate(listed.begin(), listed.end(), 0));
}

/// As large the world becomes, when all hosts can be used.
std::uint32_t Drawing::full_size() const {
    WorldSizes sizes{.max = kRanksMost};
    for (const int size : elastic.allowed)
        sizes.allowed.push_back(static_cast<std::uint32_t>(size));
    return allowed_size(
        sizes,
        std::min(slots(), static_cast<std::uint32_t>(elastic.ranks_max.value_or(kRanksMost))));
}

}  // namespace dtrun::loopback
