#pragma once

#include <string>
#include <string_view>

namespace dtrun::collectives {

/// "Open MPI 4.1.4" or "MPICH 4.0.2", from what MPI_Get_library_version() says.
std::string mpi_version(std::string_view text);

/// "ch4:ucx", from the same of MPICH; "" if it is not there.
std::string mpich_device(std::string_view text);

}  // namespace dtrun::collectives
