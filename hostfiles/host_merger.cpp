#include "hostfiles/host_merger.h"

namespace dtrun {

namespace {

std::string shown(const std::string& value) {
    return in_quotes(value);
}
std::string shown(int value) {
    return fmt::format("{}", value);
}

// Describes a contradiction, or returns ""; a setting that was not given takes the other's value.
template <class T>
std::string merge_setting(std::string_view key, T& first, const T& again) {
    if (again == T{} || first == again) return {};
    if (first == T{}) {
        first = again;
        return {};
    }
    return fmt::format("{} {} here but {}", key, shown(again), shown(first));
}

}  // namespace

HostMerger::HostMerger(std::size_t mentions) {
    by_name_.reserve(std::min<std::size_t>(mentions, kHostsMax));
}

Result<void> HostMerger::add(const NamePattern& names, const Host& host, const Position& position) {
    mentions_ += names.count();
    if (mentions_ > kHostsMax)
        return fail_at(position, "more than {} hosts; split the list", kHostsMax);
    std::vector<std::string> expanded;
    expanded.reserve(names.count());
    names.expand_into(expanded);
    for (std::string& name : expanded) {
        hosts_.push_back(host);
        hosts_.back().name = std::move(name);
        const auto [found, is_new] = by_name_.insert(hosts_.size() - 1);
        if (is_new) {
            first_.push_back({position.line, position.column});
            continue;
        }
        hosts_.pop_back();
        if (const auto merged = merge(*found, host, position); !merged) return merged;
    }
    return {};
}

Result<void> HostMerger::merge(std::size_t first, const Host& again, const Position& position) {
    Host& host = hosts_[first];
    for (const std::string& contradiction :
         {merge_setting("user", host.user, again.user),
          merge_setting("port", host.port, again.port),
          merge_setting("identity_file", host.identity_file, again.identity_file),
          merge_setting("address", host.address, again.address)}) {
        if (!contradiction.empty())
            return fail_at(position, "host {} has {} at {}:{}; give one host one value",
                           in_quotes(host.name), contradiction, first_[first].line,
                           first_[first].column);
    }
    // A mention without a limit is limited to its slots once another mention has a limit.
    if (host.slots_max || again.slots_max)
        host.slots_max =
            host.slots_max.value_or(host.slots) + again.slots_max.value_or(again.slots);
    host.slots += again.slots;
    if (std::max(host.slots, host.slots_max.value_or(0)) > kSlotsMax)
        return fail_at(position, "the slots of host {} add up to {}; a host has at most {}",
                       in_quotes(host.name), std::max(host.slots, host.slots_max.value_or(0)),
                       kSlotsMax);
    return {};
}

}  // namespace dtrun
