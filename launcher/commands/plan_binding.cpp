#include "launcher/commands/plan_binding.h"

#include "launcher/plan/binding.h"
#include "worker/binding/bind_plan.h"
#include "worker/binding/cpu_quota.h"
#include "worker/binding/describe.h"
#include "worker/binding/gpu_numbers.h"
#include "worker/binding/threads.h"

#include <fmt/format.h>
#include <algorithm>
#include <set>

namespace dtrun::commands {
namespace {

using namespace binding;

constexpr std::string_view kThreads = "OMP_NUM_THREADS";

bool is_here(const plan::JobHost& host) {
    return host.transport == plan::Transport::local && !host.ranks.empty();
}

std::optional<std::string_view> variable_of(const plan::JobSpec& spec, const plan::JobHost& host,
                                            std::string_view name) {
    const auto& env = spec.env_of(host);
    const auto found = std::ranges::find(env, name, &plan::Options::Variable::first);
    if (found == env.end()) return std::nullopt;
    return found->second;
}

PlannedBinding::Place show(const Machine& machine, const BoundPlace& place) {
    PlannedBinding::Place shown;
    shown.cpus = cpu_text(place.cpus);
    shown.text = describe_place(machine, place.cpus, place.gpu);
    shown.numa_nodes = numa_nodes_of(machine, place.cpus);
    if (place.gpu) shown.gpu = machine.gpus[*place.gpu].name;
    if (const Device* const nic = nearest_nic(machine, place.cpus, place.gpu))
        shown.nic = nic->name;
    return shown;
}

/// The ranks of this machine, as its agent will bind them.
Result<std::optional<BindPlan>> bind_here(const plan::JobSpec& spec, const plan::JobHost& host,
                                          const BindingRequest& request, PlannedBinding& shown) {
    if (!request.needs_topology()) return std::nullopt;
    const auto machine = read_machine();
    if (!machine) return std::unexpected(machine.error());
    const Variable variable = [&](std::string_view name) { return variable_of(spec, host, name); };
    auto plan =
        binding::plan_binding(*machine, request, static_cast<std::uint32_t>(host.ranks.size()),
                              visible_gpus(*machine, variable, nvidia_uuid));
    if (!plan) return fail(plan.error(), "{}", host.host.name);
    for (std::size_t i = 0; i < host.ranks.size(); ++i) {
        PlannedBinding::Place place = show(*machine, plan->places[i]);
        if (!plan->bound) place.text = "not bound: " + place.text;
        shown.here[host.ranks[i]] = std::move(place);
    }
    return std::move(*plan);
}

void show_threads(const plan::JobHost& host, const Threads& threads, PlannedBinding& shown) {
    if (threads.by_place.empty()) return;
    std::set<std::uint32_t> numbers;
    for (std::size_t i = 0; i < host.ranks.size(); ++i) {
        const std::uint32_t number = threads.by_place[i % threads.by_place.size()];
        shown.threads[host.ranks[i]] = number;
        numbers.insert(number);
    }
    shown.threads_text =
        fmt::format("{}={} ({})", kThreads, fmt::join(numbers, " or "), threads.why);
}

/// What is known of other hosts: whether their processors count.
void show_threads_elsewhere(const plan::JobHost& host, const BindingRequest& request,
                            std::uint32_t scheduler_cpus, PlannedBinding& shown) {
    const auto ranks = static_cast<std::uint32_t>(host.ranks.size());
    if (request.to != BindTo::none && request.cpus_per_rank == 0) {
        shown.threads_text = fmt::format("{}: cores that a rank is bound to", kThreads);
        return;
    }
    const Threads threads = threads_of_ranks(request, nullptr, scheduler_cpus, 0, ranks);
    if (threads.by_place.empty()) return;
    const bool is_known = request.cpus_per_rank > 0 || scheduler_cpus > 0 || request.threads > 0;
    shown.threads_text =
        is_known ? fmt::format("{}={} ({})", kThreads, threads.by_place.front(), threads.why)
                 : fmt::format("{}: processors of the host / its ranks", kThreads);
}

}  // namespace

Result<PlannedBinding> plan_binding(const plan::JobSpec& spec) {
    PlannedBinding shown;
    if (spec.options.mpirun) return shown;
    const BindingRequest request = plan::binding_request(spec.options);
    if (request.needs_topology() || request.cpus_per_rank > 0)
        shown.asked = fmt::format("{}", fmt::join(plan::binding_words(request), " "));
    const auto scheduler_cpus = static_cast<std::uint32_t>(spec.cpus_per_rank);
    const bool sets_threads = std::ranges::find(spec.contracts, "torch") != spec.contracts.end();
    for (const plan::JobHost& host : spec.hosts) {
        const bool is_ours = sets_threads && !variable_of(spec, host, kThreads);
        if (!is_here(host)) {
            shown.elsewhere = true;
            if (is_ours && shown.threads_text.empty())
                show_threads_elsewhere(host, request, scheduler_cpus, shown);
            continue;
        }
        const auto plan = bind_here(spec, host, request, shown);
        if (!plan) return std::unexpected(plan.error());
        if (is_ours)
            show_threads(
                host,
                threads_of_ranks(request, *plan ? &**plan : nullptr, scheduler_cpus, usable_cpus(),
                                 static_cast<std::uint32_t>(host.ranks.size())),
                shown);
    }
    return shown;
}

}  // namespace dtrun::commands
