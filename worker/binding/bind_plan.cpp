#include "worker/binding/bind_plan.h"

#include <fmt/format.h>
#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

namespace dtrun::binding {
namespace {

using Cores = std::vector<std::size_t>;  // indices of Machine::cores, ascending

/// The part of a machine that cores have in common.
unsigned part_of(const Core& core, std::size_t index, MapWithin level) {
    switch (level) {
        case MapWithin::core:
            return static_cast<unsigned>(index);
        case MapWithin::l3:
            return core.l3;
        case MapWithin::numa:
            return core.numa;
        case MapWithin::socket:
            return core.socket;
        default:
            return 0;
    }
}

const char* name_of(MapWithin level) {
    switch (level) {
        case MapWithin::l3:
            return "L3 cache";
        case MapWithin::numa:
            return "NUMA node";
        case MapWithin::socket:
            return "socket";
        case MapWithin::gpu:
            return "GPU's NUMA node";
        case MapWithin::core:
            return "core";
        default:
            return "host";
    }
}

/// Cores by part, in the order in which the parts begin.
std::vector<Cores> parts_of(const Machine& machine, const Cores& cores, MapWithin level) {
    std::vector<Cores> parts;
    std::map<unsigned, std::size_t> known;
    for (const std::size_t index : cores) {
        const unsigned part = part_of(machine.cores[index], index, level);
        const auto [entry, is_new] = known.try_emplace(part, parts.size());
        if (is_new) parts.emplace_back();
        parts[entry->second].push_back(index);
    }
    return parts;
}

Cores every_core(const Machine& machine) {
    Cores all(machine.cores.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    return all;
}

/// The largest number of cores that `ranks` ranks can have if none has cores of two parts; 0: too many ranks.
std::size_t equal_share(const std::vector<Cores>& parts, std::size_t ranks) {
    std::size_t share = 0;
    for (const Cores& part : parts) share = std::max(share, part.size());
    const auto fits = [&parts, ranks](std::size_t cores) {
        std::size_t places = 0;
        for (const Cores& part : parts) places += part.size() / cores;
        return places >= ranks;
    };
    while (share > 0 && !fits(share)) --share;
    return share;
}

/// Makes one plan.
class Planner {
public:
    Planner(const Machine& machine, const BindingRequest& request, std::uint32_t ranks,
            const std::vector<std::size_t>& visible)
        : machine_(machine),
          request_(request),
          ranks_(ranks),
          all_(every_core(machine)),
          used_(machine.cores.size()) {
        for (const std::size_t gpu : visible)
            if (gpu < machine.gpus.size()) gpus_.push_back(gpu);
        if (gpus_.empty()) {
            gpus_.resize(machine.gpus.size());
            std::iota(gpus_.begin(), gpus_.end(), std::size_t{0});
        }
    }

    Result<BindPlan> plan() {
        if (all_.empty()) return fail(Errc::invalid_input, "there is no processor to bind to");
        to_ = request_.to;
        by_ = request_.by;
        if (to_ == BindTo::automatic) choose();
        if (by_ == MapWithin::automatic) by_ = has_gpu_each() ? MapWithin::gpu : MapWithin::slot;
        if (to_ == BindTo::share && by_ == MapWithin::gpu) to_ = BindTo::gpu;
        if (to_ == BindTo::share && request_.cpus_per_rank > 0) to_ = BindTo::core;
        if (to_ == BindTo::gpu) by_ = MapWithin::gpu;
        if (by_ == MapWithin::gpu && to_ != BindTo::none && gpus_.empty())
            return fail(Errc::invalid_input, "there is no GPU to bind to");
        std::vector<Cores> chosen;
        for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
            auto cores = choose_for(rank);
            if (!cores) return std::unexpected(cores.error());
            chosen.push_back(std::move(*cores));
        }
        return describe(chosen);
    }

private:
    bool has_gpu_each() const { return !gpus_.empty() && ranks_ <= gpus_.size(); }

    /// What suits best where the user leaves it to us.
    void choose() {
        if (has_gpu_each()) {
            to_ = request_.cpus_per_rank > 0 ? BindTo::core : BindTo::numa;
            by_ = MapWithin::gpu;
        } else if (request_.cpus_per_rank == 0 && ranks_ > all_.size()) {
            to_ = BindTo::none;
            note_ = fmt::format("not bound: {} ranks have {} cores", ranks_, all_.size());
        } else {
            to_ = BindTo::share;
        }
    }

    Result<Cores> choose_for(std::uint32_t rank) {
        switch (to_) {
            case BindTo::none:
            case BindTo::automatic:
                return all_;
            case BindTo::core:
                return take(within(rank), std::max(request_.cpus_per_rank, 1u));
            case BindTo::share:
                return share_of(rank);
            case BindTo::l3:
                return least_used(within(rank), MapWithin::l3);
            case BindTo::numa:
                return least_used(within(rank), MapWithin::numa);
            case BindTo::socket:
                return least_used(within(rank), MapWithin::socket);
            case BindTo::gpu:
                return part_beside_gpu(rank);
        }
        return all_;
    }

    std::optional<std::size_t> gpu_of(std::uint32_t rank) const {
        if (gpus_.empty()) return std::nullopt;
        return gpus_[rank % gpus_.size()];
    }

    /// Cores next to the GPU of a rank; all cores where we may use none of these.
    Cores beside_gpu(std::uint32_t rank) const {
        const CpuList& near = machine_.gpus[*gpu_of(rank)].near;
        Cores cores;
        for (const std::size_t index : all_)
            if (!common_cpus(machine_.cores[index].cpus, near).empty()) cores.push_back(index);
        return cores.empty() ? all_ : cores;
    }

    /// Where --map-by leads a rank.
    Cores within(std::uint32_t rank) const {
        if (by_ == MapWithin::gpu) return beside_gpu(rank);
        // A rank with several cores has them beside each other, whichever core it begins with.
        if (by_ == MapWithin::core && request_.cpus_per_rank > 1) return all_;
        const std::vector<Cores> parts = parts_of(machine_, all_, by_);
        return parts[rank % parts.size()];
    }

    std::unexpected<Error> too_few(std::size_t each, const Cores& from) const {
        if (from.size() < all_.size()) return no_room(each, name_of(by_));
        if (each == 1)
            return fail(
                Errc::invalid_input,
                "{} ranks need a core each, but there are {}; start fewer ranks here, or say "
                "--oversubscribe",
                ranks_, from.size());
        return fail(Errc::invalid_input,
                    "{} ranks x {} cores = {} cores, but there are {}; lower --cpus-per-rank, "
                    "start fewer ranks here, or say --oversubscribe",
                    ranks_, each, ranks_ * each, from.size());
    }

    std::unexpected<Error> no_room(std::size_t each, const char* where) const {
        return fail(Errc::invalid_input,
                    "{} ranks x {} core{} = {}, but no {} has room for {} more; lower "
                    "--cpus-per-rank, start fewer ranks here, or say --oversubscribe",
                    ranks_, each, each == 1 ? "" : "s", ranks_ * each, where, each);
    }

    /// The first cores of those that the fewest ranks have, in one NUMA node if one has enough.
    Result<Cores> take(const Cores& from, std::size_t count) {
        if (count > from.size() && !request_.overlap) return too_few(count, from);
        count = std::min(count, from.size());
        for (unsigned uses = 0;; ++uses) {
            if (uses > 0 && !request_.overlap) return too_few(count, from);
            Cores free;
            for (const std::size_t core : from)
                if (used_[core] <= uses) free.push_back(core);
            for (const Cores& node : parts_of(machine_, free, MapWithin::numa))
                if (node.size() >= count) return use(node, count);
            if (free.size() >= count) return use(free, count);
        }
    }

    Cores use(const Cores& from, std::size_t count) {
        Cores taken(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(count));
        for (const std::size_t core : taken) ++used_[core];
        return taken;
    }

    /// The whole part that the fewest ranks have, of those that `from` touches; with --cpus-per-rank one that
    /// has room for another rank.
    Result<Cores> least_used(const Cores& from, MapWithin level) {
        const std::size_t each = request_.cpus_per_rank;
        const Cores* best = nullptr;
        std::size_t best_ranks = 0;
        const std::vector<Cores> parts = parts_of(machine_, all_, level);
        for (const Cores& part : parts) {
            if (std::ranges::find_first_of(from, part) == from.end()) continue;
            const std::size_t ranks = users_[part.front()];
            if ((ranks + 1) * each > part.size() && !request_.overlap) continue;
            if (best != nullptr && ranks >= best_ranks) continue;
            best = &part;
            best_ranks = ranks;
        }
        if (best == nullptr) return no_room(each, name_of(level));
        ++users_[best->front()];
        return *best;
    }

    /// A part of the cores beside its GPU, which it divides with the ranks whose GPUs are there, too. The
    /// first of these get what is left over, as with torchrun.
    Result<Cores> part_beside_gpu(std::uint32_t rank) {
        const Cores beside = beside_gpu(rank);
        if (request_.cpus_per_rank > 0) return take(beside, request_.cpus_per_rank);
        std::size_t before = 0, together = 0;
        for (std::uint32_t other = 0; other < ranks_; ++other) {
            if (beside_gpu(other) != beside) continue;
            ++together;
            if (other < rank) ++before;
        }
        const std::size_t each = beside.size() / together, over = beside.size() % together;
        if (each == 0 && !request_.overlap) return no_room(1, "GPU's NUMA node");
        if (each == 0) return beside;
        const std::size_t first = before * each + std::min(before, over);
        const auto begin = beside.begin() + static_cast<std::ptrdiff_t>(first);
        return Cores(begin, begin + static_cast<std::ptrdiff_t>(each + (before < over ? 1 : 0)));
    }

    Result<Cores> share_of(std::uint32_t rank) {
        if (shares_.empty()) divide();
        if (shares_.empty()) return take(all_, 1);
        return shares_[rank];
    }

    /// Fewer ranks than NUMA nodes get several whole nodes each. More get parts of nodes, all of one size.
    void divide() {
        const std::vector<Cores> nodes = parts_of(machine_, all_, MapWithin::numa);
        const std::size_t whole = nodes.size() / ranks_;
        for (std::size_t rank = 0; whole > 1 && rank < ranks_; ++rank) {
            Cores& share = shares_.emplace_back();
            for (std::size_t i = 0; i < whole; ++i)
                std::ranges::copy(nodes[rank * whole + i], std::back_inserter(share));
        }
        if (!shares_.empty()) return;
        const std::size_t size = equal_share(nodes, ranks_);
        if (size == 0) return;
        const std::vector<std::size_t> ranks = ranks_of_nodes(nodes, size);
        for (std::size_t node = 0; node < nodes.size(); ++node)
            for (std::size_t i = 0; i < ranks[node]; ++i) {
                const auto begin = nodes[node].begin() + static_cast<std::ptrdiff_t>(i * size);
                shares_.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(size));
            }
    }

