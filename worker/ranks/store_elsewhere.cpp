#include "worker/ranks/store_elsewhere.h"

#include "worker/ranks/process_tree.h"

#include <fmt/format.h>
#include <algorithm>
#include <string_view>

namespace dtrun::ranks {
namespace {

std::string_view value_of(const std::string& environment, std::string_view name) {
    const std::string before = fmt::format("{}{}=", '\0', name);
    const std::size_t at = environment.find(before);
    if (at == std::string::npos) return {};
    const std::string_view rest = std::string_view(environment).substr(at + before.size());
    return rest.substr(0, rest.find('\0'));
}

bool takes_it_as_served(const std::string& environment) {
    return value_of(environment, "TORCHELASTIC_USE_AGENT_STORE") == "True";
}

std::string address_of(const std::string& environment) {
    return fmt::format("{}:{}", value_of(environment, "MASTER_ADDR"),
                       value_of(environment, "MASTER_PORT"));
}

}  // namespace

/// A torchrun within the rank serves a store itself, and names a run of its own.
std::optional<std::string> store_elsewhere(const std::string& rank, const std::string& process) {
    if (!takes_it_as_served(process) ||
        value_of(process, "TORCHELASTIC_RUN_ID") != value_of(rank, "TORCHELASTIC_RUN_ID"))
        return std::nullopt;
    std::string address = address_of(process);
    if (address == address_of(rank)) return std::nullopt;
    return address;
}

std::vector<RankWait> waits_elsewhere(std::span<const RunningRank> ranks) {
    std::vector<std::string> environments;
    std::vector<pid_t> roots;
    for (const RunningRank& rank : ranks) {
        roots.push_back(rank.pid);
        environments.push_back(environment_of(rank.pid));
    }
    if (std::ranges::none_of(environments, takes_it_as_served)) return {};
    const auto below = descendants_of_each(roots);
    std::vector<RankWait> waits;
    for (std::size_t i = 0; i < roots.size(); ++i)
        for (const pid_t process : below[i]) {
            const auto address = store_elsewhere(environments[i], environment_of(process));
            if (!address) continue;
            RankWait& wait = waits.emplace_back();
            wait.rank = ranks[i].rank;
            wait.pid = process;
            wait.what = fmt::format(
                "torch's store at {}, an address that a launcher within the rank has chosen, and "
                "that dtrun does not serve: use --store rank0",
                *address);
            break;
        }
    return waits;
}

}  // namespace dtrun::ranks
