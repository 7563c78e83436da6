#pragma once

#include "base/result.h"
#include "collectives/backends/mpi/choose_mpi.h"

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace dtrun::collectives {

/// Names of this host's network interfaces among those that may be used, in the same order.
/// \param wanted  names, or addresses of this host
/// Errc: invalid_input (none of them is here)
Result<std::vector<std::string>> interfaces_here(std::span<const std::string> wanted);

/// A variable of the environment.
struct Setting {
    std::string name;
    std::string value;
};

/// Environment variables that make an MPI library use these interfaces, if set before MPI_Init.
/// \param interfaces   names, at least one
/// \param environment  value of a variable; what the user has set himself stays as it is
/// \param system       where Linux describes interfaces: /sys/class/net
std::vector<Setting> interface_settings(
    MpiLibrary library, std::span<const std::string> interfaces,
    const std::function<std::optional<std::string>(const std::string& name)>& environment,
    const std::filesystem::path& system);

}  // namespace dtrun::collectives
