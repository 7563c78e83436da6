#include "hostfiles/rankfile.h"

#include "base/strings.h"
#include "hostfiles/host_names.h"
#include "hostfiles/host_spec.h"

#include <algorithm>
#include <map>

namespace dtrun {

namespace {

constexpr std::string_view kForm = "write `rank 0=host` or `rank 0=host slot=0-1`";

/// "3=host slot=0-1", behind "rank".
Result<std::pair<int, RankLine>> parse_line(std::string_view text) {
    const std::size_t equals = text.find('=');
    const auto rank = to_int(trim(text.substr(0, equals)), 0, kRanksMax - 1);
    if (equals == std::string_view::npos || !rank)
        return fail(Errc::invalid_input, "'{}' is no rank with its host; {}", text, kForm);
    const std::string_view place = trim(text.substr(equals + 1));
    const std::size_t end = place.find_first_of(" \t");
    RankLine line{std::string(place.substr(0, end)), {}};
    if (line.host.empty())
        return fail(Errc::invalid_input, "rank {} has no host; {}", *rank, kForm);
    std::string_view rest = end == std::string_view::npos ? "" : trim(place.substr(end));
    for (const std::string_view key : {"slots=", "slot="}) {
        if (!rest.starts_with(key)) continue;
        line.cpus = trim(rest.substr(key.size()));
        rest = {};
        break;
    }
    if (!rest.empty()) return fail(Errc::invalid_input, "'{}' is not slot=...; {}", rest, kForm);
    return std::pair(static_cast<int>(*rank), std::move(line));
}

/// The host that "+n2" means, or that has the name; -1 if there is none.
int find_host(const HostList& hosts, const HostIndex& index, const std::string& name) {
    if (name.starts_with("+n")) {
        const auto number = to_int(std::string_view(name).substr(2), 0, kRanksMax);
        return number && std::cmp_less(*number, hosts.size()) ? static_cast<int>(*number) : -1;
    }
    const auto found = index.find(std::string_view(name).substr(name.rfind('@') + 1));
    return found ? static_cast<int>(*found) : -1;
}

/// The hosts that the lines name, with as many slots as ranks.
Result<HostList> named_by(const std::vector<RankLine>& ranks) {
    std::string names;
    for (const RankLine& rank : ranks) {
        if (rank.host.starts_with('+'))
            return fail(Errc::invalid_input,
                        "{} is one of the job's hosts by number, but none are given; add -H or "
                        "--hostfile",
                        rank.host);
        names += (names.empty() ? "" : ",") + rank.host;
    }
    return parse_hosts(names);
}

}  // namespace

Result<std::vector<RankLine>> parse_rankfile(std::string_view text, std::string_view name) {
    std::map<int, RankLine> lines;
    int number = 0;
    for (std::string_view line : split(text, '\n')) {
        ++number;
        line = trim(line.substr(0, line.find('#')));
        if (line.empty()) continue;
        if (!line.starts_with("rank") || line.size() < 5 || (line[4] != ' ' && line[4] != '\t'))
            return fail(Errc::invalid_input, "{}:{}: '{}' does not begin with rank; {}", name,
                        number, line, kForm);
        auto parsed = parse_line(trim(line.substr(4)));
        if (!parsed) return fail(parsed.error(), "{}:{}", name, number);
        const int rank = parsed->first;
        if (!lines.insert(std::move(*parsed)).second)
            return fail(Errc::invalid_input, "{}:{}: rank {} stands there twice", name, number,
                        rank);
    }
    if (lines.empty()) return fail(Errc::invalid_input, "{}: has no ranks; {}", name, kForm);
    std::vector<RankLine> ranks;
    for (auto& [rank, line] : lines) {
        if (std::cmp_not_equal(rank, ranks.size()))
            return fail(Errc::invalid_input, "{}: rank {} is missing", name, ranks.size());
        ranks.push_back(std::move(line));
    }
    return ranks;
}

Result<std::vector<int>> hosts_of_ranks(const std::vector<RankLine>& ranks, HostList& hosts) {
    if (hosts.empty()) {
        auto named = named_by(ranks);
        if (!named) return std::unexpected(named.error());
        hosts = std::move(*named);
    }
    const HostIndex index(hosts);
    std::vector<int> host_of;
    host_of.reserve(ranks.size());
    for (const RankLine& rank : ranks) {
        host_of.push_back(find_host(hosts, index, rank.host));
        if (host_of.back() < 0)
            return fail(Errc::invalid_input, "rank {}: {} is none of the job's hosts",
                        host_of.size() - 1, rank.host);
    }
    return host_of;
}

}  // namespace dtrun
