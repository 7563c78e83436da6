#include "launcher/discovery/host_listings.h"

#include <fmt/format.h>
#include <utility>

namespace dtrun::discovery {

HostListings::HostListings(std::string source, const HostList& first) : source_(std::move(source)) {
    for (const Host& host : first) known_[host.name] = {host.slots, 0};
}

HostChanges HostListings::read(const HostList& list,
                               const std::function<bool(const std::string& name)>& has_agent) {
    HostChanges changes;
    if (std::exchange(failing_, false))
        changes.notes.push_back(fmt::format("{} lists hosts again", source_));
    empty_ = list.empty() && !known_.empty() ? empty_ + 1 : 0;
    if (empty_ == 1)
        changes.notes.push_back(fmt::format(
            "{} lists no host; if it does so {} times, all of them are given up", source_, kEmpty));
    if (empty_ > 0 && empty_ < kEmpty) return changes;

    std::map<std::string, Known> before = std::move(known_);
    known_.clear();
    for (const Host& host : list) {
        if (host.slots < 1) continue;
        const auto found = before.find(host.name);
        if (found == before.end() || found->second.slots != host.slots)
            changes.listed.push_back(host);
        if (found != before.end()) before.erase(found);
        known_[host.name] = {host.slots, 0};
    }
    for (auto& [name, host] : before) {
        const bool waits = empty_ == 0 && host.missing + 1 < kMissing && has_agent(name);
        if (waits)
            known_[name] = {host.slots, host.missing + 1};
        else
            changes.gone.push_back(name);
    }
    return changes;
}

std::optional<std::string> HostListings::failed(const std::string& why) {
    if (std::exchange(failing_, true)) return std::nullopt;
    return fmt::format("{}: {}; the hosts stay as they are", source_, why);
}

}  // namespace dtrun::discovery
