#include "worker/agent/rank_binding.h"

#include "worker/binding/cpu_list.h"
#include "worker/binding/cpu_quota.h"
#include "worker/binding/describe.h"
#include "worker/binding/threads.h"
#include "worker/ranks/process_tree.h"

#include <fmt/format.h>
#include <algorithm>
#include <utility>

namespace dtrun::agent {

using namespace binding;

RankBinding::RankBinding(Options options) : options_(std::move(options)) {
    if (!options_.request.ranks.empty()) ranks_ = std::max(options_.request.ranks.front(), 1u);
}

Result<void> RankBinding::open(contracts::ContractFacts& facts) {
    if (options_.request.needs_topology()) {
        auto machine = read_machine();
        if (!machine) return std::unexpected(machine.error());
        machine_ = std::move(*machine);
        visible_ = visible_gpus(*machine_, options_.variable, nvidia_uuid);
        planned_ = plan(visible_);
    }
    choose_threads();
    facts.threads = threads_;
    const bool has_torch = std::ranges::find(facts.contracts, "torch") != facts.contracts.end();
    says_threads_ = has_torch && !options_.variable("OMP_NUM_THREADS");
    return {};
}

void RankBinding::choose_threads() {
    threads_ = threads_of_ranks(options_.request, plan_ ? &*plan_ : nullptr,
                                options_.scheduler_cpus, usable_cpus(), ranks_)
                   .by_place;
}

/// The host has more slots than before: as if it had had them from the start.
void RankBinding::grow(std::uint32_t places) {
    if (places <= ranks_) return;
    ranks_ = places;
    has_grown_ = true;
    if (machine_ && plan_) {
        std::map<SlotIndex, CpuList> had;
        for (const auto& [place, pid] : running_) had[place] = place_of(place)->cpus;
        if (const auto planned = plan(visible_); !planned)
            return options_.tell(fmt::format("{}; new ranks share the processors of others",
                                             planned.error().message));
        for (const auto& [place, cpus] : had) move(place, cpus);
    }
    choose_threads();
}

/// Threads of a rank that have what it was given get what it would be given now.
void RankBinding::move(SlotIndex place, const CpuList& from) {
    const pid_t pid = running_.at(place);
    const CpuList& to = place_of(place)->cpus;
    if (to == from) return;
    if (const auto moved = ranks::bind_process(pid, to, from); !moved)
        options_.tell(fmt::format("pid {}: {}", pid, moved.error().message));
}

Result<void> RankBinding::plan(const std::vector<std::size_t>& visible) {
    auto plan = plan_binding(*machine_, options_.request, ranks_, visible);
    if (!plan) return std::unexpected(plan.error());
    plan_ = std::move(*plan);
    return {};
}

asio::awaitable<Result<void>> RankBinding::prepare(const std::string&) {
    if (planned_ && plan_ && !plan_->note.empty()) options_.tell(plan_->note);
    co_return planned_;
}

/// With slots 2 and 3 of a host its ranks see GPUs 2 and 3, which was not known before.
Result<void> RankBinding::begin(const Assign& assign) {
    grow(assign.places);
    if (!machine_ || !options_.devices_by_slot || options_.variable("CUDA_VISIBLE_DEVICES"))
        return {};
    std::vector<std::size_t> slots;
    for (const RankSlot& rank : assign.ranks) slots.push_back(rank.slot);
    return plan(slots);
}

Result<void> RankBinding::go_on(const Assign& assign) {
    grow(assign.places);
    return {};
}

const BoundPlace* RankBinding::place_of(SlotIndex place) const {
    if (!plan_ || plan_->places.empty()) return nullptr;
    return &plan_->places[std::to_underlying(place) % plan_->places.size()];
}

Result<void> RankBinding::offer(const Assign& world, const RankSlot& rank,
                                ranks::RankOffer& offer) {
    grow(world.places);
    if (has_grown_) offer.threads = threads_;
    const BoundPlace* const place = place_of(rank.place);
    if (place != nullptr && plan_->bound) offer.cpus = place->cpus;
    return {};
}

void RankBinding::started(RankPid& rank) {
    running_[rank.place] = static_cast<pid_t>(rank.pid);
    if (says_threads_ && !threads_.empty())
        rank.threads = threads_[std::to_underlying(rank.place) % threads_.size()];
    if (!plan_) return;
    const auto has = cpus_of(static_cast<pid_t>(rank.pid));
    if (!has) return;  // it has ended already
    if (plan_->bound) compare(rank, *has);
    if (!options_.request.report) return;
    rank.binding = describe_place(*machine_, *has, place_of(rank.place)->gpu);
    if (!plan_->bound) rank.binding = "not bound: " + rank.binding;
}

void RankBinding::compare(const RankPid& rank, const CpuList& has) const {
    const CpuList& wanted = place_of(rank.place)->cpus;
    if (has == wanted) return;
    options_.tell(
        fmt::format("rank {} was bound to processors {}, but uses {}: its program, or something on "
                    "the host, has changed that",
                    rank.rank, cpu_text(wanted), cpu_text(has)));
}

}  // namespace dtrun::agent
