#include "rendezvous/membership/membership.h"

#include "base/milliseconds.h"
#include "rendezvous/elastic/world_plan.h"

#include <fmt/format.h>
#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

namespace dtrun {
namespace {

/// How much later than its rank's failure the news of a lost member may be.
constexpr std::chrono::milliseconds kNewsLimit{1'500};
/// Members without a wanted place come after those with one.
constexpr std::uint64_t kUnplaced = 1ull << 32;

}  // namespace

Membership::Membership(MembershipOptions options) : options_(std::move(options)) {
    assert(options_.ranks_min >= 1 && options_.ranks_max >= options_.ranks_min);
}

std::uint32_t Membership::slots() const {
    return std::accumulate(
        seats_.begin(), seats_.end(), 0u,
        [](std::uint32_t sum, const auto& seat) { return sum + seat.second.member.slots; });
}

/// How many ranks a generation of all members would have; 0 if no number that is allowed is small enough.
std::uint32_t Membership::next_size() const {
    return allowed_size({options_.ranks_max, options_.allowed}, slots());
}

/// Members in the order in which they get ranks: those with ranks in rank order, then newcomers and
/// spares.
std::vector<MemberId> Membership::in_order() const {
    std::vector<MemberId> order;
    for (const auto& [id, seat] : seats_) order.push_back(id);
    std::ranges::sort(order, {}, [this](MemberId id) {
        const Seat& seat = seats_.at(id);
        const Rank first = seat.ranks.empty() ? kNoRank : seat.ranks.front().rank;
        return std::pair(first, seat.order);
    });
    return order;
}

void Membership::enter(MemberId id, Member member, Deadline now,
                       std::optional<std::uint32_t> node_rank) {
    if (phase_ == Phase::ended) return;
    Seat seat;
    seat.member = std::move(member);
    seat.order = node_rank ? *node_rank : kUnplaced + ++arrivals_;
    const std::string name = seat.member.name;
    if (!seats_.emplace(id, std::move(seat)).second) return;
    if (phase_ == Phase::gathering) return look(now);
    if (phase_ != Phase::running || failing_ || !can_grow()) return;
    // More members may enter within last_call: one new generation takes in all of them.
    if (!last_call_until_) last_call_until_ = now + options_.last_call;
}

bool Membership::has_node(std::uint32_t node_rank) const {
    return std::ranges::any_of(
        seats_, [node_rank](const auto& seat) { return seat.second.order == node_rank; });
}

void Membership::come_back(MemberId id, std::uint64_t generation, std::uint64_t accepted,
                           Deadline now) {
    const auto at = seats_.find(id);
    if (at == seats_.end()) return;
    Seat& seat = at->second;
    seat.away_until.reset();
    if (phase_ == Phase::proposing && !seat.ranks.empty()) {
        // Who was never told of its place in the generation runs nothing, and has nothing to end.
        const bool runs_nothing = generation < generation_;
        if (runs_nothing || accepted == proposed_) return accept(id, proposed_, now);
        if (seat.accepted < proposed_)
            orders_.proposals.emplace_back(id, Propose{proposed_, "a new generation is coming"});
    } else if (phase_ == Phase::finishing && accepted > generation_) {
        ended_ranks(seat);
    } else if (phase_ == Phase::running || phase_ == Phase::finishing) {
        if (!seat.ranks.empty() && generation != generation_)
            orders_.assignments.emplace_back(id, assignment(id));
    }
}

void Membership::accept(MemberId id, std::uint64_t generation, Deadline now) {
    const auto at = seats_.find(id);
    if (at == seats_.end()) return;
    if (phase_ == Phase::finishing && generation > generation_) return ended_ranks(at->second);
    if (phase_ != Phase::proposing || generation != proposed_) return;
    Seat& seat = at->second;
    seat.accepted = generation;
    // It comes to no more fences: who waits for it at one would wait for ever, and accept nothing.
    if (!seat.ranks.empty())
        orders_.fences_failed =
            fmt::format("{} has gone on to generation {}", seat.member.name, generation);
    if (all_accepted()) gather(now);
}

void Membership::leave(MemberId id, bool finished, const std::string& why, Deadline now) {
    const auto at = seats_.find(id);
    if (at == seats_.end()) return;
    const bool begun = phase_ != Phase::gathering && phase_ != Phase::ended;
    if (!finished || !begun || at->second.ranks.empty()) return remove(id, why, !finished, now);
    if (failing_) return end(false, failing_->why);
    const bool was_proposing = std::exchange(phase_, Phase::finishing) == Phase::proposing;
    last_call_until_.reset();
    orders_.fences_failed = at->second.member.name + " has finished";
    seats_.erase(at);
    if (was_proposing && !failure_.empty()) return end(false, failure_);
    const auto others =
        std::ranges::find_if(seats_, [](const auto& seat) { return !seat.second.ranks.empty(); });
    if (others == seats_.end()) return end(true, "");
    if (!was_proposing) return;
    for (const auto& [other, seat] : seats_)
        if (seat.accepted == proposed_) return ended_ranks(seat);
}

/// Ends the job because a member has ended its ranks for a proposed generation that was withdrawn
/// when another member finished.
void Membership::ended_ranks(const Seat& seat) {
    if (seat.ranks.empty()) return;
    end(false, fmt::format("{} had ended its ranks for another generation when others finished",
                           seat.member.name));
}

void Membership::rank_failed(MemberId id, std::uint64_t generation, const std::string& why,
                             Deadline now) {
    const auto at = seats_.find(id);
    if (at == seats_.end() || at->second.ranks.empty() || generation != generation_) return;
    const std::string cause = fmt::format("{}: {}", at->second.member.name, why);
    if (phase_ == Phase::finishing) return end(false, cause);
    if (phase_ != Phase::running || failing_) return;
    orders_.fences_failed = cause;
    if (restarts_ < options_.restarts_max.value_or(0)) {
        ++restarts_;
        is_blamed_ = true;
        failure_ = cause;
        return propose(cause, now);
    }
    if (options_.ranks_min == options_.ranks_max) return end(false, cause);
    last_call_until_.reset();
    failing_ = Failing{cause, now + options_.return_limit + kNewsLimit};
}

void Membership::lost(MemberId id, const std::string& why, Deadline now) {
    if (seats_.contains(id)) remove(id, why, true, now);
}

void Membership::away(MemberId id, Deadline now) {
    const auto at = seats_.find(id);
    if (at != seats_.end()) at->second.away_until = now + options_.return_limit;
}

void Membership::remove(MemberId id, const std::string& why, bool failed, Deadline now) {
    const auto at = seats_.find(id);
    const bool had_ranks = !at->second.ranks.empty();
    const std::string cause = fmt::format("{}: {}", at->second.member.name, why);
    seats_.erase(at);
    if (had_ranks) orders_.fences_failed = cause;
    switch (phase_) {
        case Phase::gathering:
            if (next_size() < options_.ranks_min) last_call_until_.reset();
            if (seats_.empty() && generation_ > 0) end(false, cause);
            return;
        case Phase::running:
            if (!had_ranks) {
                if (!can_grow()) last_call_until_.reset();
                return;
            }
            if (failed && options_.ranks_min == options_.ranks_max) return end(false, cause);
            failing_.reset();
            failure_ = cause;
            return propose(cause, now);
        case Phase::proposing:
            if (seats_.empty()) return end(false, cause);
            if (failed && had_ranks) failure_ = cause;
            if (failed && had_ranks && std::exchange(is_blamed_, false)) --restarts_;
            if (all_accepted()) gather(now);
            return;
        case Phase::finishing:
            if (had_ranks) end(false, cause);
            return;
        case Phase::ended:
            return;
    }
}

void Membership::propose(const std::string& why, Deadline now) {
    if (seats_.empty()) return end(false, why);
    if (options_.resets_max && generation_ > *options_.resets_max)
        return end(false, fmt::format("{}; the job has changed {} times (--reset-limit)", why,
                                      *options_.resets_max));
    phase_ = Phase::proposing;
    last_call_until_.reset();
    proposed_ = generation_ + 1;
    for (const auto& [id, seat] : seats_)
        if (!seat.ranks.empty()) orders_.proposals.emplace_back(id, Propose{proposed_, why});
    if (all_accepted()) gather(now);
}

bool Membership::has_spares() const {
    return std::ranges::any_of(seats_, [](const auto& seat) { return seat.second.ranks.empty(); });
}

bool Membership::all_accepted() const {
    return std::ranges::all_of(seats_, [this](const auto& seat) {
        return seat.second.ranks.empty() || seat.second.accepted == proposed_;
    });
}

/// No rank runs: begins the next generation, at once if there are enough slots.
void Membership::gather(Deadline now) {
    phase_ = Phase::gathering;
    join_until_.reset();
    if (next_size() >= options_.ranks_min) return begin();
    look(now);
}

void Membership::look(Deadline now) {
    if (phase_ != Phase::gathering) return;
    const bool is_first = generation_ == 0;
    if (!join_until_)
        join_until_ = now + (is_first ? options_.join_timeout : options_.elastic_timeout);
    const std::uint32_t have = next_size();
    if (have > 0 &&
        have == allowed_size({options_.ranks_max, options_.allowed}, options_.ranks_max))
        return begin();
    if (have >= options_.ranks_min && !last_call_until_)
        last_call_until_ = now + options_.last_call;
}

void Membership::tick(Deadline now) {
    std::vector<MemberId> gone;
    for (const auto& [id, seat] : seats_)
        if (seat.away_until && *seat.away_until <= now) gone.push_back(id);
    for (const MemberId id : gone) lost(id, "its connection broke and it did not come back", now);
    if (phase_ == Phase::gathering && last_call_until_ && *last_call_until_ <= now &&
        next_size() >= options_.ranks_min)
        return begin();
    if (phase_ == Phase::running && last_call_until_ && *last_call_until_ <= now)
        return propose("more hosts have come", now);
    if (failing_ && failing_->until <= now) return end(false, failing_->why);
    if (phase_ != Phase::gathering || !join_until_ || *join_until_ > now) return;
    if (generation_ == 0)
        return end(false, fmt::format("{} of {} ranks came within {} (--start-timeout)", slots(),
                                      options_.ranks_min, in_seconds(options_.join_timeout)));
    end(false, fmt::format("{} slots are there, and {} are needed, for {} (--elastic-timeout)",
                           slots(), options_.ranks_min, in_seconds(options_.elastic_timeout)));
}

Deadline Membership::next_deadline() const {
    Deadline next = Deadline::max();
    if (phase_ == Phase::ended) return next;
    for (const auto& [id, seat] : seats_)
        if (seat.away_until) next = std::min(next, *seat.away_until);
    if (last_call_until_) next = std::min(next, *last_call_until_);
    if (failing_) next = std::min(next, failing_->until);
    if (phase_ == Phase::gathering && join_until_) next = std::min(next, *join_until_);
    return next;
}

void Membership::begin() {
    ++generation_;
    phase_ = Phase::running;
    failure_.clear();
    failing_.reset();
    is_blamed_ = false;
    join_until_.reset();
    last_call_until_.reset();
    seat_ranks(in_order());
    describe_generation();
    orders_.proposals.clear();
    orders_.begun = world_size_;
    for (const auto& [id, seat] : seats_)
        if (!seat.ranks.empty()) orders_.assignments.emplace_back(id, assignment(id));
}

void Membership::seat_ranks(const std::vector<MemberId>& order) {
    const std::uint32_t size = next_size();
    world_size_ = 0;
    std::vector<std::uint32_t> cross_sizes;  // [local_rank] number of hosts with this local rank
    for (const MemberId id : order) {
        Seat& seat = seats_.at(id);
        seat.ranks.clear();
        const std::uint32_t count = std::min(seat.member.slots, size - world_size_);
        for (std::uint32_t local = 0; local < count; ++local) {
            if (local == cross_sizes.size()) cross_sizes.push_back(0);
            seat.ranks.push_back({Rank{world_size_++}, local, cross_sizes[local]++, 0, local});
        }
    }
    for (auto& [id, seat] : seats_)
        for (RankSlot& slot : seat.ranks) slot.cross_size = cross_sizes[slot.local_rank];
}

Assign Membership::assignment(MemberId id) const {
    const Seat& seat = seats_.at(id);
    Assign assign = common_;
    assign.ranks = seat.ranks;
    assign.ranks_below = static_cast<std::uint32_t>(assign.ranks.size());
    assign.node_rank = seat.node_rank;
    if (!seat.ranks.empty() && seat.ranks.front().rank == Rank{0})
        assign.peers = peer_addresses(members());
    return assign;
}

void Membership::describe_generation() {
    std::vector<SeatedHost> hosts;
    for (const MemberId id : in_order()) {
        Seat& seat = seats_.at(id);
        if (seat.ranks.empty()) continue;
        seat.node_rank = static_cast<std::uint32_t>(hosts.size());
        hosts.push_back({&seat.member, seat.ranks});
    }
    common_ = describe_world(hosts, members(), options_.describe_nodes);
    common_.generation = generation_;
}

std::vector<const Member*> Membership::members() const {
    std::vector<const Member*> members;
    for (const auto& [id, seat] : seats_) members.push_back(&seat.member);
    return members;
}

void Membership::end(bool finished, std::string why) {
    phase_ = Phase::ended;
    failing_.reset();
    orders_.ended = Ended{finished, std::move(why)};
}

void Membership::restore(State state, Deadline now, std::chrono::milliseconds limit) {
    phase_ = state.phase;
    generation_ = state.generation;
    proposed_ = phase_ == Phase::proposing ? generation_ + 1 : 0;
    seats_ = std::move(state.seats);
    common_ = std::move(state.common);
    failure_ = std::move(state.failure);
    restarts_ = state.restarts;
    world_size_ = common_.world_size;
    for (auto& [id, seat] : seats_) {
        seat.away_until = now + limit;
        if (seat.order > kUnplaced) arrivals_ = std::max(arrivals_, seat.order - kUnplaced);
    }
    if (common_.generation != generation_) {  // it was recorded without what members are told
        for (const auto& [id, seat] : seats_)
            for (const RankSlot& slot : seat.ranks)
                world_size_ = std::max(world_size_, std::to_underlying(slot.rank) + 1);
        describe_generation();
    }
    if (phase_ == Phase::gathering) look(now);
    // Newcomers wait until members that do not return are lost.
    if (phase_ == Phase::running && can_grow()) last_call_until_ = now + limit;
}

}  // namespace dtrun
