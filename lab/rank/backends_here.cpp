#include "lab/rank/backends_here.h"

#include "collectives/backends/backend_table.h"
#include "collectives/backends/plugin_files.h"
#include "collectives/backends/shared_library.h"
#include "lab/rank/host_facts.h"

#include <dtrun_collectives.h>
#include <fmt/format.h>

namespace dtrun::lab::rank {
namespace {

/// The first of a backend's plug-ins that would be taken here; MPI has one for each kind of library.
std::string plugin_of(std::string_view backend) {
    const auto folders = collectives::plugin_folders(collectives::folder_of(&dtrun_comm_create));
    for (const std::string_view kind : {"", "_openmpi", "_mpich"}) {
        const auto found = collectives::find_plugins(
            fmt::format("libdtrun_backend_{}{}.so", backend, kind), folders);
        if (!found.files.empty()) return found.files.front();
    }
    return {};
}

}  // namespace

std::string backends_text() {
    std::string text;
    for (const collectives::BackendRow& row : collectives::kBackends)
        text += fmt::format("{}\t{}\t{}\t{}\n", row.name, row.title, version_elsewhere(row.name),
                            plugin_of(row.name));
    return text + fmt::format("pmix\tPMIx\t{}\t\n", version_elsewhere("pmix"));
}

}  // namespace dtrun::lab::rank
