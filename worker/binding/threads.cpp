#include "worker/binding/threads.h"

#include <fmt/format.h>
#include <algorithm>

namespace dtrun::binding {

Threads threads_of_ranks(const BindingRequest& request, const BindPlan* plan,
                         std::uint32_t scheduler_cpus, std::uint32_t cpus, std::uint32_t ranks) {
    if (request.cpus_per_rank > 0) return {{request.cpus_per_rank}, "--cpus-per-rank"};
    if (plan != nullptr && plan->bound) {
        Threads threads{{}, "cores that a rank is bound to"};
        for (const BoundPlace& place : plan->places) threads.by_place.push_back(place.threads);
        return threads;
    }
    if (scheduler_cpus > 0) return {{scheduler_cpus}, "processors of a task, says the scheduler"};
    if (ranks < 2) return {};
    if (request.threads > 0) return {{request.threads}, "as torchrun has it"};
    return {{std::max(cpus / ranks, 1u)}, fmt::format("{} processors / {} ranks", cpus, ranks)};
}

}  // namespace dtrun::binding
