#include "base/process/soft_limits.h"

#include <sys/resource.h>
#include <algorithm>
#include <array>

namespace dtrun {
namespace {

constexpr std::array<std::string_view, 3> kNames{"core", "memlock", "stack"};
constexpr std::array<int, 3> kResources{RLIMIT_CORE, RLIMIT_MEMLOCK, RLIMIT_STACK};

static_assert(RLIM_INFINITY == kNoLimit);

std::optional<int> resource_of(std::string_view name) {
    const auto* const found = std::ranges::find(kNames, name);
    if (found == kNames.end()) return std::nullopt;
    return kResources.at(static_cast<std::size_t>(found - kNames.begin()));
}

}  // namespace

std::span<const std::string_view> forwarded_rlimits() {
    return kNames;
}

std::optional<std::uint64_t> soft_limit(std::string_view name) {
    const auto resource = resource_of(name);
    rlimit limit{};
    if (!resource || ::getrlimit(*resource, &limit) != 0) return std::nullopt;
    return limit.rlim_cur;
}

void set_forwarded_rlimit(std::string_view name, std::uint64_t value) {
    const auto resource = resource_of(name);
    rlimit limit{};
    if (!resource || ::getrlimit(*resource, &limit) != 0) return;
    const rlim_t wanted = std::min<rlim_t>(value, limit.rlim_max);
    if (*resource != RLIMIT_CORE && wanted <= limit.rlim_cur) return;
    limit.rlim_cur = wanted;
    ::setrlimit(*resource, &limit);
}

}  // namespace dtrun
