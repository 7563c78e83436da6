#include "collectives/backends.h"

#include "collectives/dtrun/group.h"
#include "collectives/mpi/choose_mpi.h"
#include "collectives/plugin_files.h"
#include "collectives/shared_library.h"

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
            .connect = &over_dtrun::connect};
}

}  // namespace

Result<Backend> load_backend(const std::string& name) {
    if (name == kOwnBackend) return own_backend();
    if (!is_name(name)) return fail(Errc::not_found, "\"{}\" is no name of a backend", name);
    const auto folders = plugin_folders(folder_of(&load_backend));
    std::string variant = name;
    if (name == "mpi") {
        const auto chosen = choose_mpi(folders);
        if (!chosen) return std::unexpected(chosen.error());
        variant = chosen->variant;
    }
    const std::string file = fmt::format("libdtrun_backend_{}.so", variant);
    const FoundPlugins found = find_plugins(file, folders);
    std::string why;
    for (const std::string& path : found.files) {
        auto backend = load_plugin(path);
        if (backend) return backend;
        why += (why.empty() ? "" : "; ") + backend.error().message;
    }
    if (why.empty()) return std::unexpected(missing_plugin({&file, 1}, folders));
    return fail(Errc::not_found, "{}", why);
}

Availability probe_backend(const std::string& name) {
    const auto backend = load_backend(name);
    if (!backend) return {false, backend.error().message};
    return backend->probe();
}

}  // namespace dtrun::collectives
