#include "lab/rank/backends_here.h"

#include "collectives/backends/backend_table.h"
#include "collectives/backends/plugin_files.h"
#include "collectives/backends/shared_library.h"
#include "lab/rank/host_facts.h"

#include <dtrun_collectives.h>
#include <fmt/format.h>
#include <chrono>
#include <future>
#include <vector>

namespace dtrun::lab::rank {
namespace {

constexpr std::chrono::seconds kLibraryLimit{3};  // to be loaded and to tell its version

/// The plug-ins that a backend may have: MPI has one for each kind of library.
std::vector<std::string> plugins_of(std::string_view backend, std::string_view version) {
    if (backend != "mpi") return {fmt::format("libdtrun_backend_{}.so", backend)};
    std::vector<std::string> files;
    if (version.find("Open MPI") != version.npos)
        files.push_back("libdtrun_backend_mpi_openmpi.so");
    if (!version.starts_with("Open MPI") || version.find(',') != version.npos)
        files.push_back("libdtrun_backend_mpi_mpich.so");
    return files;
}

/// The first of them that would be taken here; empty: none.
std::string plugin_of(std::string_view backend, std::string_view version) {
    const auto folders = collectives::plugin_folders(collectives::folder_of(&dtrun_comm_create));
    for (const std::string& file : plugins_of(backend, version)) {
        const auto found = collectives::find_plugins(file, folders);
        if (!found.files.empty()) return found.files.front();
    }
    return {};
}

}  // namespace

std::string backends_text() {
    // All at once: a library on a file system that hangs keeps nobody else's version back.
    const auto ask = [](std::string_view name) {
        return std::async(std::launch::async,
                          [name] { return version_elsewhere(name, kLibraryLimit); });
    };
    std::vector<std::future<std::string>> versions;
    for (const collectives::BackendRow& row : collectives::kBackends)
        versions.push_back(ask(row.name));
    auto pmix = ask("pmix");
    std::string text;
    for (std::size_t i = 0; i < collectives::kBackendCount; ++i) {
        const collectives::BackendRow& row = collectives::kBackends[i];
        const std::string version = versions[i].get();
        text += fmt::format("{}\t{}\t{}\t{}\n", row.name, row.title, version,
                            plugin_of(row.name, version));
    }
    return text + fmt::format("pmix\tPMIx\t{}\t\n", pmix.get());
}

}  // namespace dtrun::lab::rank
