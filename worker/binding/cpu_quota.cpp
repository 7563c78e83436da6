#include "worker/binding/cpu_quota.h"

#include "base/fd.h"
#include "base/strings.h"
#include "worker/binding/cpu_list.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace dtrun::binding {
namespace {

constexpr long long kTimeMax = INT64_MAX / 2;  // in microseconds

std::optional<long long> number_in(const std::string& path) {
    const auto text = read_file(path);
    return text ? to_int(trim(*text), 0, kTimeMax) : std::nullopt;
}

std::optional<std::uint32_t> rounded_up(std::optional<long long> quota,
                                        std::optional<long long> period) {
    if (!quota || !period || *quota == 0 || *period == 0) return std::nullopt;
    const long long cpus = (*quota - 1) / *period + 1;
    return static_cast<std::uint32_t>(std::min<long long>(cpus, UINT32_MAX));
}

/// "200000 100000", or "max 100000" for no limit.
std::optional<std::uint32_t> unified_quota(const std::string& folder) {
    const auto text = read_file(folder + "/cpu.max");
    if (!text) return std::nullopt;
    const auto numbers = split(trim(*text), ' ');
    if (numbers.size() != 2) return std::nullopt;
    return rounded_up(to_int(numbers[0], 0, kTimeMax), to_int(numbers[1], 0, kTimeMax));
}

/// The quota is -1 for no limit.
std::optional<std::uint32_t> separate_quota(const std::string& folder) {
    return rounded_up(number_in(folder + "/cpu.cfs_quota_us"),
                      number_in(folder + "/cpu.cfs_period_us"));
}

/// The least of a group and those around it. In a container the path may be the host's, and only its end is there.
template <class Quota>
std::optional<std::uint32_t> least_quota(const std::string& mount, std::string path, Quota quota) {
    std::optional<std::uint32_t> least;
    for (;;) {
        if (path == "/") path.clear();
        if (const auto own = quota(mount + path); own && (!least || *own < *least)) least = own;
        if (path.empty()) return least;
        path.resize(std::min(path.rfind('/'), path.size() - 1));
    }
}

}  // namespace

std::optional<std::uint32_t> cpu_quota(const std::string& root) {
    const auto groups = read_file(root + "/proc/self/cgroup");
    if (!groups) return std::nullopt;
    const std::string mounts = root + "/sys/fs/cgroup";
    for (const std::string_view line : split(*groups, '\n')) {
        const auto fields = split(line, ':');  // number:controllers:path
        if (fields.size() < 3) continue;
        const auto controllers = split(fields[1], ',');
        const bool is_cpu = std::ranges::find(controllers, "cpu") != controllers.end();
        const std::string path(line.substr(fields[0].size() + fields[1].size() + 2));
        std::optional<std::uint32_t> quota;
        if (fields[1].empty()) quota = least_quota(mounts, path, unified_quota);
        if (is_cpu) quota = least_quota(mounts + "/cpu", path, separate_quota);
        if (quota) return quota;
    }
    return std::nullopt;
}

std::uint32_t usable_cpus() {
    const auto own = own_cpus();
    const auto cpus = own ? static_cast<std::uint32_t>(own->size()) : 1;
    return std::max(std::min(cpus, cpu_quota().value_or(cpus)), 1u);
}

}  // namespace dtrun::binding
