#include "hostfiles/hosts_alike.h"

#include "hostfiles/host_item.h"
#include "hostfiles/nodelist.h"
#include "hostfiles/scan.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <span>

namespace dtrun {
namespace {

constexpr std::string_view kAnyWord = "…";
/// A part of a text that would be another one for each host.
struct OwnWord {
    std::size_t at = 0, size = 0;
    bool is_name = false;  ///< the name by which the host is called: nothing is lost without it
};

/// What stands before a host's name in the words of ssh, of ssh-keygen and of ours.
constexpr std::array<std::string_view, 10> kBeforeNames{
    "to host ",   "resolve hostname ", "known for ",       "key for ",       "Connection to ",
    "closed by ", "reset by ",         "Timeout, server ", "ssh-keygen -R ", "looking up "};
constexpr std::string_view kBeforePorts = "port ";
constexpr std::string_view kBeforeDenials = ": Permission denied";
constexpr std::string_view kFingerprint = "SHA256:";

bool ends_word(char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/// "n1" of "n1", "N1" and "[n1]:2222".
bool is_name_of(std::string_view word, std::string_view name) {
    if (word.starts_with('[')) word = word.substr(1, std::max<std::size_t>(word.find(']'), 1) - 1);
    const auto lower = [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
    };
    return std::ranges::equal(word, name, {}, lower, lower);
}

std::vector<OwnWord> own_words(std::string_view name, std::string_view text) {
    std::vector<OwnWord> words;
    for (std::size_t at = 0; at < text.size();) {
        std::size_t end = at;
        while (end < text.size() && !ends_word(text[end])) ++end;
        std::size_t begin = at;
        const std::string_view whole = text.substr(begin, end - begin);
        if (const auto user = whole.rfind('@'); user != std::string_view::npos) begin += user + 1;
        while (begin < end && std::string_view("('\"").contains(text[begin])) ++begin;
        std::size_t last = end;
        while (last > begin && std::string_view("):;,.'\"").contains(text[last - 1])) --last;
        const std::string word(text.substr(begin, last - begin));
        const std::string_view before = text.substr(0, at);
        const auto is_behind = [before](std::string_view sign) { return before.ends_with(sign); };
        const bool is_port = is_behind(kBeforePorts) && std::ranges::all_of(word, is_digit);
        const bool is_name = is_name_of(word, name);
        if (!word.empty() &&
            (is_name || is_port || is_address(word) || word.starts_with(kFingerprint) ||
             text.substr(last).starts_with(kBeforeDenials) ||
             std::ranges::any_of(kBeforeNames, is_behind)))
            words.push_back({begin, word.size(), is_name});
        at = end + 1;
    }
    return words;
}

/// `text` with some of its words as any.
std::string with_any(std::string_view text, std::span<const OwnWord> words) {
    std::string result;
    std::size_t at = 0;
    for (const OwnWord& word : words) {
        result += text.substr(at, word.at - at);
        result += kAnyWord;
        at = word.at + word.size;
    }
    return result.append(text.substr(at));
}

struct Said {
    std::string text;
    std::vector<OwnWord> own;
    std::string without_name, without_own;
};

Said parts_of(const std::string& name, const std::string& whole) {
    Said said{whole, {}, {}, {}};
    const std::string of_ssh = fmt::format("ssh: connect to host {} port ", name);
    if (const auto at = said.text.find(of_ssh); at != std::string::npos)
        said.text.replace(at, of_ssh.size(), "ssh: port ");
    said.own = own_words(name, said.text);
    said.without_own = with_any(said.text, said.own);
    std::vector<OwnWord> names = said.own;
    std::erase_if(names, [](const OwnWord& word) { return !word.is_name; });
    said.without_name = with_any(said.text, names);
    return said;
}

}  // namespace

std::string without_own_words(std::string_view name, std::string_view text) {
    return with_any(text, own_words(name, text));
}

std::vector<HostsAlike> group_alike(const std::vector<std::pair<std::string, std::string>>& all) {
    struct Group {
        HostsAlike hosts;
        Said first;
        std::vector<bool> differ;  ///< of its own words
    };
    std::vector<Said> parts;
    std::map<std::string_view, std::size_t> counts;
    parts.reserve(all.size());
    for (const auto& [name, text] : all)
        ++counts[parts.emplace_back(parts_of(name, text)).without_own];
    std::vector<Group> groups;
    std::map<std::string_view, std::size_t> places;  // of keys in them
    for (std::size_t i = 0; i < all.size(); ++i) {
        const Said& said = parts[i];
        const bool are_many = counts[said.without_own] > kFewHosts;
        const std::string& key = are_many ? said.without_own : said.without_name;
        const auto [place, is_new] = places.try_emplace(key, groups.size());
        if (is_new) groups.push_back({{}, said, std::vector<bool>(said.own.size())});
        Group& group = groups[place->second];
        group.hosts.names.push_back(all[i].first);
        for (std::size_t at = 0; at < std::min(said.own.size(), group.differ.size()); ++at) {
            const OwnWord &own = said.own[at], &first = group.first.own[at];
            if (said.text.substr(own.at, own.size) != group.first.text.substr(first.at, first.size))
                group.differ[at] = true;
        }
    }
    std::vector<HostsAlike> told;
    for (Group& group : groups) {
        std::vector<OwnWord> any;
        for (std::size_t at = 0; at < group.differ.size(); ++at)
            if (group.differ[at]) any.push_back(group.first.own[at]);
        group.hosts.text = with_any(group.first.text, any);
        told.push_back(std::move(group.hosts));
    }
    return told;
}

}  // namespace dtrun
