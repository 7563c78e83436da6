#include "collectives/host/locality.h"

#include "base/fd.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

namespace dtrun::collectives {
namespace {

/// "7" and what follows -> 7; -1 if it is no number
std::int32_t number_in(std::string_view text) {
    std::int32_t number = -1;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
}

/// The NUMA node of a processor, whose folder has a link to it.
std::int32_t node_of(const std::string& cpu) {
    constexpr std::string_view kNode = "node";
    std::error_code none;
    for (std::filesystem::directory_iterator entry(cpu, none), end; !none && entry != end;
         entry.increment(none)) {
        const std::string name = entry->path().filename();
        if (name.starts_with(kNode))
            if (const auto number = number_in(std::string_view(name).substr(kNode.size()));
                number >= 0)
                return number;
    }
    return -1;
}

std::int32_t socket_of(const std::string& cpu) {
    const auto text = read_file(cpu + "/topology/physical_package_id");
    return text ? number_in(*text) : -1;
}

/// What all have; -1 if they differ.
template <class Of>
std::int32_t common(std::span<const unsigned> cpus, const std::string& system, const Of& of) {
    std::optional<std::int32_t> all;
    for (const unsigned cpu : cpus) {
        const std::int32_t one = of(fmt::format("{}/cpu/cpu{}", system, cpu));
        if (one < 0 || all.value_or(one) != one) return -1;
        all = one;
    }
    return all.value_or(-1);
}

}  // namespace

Locality locality_of(std::span<const unsigned> cpus, const std::string& system) {
    return {common(cpus, system, node_of), common(cpus, system, socket_of)};
}

Locality own_locality(const std::string& system) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {};
    if (CPU_COUNT(&allowed) >= ::sysconf(_SC_NPROCESSORS_ONLN)) return {};
    std::vector<unsigned> cpus;
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
    return locality_of(cpus, system);
}

}  // namespace dtrun::collectives
