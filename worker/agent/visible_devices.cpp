#include "worker/agent/visible_devices.h"

#include "base/strings.h"

#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <utility>
#include <vector>

namespace dtrun::agent {

std::optional<std::string> visible_devices(SlotIndex place, std::uint32_t local_rank,
                                           std::optional<std::string_view> inherited,
                                           std::uint32_t devices) {
    const std::size_t own = std::to_underlying(place);
    if (own == local_rank) return std::nullopt;
    std::vector<std::string> list;
    if (inherited)
        for (const std::string_view device : split(*inherited, ',')) list.emplace_back(device);
    else
        for (std::uint32_t device = 0; device < devices; ++device)
            list.push_back(fmt::format("{}", device));
    if (own >= list.size() || local_rank >= list.size()) return std::nullopt;
    std::string device = std::move(list[own]);
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(own));
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(local_rank), std::move(device));
    return fmt::format("{}", fmt::join(list, ","));
}

bool has_accelerators() {
    const auto is_there = [](const char* path) { return ::access(path, F_OK) == 0; };
    return is_there("/dev/nvidiactl") || is_there("/dev/kfd");
}

}  // namespace dtrun::agent
