#include "collectives/backends/backend_facts.h"
#include "collectives/backends/mpi/texts.h"
#include "collectives/backends/shared_library.h"

namespace dtrun::collectives {

/// All that are on this host: the backend takes the one that a program was started with.
std::string mpi_library_version() {
    std::string versions;
    for (void* const library : {open_any({"libmpi.so.40", "libmpi.so.20"}),
                                open_any({"libmpich.so.12", "libmpi.so.12"})}) {
        const auto ask = function_of<int(char*, int*)>(library, "MPI_Get_library_version");
        char text[8'192] = "";  // MPI_MAX_LIBRARY_VERSION_STRING of either
        int length = 0;
        if (!ask || ask(text, &length) != 0) continue;
        versions += (versions.empty() ? "" : ", ") + mpi_version(text);
    }
    return versions;
}

}  // namespace dtrun::collectives
