#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun {

/// What is said of a host with "…" for each name, address, port and fingerprint of a key in it, as ssh and we write them: the
/// same is said of other hosts with theirs.
/// \param name  by which the host is called
std::string without_own_words(std::string_view name, std::string_view text);

/// Hosts of which the same is to be said.
struct HostsAlike {
    std::vector<std::string> names;
    std::string text;
};

/// Puts hosts together, in the order in which the first of each group comes. What differs in their names alone is the
/// same, and of more than kFewHosts also what differs in other words of without_own_words(); each of these is "…" then.
/// \param said  name and text of each
std::vector<HostsAlike> group_alike(const std::vector<std::pair<std::string, std::string>>& said);

}  // namespace dtrun
