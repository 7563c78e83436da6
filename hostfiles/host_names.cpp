#include "hostfiles/host_names.h"

#include "hostfiles/host_item.h"
#include "hostfiles/host_merger.h"

#include <algorithm>

namespace dtrun {

namespace {

/// Takes a run of digits, or else one byte, off the front.
std::string_view take_part(std::string_view& text) {
    std::size_t size = 0;
    while (size < text.size() && is_digit(text[size])) ++size;
    const std::string_view part = text.substr(0, std::max<std::size_t>(size, 1));
    text.remove_prefix(part.size());
    return part;
}

std::string_view without_zeros(std::string_view digits) {
    return digits.substr(std::min(digits.find_first_not_of('0'), digits.size()));
}

/// -1, 0 or 1; runs of digits compare as numbers, of any length.
int compare_parts(std::string_view a, std::string_view b) {
    if (!is_digit(a[0]) || !is_digit(b[0])) return a.compare(b);
    const std::string_view number_a = without_zeros(a);
    const std::string_view number_b = without_zeros(b);
    if (number_a.size() != number_b.size()) return number_a.size() < number_b.size() ? -1 : 1;
    return number_a.compare(number_b);
}

bool comes_before(std::string_view a, std::string_view b) {
    std::string_view rest_a = a;
    std::string_view rest_b = b;
    while (!rest_a.empty() && !rest_b.empty()) {
        const int order = compare_parts(take_part(rest_a), take_part(rest_b));
        if (order != 0) return order < 0;
    }
    if (rest_a.empty() != rest_b.empty()) return rest_a.empty();
    return a.size() != b.size() ? a.size() < b.size() : a < b;  // they differ in zeros at most
}

/// "n1" of "n1.example.com"; nothing for a name without a dot, and for an address.
std::optional<std::string_view> first_label(std::string_view name) {
    const std::size_t dot = name.find('.');
    if (dot == std::string_view::npos || is_address(std::string(name))) return std::nullopt;
    return name.substr(0, dot);
}

}  // namespace

HostIndex::HostIndex(const HostList& hosts) {
    whole_.reserve(hosts.size());
    for (std::size_t i = 0; i < hosts.size(); ++i) {
        whole_.emplace(hosts[i].name, i);
        const auto label = first_label(hosts[i].name);
        if (!label) continue;
        const auto [entry, is_new] = short_.emplace(*label, i);
        if (!is_new) entry->second.reset();
    }
}

std::optional<std::size_t> HostIndex::find(std::string_view name) const {
    if (const auto same = whole_.find(name); same != whole_.end()) return same->second;
    if (const auto label = first_label(name)) {
        const auto bare = whole_.find(*label);
        return bare == whole_.end() ? std::nullopt : std::optional(bare->second);
    }
    const auto longer = short_.find(name);
    return longer == short_.end() ? std::nullopt : longer->second;
}

Result<HostList> merge_names(const HostList& hosts, std::string_view what) {
    HostMerger merged(hosts.size());
    Position position{what, 0};
    for (const Host& host : hosts) {
        ++position.line;
        const auto added = merged.add(NamePattern::verbatim(host.name), host, position);
        if (!added) return std::unexpected(added.error());
    }
    return merged.take();
}

Result<HostList> shorten_names(const HostList& hosts) {
    HostList shortened = hosts;
    for (Host& host : shortened)
        if (!is_address(host.name))
            host.name.resize(std::min(host.name.find('.'), host.name.size()));
    return merge_names(shortened, "--short");
}

void sort_naturally(HostList& hosts) {
    std::stable_sort(hosts.begin(), hosts.end(),
                     [](const Host& a, const Host& b) { return comes_before(a.name, b.name); });
}

}  // namespace dtrun
