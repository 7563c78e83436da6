#include "base/strings.h"
#include "hostfiles/allocation.h"
#include "tests/fuzz/hostfiles/promises.h"

#include <map>

using namespace dtrun;

namespace {

/// The input is an environment, one NAME=value a line; behind a line "--" stands the text of every
/// file and of every command.
struct World {
    explicit World(std::string_view input) {
        const std::size_t end = input.find("\n--\n");
        if (end != std::string_view::npos) text = input.substr(end + 4);
        for (const std::string_view line : split(input.substr(0, end), '\n')) {
            const std::size_t equals = line.find('=');
            if (equals != std::string_view::npos)
                variables.emplace(line.substr(0, equals), line.substr(equals + 1));
        }
    }

    std::map<std::string_view, std::string_view> variables;
    std::string text;
};

void check(const Allocation& allocation) {
    require_hosts(allocation.hosts);
    require(allocation.nodes.size() == allocation.hosts.size(), "a node for each host");
    require(allocation.world_size >= 1 && allocation.world_size <= kRanksMax, "1..kRanksMax ranks");
    require(allocation.cpus_per_rank >= 0, "CPUs of a rank");
    for (const Allocation::Node& node : allocation.nodes)
        require(node.cpus >= 0 && node.gpus >= 0 && node.het_group >= 0, "counts of a node");
    require(!allocation.hosts_source.empty() && !allocation.slots_source.empty() &&
                !allocation.world_size_source.empty(),
            "sources are told");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const World world({reinterpret_cast<const char*>(data), size});
    AllocationInput input;
    input.variable = [&](std::string_view name) -> std::optional<std::string_view> {
        const auto found = world.variables.find(name);
        if (found == world.variables.end()) return std::nullopt;
        return found->second;
    };
    input.file = [&](const std::string&) -> Result<std::string> { return world.text; };
    input.command = [&](const std::vector<std::string>&) -> Result<std::string> {
        return world.text;
    };
    const auto allocation = find_allocation(input);
    if (!allocation) {
        require(allocation.error().code == Errc::invalid_input, "errors are invalid_input");
        require_printable(allocation.error().message);
    } else if (*allocation) {
        check(**allocation);
    }
    return 0;
}