    /// How many ranks each node gets: the next one goes where ranks have the most cores.
    std::vector<std::size_t> ranks_of_nodes(const std::vector<Cores>& nodes,
                                            std::size_t size) const {
        std::vector<std::size_t> ranks(nodes.size());
        for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
            std::size_t best = nodes.size();
            for (std::size_t node = 0; node < nodes.size(); ++node) {
                if ((ranks[node] + 1) * size > nodes[node].size()) continue;
                if (best == nodes.size() ||
                    nodes[node].size() * (ranks[best] + 1) > nodes[best].size() * (ranks[node] + 1))
                    best = node;
            }
            ++ranks[best];
        }
        return ranks;
    }

    BindPlan describe(const std::vector<Cores>& chosen) const {
        BindPlan plan{to_ != BindTo::none, {}, note_};
        std::map<Cores, std::size_t> sharing;
        for (const Cores& cores : chosen) ++sharing[cores];
        for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
            const Cores& cores = chosen[rank];
            BoundPlace& place = plan.places.emplace_back();
            for (const std::size_t core : cores)
                place.cpus = all_cpus(place.cpus, machine_.cores[core].cpus);
            place.gpu = gpu_of(rank);
            place.threads = request_.cpus_per_rank > 0
                                ? request_.cpus_per_rank
                                : static_cast<std::uint32_t>(
                                      std::max<std::size_t>(cores.size() / sharing[cores], 1));
        }
        return plan;
    }

    const Machine& machine_;
    const BindingRequest& request_;
    const std::uint32_t ranks_;
    const Cores all_;
    std::vector<std::size_t> gpus_;  // that ranks see
    BindTo to_{};
    MapWithin by_{};
    std::string note_;
    std::vector<unsigned> used_;                // how many ranks have a core
    std::map<std::size_t, std::size_t> users_;  // how many have a part, by its first core
    std::vector<Cores> shares_;
};

}  // namespace

Result<BindPlan> plan_binding(const Machine& machine, const BindingRequest& request,
                              std::uint32_t ranks, const std::vector<std::size_t>& visible) {
    if (request.cpus.empty()) return Planner(machine, request, ranks, visible).plan();
    const auto asked = parse_cpus(request.cpus);
    if (!asked) return std::unexpected(asked.error());
    const Machine part = restrict_to(machine, *asked);
    const CpuList missing = [&] {
        CpuList rest;
        std::ranges::set_difference(*asked, part.cpus(), std::back_inserter(rest));
        return rest;
    }();
    if (!missing.empty())
        return fail(Errc::invalid_input,
                    "processors {} are asked for, of which {} may not be used here",
                    cpu_text(*asked), cpu_text(missing));
    return Planner(part, request, ranks, visible).plan();
}

}  // namespace dtrun::binding
