#include "collectives/backends/plugin.h"
#include "collectives/backends/mpi/interfaces.h"
#include "collectives/backends/oneccl/group.h"

namespace dtrun::collectives::oneccl {
namespace {

Availability probe() {
    OnecclRuntime& runtime = OnecclRuntime::of_process();
    const auto library = runtime.library();
    if (!library) return {false, library.error().message};
    if (const auto turn = runtime.turn(); !turn) return {false, turn.error().message};
    return {true, (*library)->file};
}

/// Loopback is no choice for data: libfabric takes one interface for the life of the process, and
/// later groups may have ranks on other hosts. It finds its way within a host by any.
Result<OnecclRuntime::Network> network(const GroupSpec& spec) {
    if (!spec.interfaces.empty()) {
        const auto here = interfaces_here(spec.interfaces);
        if (!here) return std::unexpected(here.error());
        return OnecclRuntime::Network{here->front(), here->front()};
    }
    const std::string addresses[] = {spec.address};
    const auto here =
        spec.address.empty() ? Result<std::vector<std::string>>() : interfaces_here(addresses);
    if (!here || here->empty()) return OnecclRuntime::Network{};
    const std::string& name = here->front();
    return OnecclRuntime::Network{name == "lo" ? "" : name, name};
}

Result<std::unique_ptr<Group>> connect(const GroupSpec& spec) {
    if (spec.members.size() != spec.size || spec.rank >= spec.size)
        return fail(Errc::invalid_input, "rank {} of {}, with {} members", spec.rank, spec.size,
                    spec.members.size());
    OnecclRuntime& runtime = OnecclRuntime::of_process();
    const auto library = runtime.library();
    if (!library) return std::unexpected(library.error());
    RankStatus mine;
    if (const auto interfaces = network(spec))
        runtime.prepare(**library, *interfaces);
    else
        mine.problem = interfaces.error().message;
    if (mine.problem.empty()) {
        if (const auto turn = runtime.turn())
            mine.library = (*library)->name();
        else
            mine.problem = turn.error().message;
    }
    auto meeting = bootstrap(runtime, *library, spec, mine);
    if (!meeting) return std::unexpected(meeting.error());
    GroupFacts facts{mine.library, (*library)->libfabric.empty() ? "MPI" : "libfabric", {}};
    facts.details = {{"settings", runtime.settings()},
                     {"library", (*library)->file},
                     {"abort", "frees the caller, and is the end of oneCCL in this process"}};
    return std::make_unique<OnecclGroup>(runtime, *library, spec, std::move(*meeting),
                                         std::move(facts));
}

}  // namespace
}  // namespace dtrun::collectives::oneccl

DTRUN_BACKEND_PLUGIN("oneccl", dtrun::collectives::oneccl::probe,
                     dtrun::collectives::oneccl::connect)
