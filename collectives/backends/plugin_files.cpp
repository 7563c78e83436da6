#include "collectives/backends/plugin_files.h"

#include "base/code_trust.h"
#include "collectives/backends/backend_table.h"

#include <dtrun_version.h>
#include <fmt/ranges.h>
#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace dtrun::collectives {
namespace {

namespace fs = std::filesystem;

std::string_view variable_of(const char* name) {
    const char* const value = std::getenv(name);
    return value != nullptr ? value : "";
}

/// Where libraries are below a prefix, as distributions have it.
constexpr std::string_view kLibraryFolders[] = {"lib", "lib64",
                                                "lib/" DTRUN_PROCESSOR "-linux-gnu"};

/// Whether plug-ins are of a library that is the host's own, so that packages of dtrun have none.
bool are_built_here(std::span<const std::string> files) {
    return std::ranges::any_of(files, [](std::string_view file) {
        return file.starts_with("libdtrun_backend_mpi_") || file == "libdtrun_backend_gloo.so";
    });
}

/// Whether installations of dtrun have such plug-ins.
bool are_ours(std::span<const std::string> files) {
    return std::ranges::any_of(kBackends, [&](const BackendRow& row) {
        return files.front() == fmt::format("libdtrun_backend_{}.so", row.name);
    });
}

}  // namespace

std::vector<PluginFolder> plugin_folders(const fs::path& library) {
    std::vector<PluginFolder> folders;
    std::string_view named = variable_of("DTRUN_BACKEND_DIR");
    while (!named.empty()) {
        const std::size_t end = std::min(named.find(':'), named.size());
        if (end > 0) folders.push_back({named.substr(0, end)});
        named.remove_prefix(std::min(end + 1, named.size()));
    }
    const bool guess = folders.empty();
    folders.push_back({library / "dtrun" / "backends"});
    if (!guess) return folders;
    const std::string_view home = variable_of("HOME");
    for (const fs::path& prefix : {home.starts_with('/') ? fs::path(home) / ".local" : fs::path(),
                                   fs::path("/usr/local"), fs::path("/usr")}) {
        if (prefix.empty()) continue;
        for (const std::string_view libraries : kLibraryFolders) {
            fs::path folder = prefix / libraries / "dtrun" / "backends";
            if (folder != folders.front().path) folders.push_back({std::move(folder), true});
        }
    }
    return folders;
}

FoundPlugins find_plugins(const std::string& file, std::span<const PluginFolder> folders) {
    FoundPlugins found;
    for (const PluginFolder& folder : folders) {
        const fs::path path = folder.path / file;
        std::error_code none;
        if (!fs::exists(path, none)) continue;
        const auto safe = folder.is_guess ? check_code(path, ::geteuid()) : Result<fs::path>(path);
        if (safe)
            found.files.push_back(safe->string());
        else
            found.refused.push_back(
                fmt::format("{} is not taken, as {} (or trust it: DTRUN_BACKEND_DIR={})",
                            path.string(), safe.error().message, folder.path.string()));
    }
    return found;
}

Error missing_plugin(std::span<const std::string> files, std::span<const PluginFolder> folders) {
    std::string text = fmt::format("no {}", fmt::join(files, " or "));
    std::string_view before = " in ";
    for (const PluginFolder& folder : folders) {
        std::error_code none;
        // Other places for libraries need no mention where there is nothing.
        if (folder.is_guess && !fs::exists(folder.path, none) &&
            !folder.path.string().ends_with("/lib/dtrun/backends"))
            continue;
        text += fmt::format("{}{}", before, folder.path.string());
        before = ", ";
    }
    for (const std::string& file : files)
        for (const std::string& why : find_plugins(file, folders).refused) text += "; " + why;
    return {Errc::not_found, std::move(text)};
}

std::string way_to_get(std::span<const std::string> files, std::span<const PluginFolder> folders) {
    for (const std::string& file : files)
        if (!find_plugins(file, folders).files.empty()) return {};
    if (are_built_here(files))
        return ". Packages of dtrun have no plug-ins for MPI and Gloo, whose libraries are the "
               "host's: `./dev "
               "backends` in the source of dtrun " DTRUN_VERSION
               " builds those that it finds headers of (Debian: libopenmpi-dev, libmpich-dev, "
               "libgloo-dev), into "
               "~/.local";
    if (are_ours(files))
        return ". The dtrun that came with the job has fewer than an installed one";
    return {};
}

}  // namespace dtrun::collectives
