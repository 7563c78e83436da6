#pragma once

#include "base/result.h"

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace dtrun::collectives {

/// A folder that plug-ins are looked for in.
struct PluginFolder {
    std::filesystem::path path;
    /// Nobody has named it, and it did not come with this library: only what nobody else can write to is taken.
    bool is_guess = false;
};

/// The folders that DTRUN_BACKEND_DIR names, separated by colons, and then the one beside this library. If it names
/// none, then those in which an installation from source has its own, which is built for the libraries of this host: that
/// of the user, and the system's.
/// \param library  the folder of libdtrun_collectives
std::vector<PluginFolder> plugin_folders(const std::filesystem::path& library);

struct FoundPlugins {
    std::vector<std::string> files;    ///< in the order of the folders
    std::vector<std::string> refused;  ///< why others are not taken
};
FoundPlugins find_plugins(const std::string& file, std::span<const PluginFolder> folders);

/// That there are no such plug-ins: where they were looked for.
/// \param files  that do not exist, or are refused
Error missing_plugin(std::span<const std::string> files, std::span<const PluginFolder> folders);

/// What to do about that, to be appended: too much for what ranks tell each other. "" if there are some.
std::string way_to_get(std::span<const std::string> files, std::span<const PluginFolder> folders);

}  // namespace dtrun::collectives
