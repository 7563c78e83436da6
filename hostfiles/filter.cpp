#include "hostfiles/filter.h"

#include "hostfiles/host_item.h"
#include "hostfiles/host_names.h"

#include <algorithm>
#include <numeric>

namespace dtrun {

namespace {

/// What a filter says about one host.
struct Choice {
    bool named = false;
    bool all_slots = false;
    std::vector<int> slots;  ///< sorted at the end of parsing, no repetitions
};

std::vector<int> slots_listed(const Host& host) {
    if (!host.slot_ids.empty()) return host.slot_ids;
    std::vector<int> slots(static_cast<std::size_t>(std::max(host.slots, 0)));
    std::iota(slots.begin(), slots.end(), 0);
    return slots;
}

/// "0-3" or "0,2,5-7"; past eight parts "...".
std::string show_slots(const std::vector<int>& slots) {
    std::string shown;
    int parts = 0;
    for (std::size_t i = 0; i < slots.size();) {
        std::size_t end = i + 1;
        while (end < slots.size() && slots[end] == slots[end - 1] + 1) ++end;
        if (++parts > 8) return shown + ",...";
        shown += fmt::format("{}{}", i == 0 ? "" : ",", slots[i]);
        if (end - i > 1) shown += fmt::format("-{}", slots[end - 1]);
        i = end;
    }
    return shown.empty() ? "none" : shown;
}

/// Reads one filter against the hosts that it chooses from.
class FilterParser {
public:
    FilterParser(const HostList& hosts, Position position)
        : hosts_(hosts), position_(position), index_(hosts) {}

    /// One choice for each host.
    Result<std::vector<Choice>> parse(std::string_view text);

private:
    Result<void> parse_node(const Token& node);
    Result<std::vector<int>> parse_slot_numbers(std::string_view text,
                                                const Position& position) const;
    Result<void> choose(const std::string& name, const std::vector<int>& slots,
                        const Position& position);
    Result<void> check_slots(const Host& host, const std::vector<int>& slots,
                             const Position& position) const;

