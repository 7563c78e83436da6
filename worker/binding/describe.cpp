#include "worker/binding/describe.h"

#include <fmt/format.h>
#include <algorithm>
#include <map>

namespace dtrun::binding {
namespace {

/// "socket 0 cores 0-3, socket 1 cores 0,2"
std::string cores_text(const Machine& machine, const CpuList& cpus) {
    std::map<unsigned, CpuList> by_socket;
    for (const Core& core : machine.cores)
        if (!common_cpus(core.cpus, cpus).empty()) by_socket[core.socket].push_back(core.number);
    std::string text;
    for (const auto& [socket, numbers] : by_socket)
        text += fmt::format("{}socket {} core{} {}", text.empty() ? "" : ", ", socket,
                            numbers.size() == 1 ? "" : "s", cpu_text(numbers));
    return text;
}

std::size_t common_way(const Device& a, const Device& b) {
    const auto [one, other] = std::ranges::mismatch(a.path, b.path);
    return static_cast<std::size_t>(one - a.path.begin());
}

}  // namespace

CpuList numa_nodes_of(const Machine& machine, const CpuList& cpus) {
    CpuList nodes;
    for (const Core& core : machine.cores)
        if (!common_cpus(core.cpus, cpus).empty()) nodes.push_back(core.numa);
    std::ranges::sort(nodes);
    const auto [again, end] = std::ranges::unique(nodes);
    nodes.erase(again, end);
    return nodes;
}

const Device* nearest_nic(const Machine& machine, const CpuList& cpus,
                          std::optional<std::size_t> gpu) {
    const Device* best = nullptr;
    std::size_t best_way = 0;
    for (const Device& nic : machine.nics) {
        const bool is_near = !common_cpus(nic.near, cpus).empty();
        const std::size_t way = gpu ? common_way(nic, machine.gpus[*gpu]) : is_near ? 1 : 0;
        if (way <= best_way) continue;
        best = &nic;
        best_way = way;
    }
    return best;
}

std::string describe_place(const Machine& machine, const CpuList& cpus,
                           std::optional<std::size_t> gpu) {
    std::string text = fmt::format("cpu{} {}", cpus.size() == 1 ? "" : "s", cpu_text(cpus));
    if (const std::string cores = cores_text(machine, cpus); !cores.empty())
        text += fmt::format(" ({})", cores);
    const CpuList nodes = numa_nodes_of(machine, cpus);
    if (!nodes.empty())
        text += fmt::format(", NUMA node{} {}", nodes.size() == 1 ? "" : "s", cpu_text(nodes));
    if (gpu) text += ", GPU " + machine.gpus[*gpu].name;
    if (const Device* const nic = nearest_nic(machine, cpus, gpu)) text += ", NIC " + nic->name;
    return text;
}

}  // namespace dtrun::binding
