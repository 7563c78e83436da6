#pragma once

#include "base/result.h"
#include "collectives/backends/plugin_files.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::collectives {

/// Libraries that differ in their ABI, so that there is a plug-in for each.
enum class MpiLibrary : std::uint8_t {
    openmpi,
    mpich,  ///< and those that share its ABI: Intel MPI, MVAPICH
};

std::string_view name_of(MpiLibrary library);   ///< "openmpi", as in DTRUN_MPI_LIBRARY
std::string_view title_of(MpiLibrary library);  ///< "Open MPI", for people

/// The MPI of a shared library by its file name: "libmpi.so.40" is Open MPI's.
std::optional<MpiLibrary> mpi_of_file(std::string_view file);

/// An MPI in this process; two in one process would call each other's functions.
struct LoadedMpi {
    MpiLibrary library;
    std::string path;
};
std::vector<LoadedMpi> loaded_mpi();

/// What the choice of a library depends on.
struct MpiSurroundings {
    std::string asked;              ///< value of DTRUN_MPI_LIBRARY, or ""
    std::vector<LoadedMpi> loaded;  ///< by this process
    bool pmix = false;              ///< the launcher offers what Open MPI asks for
    bool pmi = false;               ///< the launcher offers what MPICH asks for
    /// Loads a library's plug-in, if it can; so it is asked only about a library that will be chosen then.
    std::function<Result<void>(MpiLibrary)> load;
    std::vector<PluginFolder> folders;  ///< that it looks into
};

struct MpiChoice {
    std::string variant;  ///< of the backend: "mpi_openmpi"
    std::string why;      ///< "Open MPI: this process has loaded /usr/lib/libmpi.so.40"
};

/// What the process has loaded already, else what the user asks for, else what the launcher serves,
/// else what is there, Open MPI first.
/// Errc: invalid_input (DTRUN_MPI_LIBRARY; two MPIs at once), not_found (no plug-in)
Result<MpiChoice> choose_mpi(const MpiSurroundings& surroundings);

/// Chooses for this process, and may load the choice.
Result<MpiChoice> choose_mpi(std::span<const PluginFolder> folders);

}  // namespace dtrun::collectives
