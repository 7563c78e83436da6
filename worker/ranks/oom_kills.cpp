#include "worker/ranks/oom_kills.h"

#include "base/fd.h"
#include "base/strings.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>

namespace dtrun::ranks {
namespace {

/// The line "oom_kill 3" of a file.
std::optional<std::uint64_t> count_in(const std::string& path) {
    constexpr std::string_view kName = "oom_kill ";
    const auto text = read_file(path);
    if (!text) return std::nullopt;
    for (const std::string_view line : split(*text, '\n')) {
        if (!line.starts_with(kName)) continue;
        const auto count =
            to_int(trim(line.substr(kName.size())), 0, std::numeric_limits<long long>::max());
        if (count) return static_cast<std::uint64_t>(*count);
    }
    return std::nullopt;
}

/// Of a group, or the nearest around it that tells. In a container the path may be the host's, and only its
/// end is there.
std::optional<std::uint64_t> count_of_group(const std::string& mount, std::string path,
                                            const char* file) {
    for (;;) {
        if (path == "/") path.clear();
        if (const auto count = count_in(mount + path + file)) return count;
        if (path.empty()) return std::nullopt;
        path.resize(path.rfind('/'));
    }
}

}  // namespace

std::uint64_t oom_kills(const std::string& root) {
    const std::string mounts = root + "/sys/fs/cgroup";
    const auto groups = read_file(root + "/proc/self/cgroup").value_or("");
    for (const std::string_view line : split(groups, '\n')) {
        const auto fields = split(line, ':');  // number:controllers:path
        if (fields.size() < 3) continue;
        const auto controllers = split(fields[1], ',');
        const bool is_memory = std::ranges::find(controllers, "memory") != controllers.end();
        const std::string path(line.substr(fields[0].size() + fields[1].size() + 2));
        std::optional<std::uint64_t> count;
        if (path.starts_with('/') && fields[1].empty())
            count = count_of_group(mounts, path, "/memory.events");
        if (path.starts_with('/') && is_memory)
            count = count_of_group(mounts + "/memory", path, "/memory.oom_control");
        if (count) return *count;
    }
    return count_in(root + "/proc/vmstat").value_or(0);
}

}  // namespace dtrun::ranks
