#include "collectives/backends/backends.h"

#include "collectives/backends/mpi/choose_mpi.h"
#include "collectives/backends/native/group.h"
#include "collectives/backends/plugin_files.h"
#include "collectives/backends/shared_library.h"

namespace dtrun::collectives {
namespace {

bool is_name(const std::string& name) {
    return !name.empty() &&
           name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == name.npos;
}

Backend own_backend() {
    return {.probe =
                [] {
                    return Availability{true, "it needs no library"};
                },
            .connect = &native::connect};
}

std::string file_of(const std::string& variant) {
    return fmt::format("libdtrun_backend_{}.so", variant);
}

/// Errors say what is wrong, and no more.
Result<Backend> look_for(const std::string& name, std::span<const PluginFolder> folders) {
    if (name == kOwnBackend) return own_backend();
    if (!is_name(name)) return fail(Errc::not_found, "\"{}\" is no name of a backend", name);
    std::string variant = name;
    if (name == "mpi") {
        const auto chosen = choose_mpi(folders);
        if (!chosen) return std::unexpected(chosen.error());
        variant = chosen->variant;
    }
    const std::string file = file_of(variant);
    const FoundPlugins found = find_plugins(file, folders);
    if (found.files.empty()) return std::unexpected(missing_plugin({&file, 1}, folders));
    std::string why;
    for (const std::string& path : found.files) {
        auto backend = load_plugin(path);
        if (backend) return backend;
        why += (why.empty() ? "" : "; ") + backend.error().message;
    }
    return fail(Errc::not_found, "{}", why);
}

std::vector<PluginFolder> folders_of_process() {
    return plugin_folders(folder_of(&load_backend));
}

}  // namespace

Result<Backend> load_backend(const std::string& name) {
    const auto folders = folders_of_process();
    auto backend = look_for(name, folders);
    if (backend || !is_name(name)) return backend;
    std::vector<std::string> files{file_of(name)};
    if (name == "mpi") files = {file_of("mpi_openmpi"), file_of("mpi_mpich")};
    backend.error().message += way_to_get(files, folders);
    return backend;
}

Availability probe_backend(const std::string& name, Advice advice) {
    const auto backend =
        advice == Advice::none ? look_for(name, folders_of_process()) : load_backend(name);
    if (!backend) return {false, backend.error().message};
    return backend->probe();
}

}  // namespace dtrun::collectives
