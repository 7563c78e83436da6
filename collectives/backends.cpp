#include "collectives/backends.h"

#include "collectives/shared_library.h"

#include "collectives/mpi/choose_mpi.h"

#include <dlfcn.h>
#include <cstdlib>
#include <filesystem>

namespace dtrun::collectives {
namespace {

namespace fs = std::filesystem;

/// Where this library lies, whatever it was loaded from.
fs::path plugin_folder() {
    const char* const given = std::getenv("DTRUN_BACKEND_DIR");
    if (given != nullptr && *given != '\0') return given;
    return folder_of(&load_backend) / "dtrun" / "backends";
}

bool is_name(const std::string& name) {
    return !name.empty() &&
           name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == name.npos;
}

/// Our own backend needs nothing that a machine may lack: where it cannot be loaded, something is wrong with the
/// installation, and to go on with another one would hide it.
Errc unloadable(const std::string& name) {
    return name == kOwnBackend ? Errc::internal : Errc::not_found;
}

}  // namespace

Result<const BackendPlugin*> load_backend(const std::string& name) {
    if (!is_name(name)) return fail(Errc::not_found, "\"{}\" is no name of a backend", name);
    const fs::path folder = plugin_folder();
    std::string variant = name;
    if (name == "mpi") {
        const auto chosen = choose_mpi(folder);
        if (!chosen) return std::unexpected(chosen.error());
        variant = chosen->variant;
    }
    const fs::path path = folder / fmt::format("libdtrun_backend_{}.so", variant);
    std::error_code error;
    if (!fs::exists(path, error))
        return fail(
            Errc::not_found,
            "this dtrun was built without it, or is the one that came with the job, which has less "
            "than an installed one (no {})",
            path.string());
    void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) return fail(unloadable(name), "{}", ::dlerror());
    using Entry = const BackendPlugin* (*)();
    const auto entry = reinterpret_cast<Entry>(::dlsym(library, "dtrun_backend_plugin"));
    if (entry == nullptr) return fail(Errc::not_found, "{} is no plug-in of dtrun", path.string());
    const BackendPlugin* const plugin = entry();
    if (plugin->abi != BackendPlugin::kAbi)
        return fail(unloadable(name), "{} is of another version of dtrun", path.string());
    return plugin;
}

Availability probe_backend(const std::string& name) {
    const auto plugin = load_backend(name);
    if (!plugin) return {false, plugin.error().message};
    return (*plugin)->probe();
}

}  // namespace dtrun::collectives