    const HostList& hosts_;
    Position position_;
    HostIndex index_;
    std::vector<Choice> choices_;
    std::size_t mentions_ = 0;  ///< hosts and slots named so far, to bound time and memory
};

Result<std::vector<Choice>> FilterParser::parse(std::string_view text) {
    choices_.assign(hosts_.size(), {});
    for (const Token& node : split_outside_brackets(text, "@")) {
        const auto parsed = parse_node(node);
        if (!parsed) return std::unexpected(parsed.error());
    }
    for (Choice& choice : choices_) {
        std::sort(choice.slots.begin(), choice.slots.end());
        choice.slots.erase(std::unique(choice.slots.begin(), choice.slots.end()),
                           choice.slots.end());
    }
    return std::move(choices_);
}

Result<void> FilterParser::parse_node(const Token& node) {
    const Position position = position_.after(node.offset);
    if (node.text.empty())
        return fail_at(position, "no host stands next to this '@'; write host:0,1@host");
    std::string_view rest;
    const auto names = parse_host_name(node.text, position, rest);
    if (!names) return std::unexpected(names.error());
    std::vector<int> slots;
    if (!rest.empty()) {
        const Position slots_position = position.after(node.text.size() - rest.size() + 1);
        auto parsed = parse_slot_numbers(rest.substr(1), slots_position);
        if (!parsed) return std::unexpected(parsed.error());
        slots = std::move(*parsed);
    }
    mentions_ += names->count() * (slots.size() + 1);
    if (mentions_ > kRanksMax)
        return fail_at(position, "the filter names more than {} hosts and slots", kRanksMax);
    std::vector<std::string> expanded;
    names->expand_into(expanded);
    for (const std::string& name : expanded) {
        const auto chosen = choose(name, slots, position);
        if (!chosen) return chosen;
    }
    return {};
}

Result<std::vector<int>> FilterParser::parse_slot_numbers(std::string_view text,
                                                          const Position& position) const {
    std::vector<int> slots;
    for (const Token& token : split_outside_brackets(text, ",")) {
        const auto slot = to_int(token.text, 0, kSlotsMax - 1);
        if (!slot || token.text[0] == '-')
            return fail_at(position.after(token.offset),
                           "{} is not a slot number; write host:0,1,2", in_quotes(token.text));
        slots.push_back(static_cast<int>(*slot));
    }
    return slots;
}

Result<void> FilterParser::choose(const std::string& name, const std::vector<int>& slots,
                                  const Position& position) {
    const auto found = index_.find(name);
    if (!found) {
        const auto name_of = [](const Host& host) -> std::string_view { return host.name; };
        return fail_at(position, "host {} is not in the host list{}", in_quotes(name),
                       did_you_mean(name, hosts_, name_of));
    }
    const auto checked = check_slots(hosts_[*found], slots, position);
    if (!checked) return checked;
    Choice& choice = choices_[*found];
    choice.named = true;
    choice.all_slots = choice.all_slots || slots.empty();
    choice.slots.insert(choice.slots.end(), slots.begin(), slots.end());
    return {};
}

Result<void> FilterParser::check_slots(const Host& host, const std::vector<int>& slots,
                                       const Position& position) const {
    for (const int slot : slots) {
        const auto& ids = host.slot_ids;
        const bool there =
            ids.empty() ? slot < host.slots : std::find(ids.begin(), ids.end(), slot) != ids.end();
        if (!there)
            return fail_at(position, "host {} has no slot {}; its slots are: {}",
                           in_quotes(host.name), slot, show_slots(slots_listed(host)));
    }
    return {};
}

/// How many slots of `host` the list that is left names one by one.
std::size_t count_listed(const Host& host, const Choice& choice, bool include) {
    if (choice.all_slots || !choice.named) return host.slot_ids.size();
    const std::size_t all = host.slot_ids.empty() ? std::max(host.slots, 0) : host.slot_ids.size();
    return include ? choice.slots.size() : all - choice.slots.size();
}

/// `host` with what the filter leaves of it; no slots if nothing.
Host filtered(Host host, const Choice& choice, bool include) {
    if (choice.all_slots || !choice.named) {
        if (choice.named != include) host.slots = 0;
        return host;
    }
    std::vector<int> kept;
    for (const int slot : slots_listed(host)) {
        const bool listed = std::binary_search(choice.slots.begin(), choice.slots.end(), slot);
        if (listed == include) kept.push_back(slot);
    }
    std::sort(kept.begin(), kept.end());
    host.slots = static_cast<int>(kept.size());
    host.slot_ids = std::move(kept);
    return host;
}

}  // namespace

Result<HostList> filter_hosts(const HostList& hosts, std::string_view include,
                              std::string_view exclude) {
    if (include.empty() && exclude.empty()) return hosts;
    const Position position{include.empty() ? "--exclude" : "--include"};
    if (!include.empty() && !exclude.empty())
        return fail_at(position, "--include and --exclude are both given; give one of them");
    const auto choices = FilterParser(hosts, position).parse(include.empty() ? exclude : include);
    if (!choices) return std::unexpected(choices.error());
    std::size_t listed = 0;
    for (std::size_t i = 0; i < hosts.size(); ++i)
        listed += count_listed(hosts[i], (*choices)[i], !include.empty());
    if (listed > kRanksMax)
        return fail_at(position, "more than {} slots are left; name fewer of them", kRanksMax);
    HostList left;
    for (std::size_t i = 0; i < hosts.size(); ++i) {
        Host host = filtered(hosts[i], (*choices)[i], !include.empty());
        if (host.slots > 0) left.push_back(std::move(host));
    }
    if (left.empty())
        return fail_at(position, "no slot is left on any host; {}",
                       include.empty() ? "exclude fewer" : "include hosts that have slots");
    return left;
}

}  // namespace dtrun
