#include "worker/agent/rank_binding.h"

#include "worker/binding/cpu_list.h"
#include "worker/binding/describe.h"
#include "worker/binding/threads.h"

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
        planned_ = plan(visible_gpus(*machine_, options_.variable, nvidia_uuid));
    }
    const auto own = own_cpus();
    const auto cpus = own ? static_cast<std::uint32_t>(own->size()) : 1;
    facts.threads = threads_ = threads_of_ranks(options_.request, plan_ ? &*plan_ : nullptr,
                                                options_.scheduler_cpus, cpus, ranks_)
                                   .by_place;
    const bool has_torch = std::ranges::find(facts.contracts, "torch") != facts.contracts.end();
    says_threads_ = has_torch && !options_.variable("OMP_NUM_THREADS");
    return {};
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
    if (!machine_ || !options_.devices_by_slot || options_.variable("CUDA_VISIBLE_DEVICES"))
        return {};
    std::vector<std::size_t> slots;
    for (const RankSlot& rank : assign.ranks) slots.push_back(rank.slot);
    return plan(slots);
}

const BoundPlace* RankBinding::place_of(SlotIndex place) const {
    if (!plan_ || plan_->places.empty()) return nullptr;
    return &plan_->places[std::to_underlying(place) % plan_->places.size()];
}

Result<void> RankBinding::offer(const Assign&, const RankSlot& rank, ranks::RankOffer& offer) {
    const BoundPlace* const place = place_of(rank.place);
    if (place != nullptr && plan_->bound) offer.cpus = place->cpus;
    return {};
}

void RankBinding::started(RankPid& rank) {
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
