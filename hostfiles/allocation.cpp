#include "hostfiles/allocation.h"

#include "hostfiles/allocation_parts.h"

#include <fmt/format.h>
#include <algorithm>
#include <iterator>
#include <utility>

namespace dtrun {

namespace {

struct SchedulerRow {
    const char* name;
    const char* more;
    FoundAllocation (*find)(const AllocationInput& input);
};

constexpr SchedulerRow kSchedulers[] = {
#define DTRUN_SCHEDULER(name, shown, files, more) {shown, more, find_##name},
#include "hostfiles/schedulers.def"
};

const SchedulerRow& row_of(Scheduler scheduler) {
    return kSchedulers[static_cast<std::size_t>(scheduler)];
}

}  // namespace

const char* scheduler_name(Scheduler scheduler) {
    return row_of(scheduler).name;
}

std::string scheduler_names() {
    std::string names;
    for (const SchedulerRow& row : kSchedulers) {
        const char* const before = &row == std::end(kSchedulers) - 1 ? " or " : ", ";
        names += fmt::format("{}{}", names.empty() ? "" : before, row.name);
    }
    return names;
}

std::string words_for_more(Scheduler scheduler, int each, int all) {
    return fmt::format(fmt::runtime(row_of(scheduler).more), fmt::arg("each", each),
                       fmt::arg("all", all));
}

Allocation::Node node_of(const Allocation& allocation, const Host& host) {
    const auto found = std::ranges::find(allocation.hosts, host.name, &Host::name);
    if (found == allocation.hosts.end()) return {};
    return allocation.nodes[static_cast<std::size_t>(found - allocation.hosts.begin())];
}

int room_of(const Allocation& allocation, const Host& host) {
    const Allocation::Node node = node_of(allocation, host);
    const int counted = std::max(host.slots, host.slots_max.value_or(0));
    return std::max(counted, std::min(std::max(node.cpus, node.gpus), kSlotsMax));
}

void widen(HostList& hosts, const Allocation& allocation, int ranks) {
    const auto fit = [](const Host& host) {
        return std::max(host.slots, host.slots_max.value_or(0));
    };
    long long missing = ranks;
    std::vector<std::pair<Host*, int>> open;  // hosts that may have more, and how many in all
    for (Host& host : hosts) {
        missing -= fit(host);
        if (host.slots > 0 && host.slot_ids.empty())
            open.emplace_back(&host, room_of(allocation, host));
    }
    while (missing > 0) {
        std::erase_if(open, [&](const auto& one) { return fit(*one.first) >= one.second; });
        if (open.empty()) return;
        for (const auto& [host, room] : open) {
            if (missing-- <= 0) return;
            host->slots = fit(*host) + 1;
            host->slots_max.reset();
        }
    }
}

std::optional<SchedulerVariable> find_variable(const AllocationInput& input,
                                               std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) {
        const auto text = input.variable(name);
        if (text && !trim(*text).empty()) return SchedulerVariable{std::string(name), trim(*text)};
    }
    return std::nullopt;
}

Result<long long> number_of(const SchedulerVariable& variable, long long min, long long max) {
    const auto number = to_int(variable.text, min, max);
    if (!number)
        return fail_at(variable.position(), "{} is not a whole number from {} to {}; unset it",
                       in_quotes(variable.text), min, max);
    return *number;
}

Result<void> spread_evenly(HostList& hosts, int ranks, const Position& position) {
    const int count = static_cast<int>(hosts.size());
    const int each = ranks / count;
    const int first = ranks % count;
    if (each + (first > 0 ? 1 : 0) > kSlotsMax)
        return fail_at(position, "{} ranks on {} hosts are too many; a host has at most {}", ranks,
                       count, kSlotsMax);
    for (int i = 0; i < count; ++i)
        hosts[static_cast<std::size_t>(i)].slots = each + (i < first ? 1 : 0);
    return {};
}

Result<Allocation> finished(Allocation allocation, const Position& position) {
    long long slots = 0;
    for (const Host& host : allocation.hosts) slots += host.slots;
    if (slots > kRanksMax)
        return fail_at(position, "{} ranks are too many; a job has at most {}", slots, kRanksMax);
    if (slots == 0) return fail_at(position, "no host has a slot; name the hosts with -H");
    allocation.nodes.resize(allocation.hosts.size());
    if (allocation.world_size == 0) {
        allocation.world_size = static_cast<int>(slots);
        allocation.world_size_source = allocation.slots_source;
    }
    return allocation;
}

Result<std::optional<Allocation>> find_allocation(const AllocationInput& input) {
    for (const SchedulerRow& row : kSchedulers) {
        auto found = row.find(input);
        if (!found || *found) return found;
    }
    return std::nullopt;
}

}  // namespace dtrun
