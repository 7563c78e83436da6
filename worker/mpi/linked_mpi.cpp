#include "worker/mpi/linked_mpi.h"

#include "base/linked_libraries.h"

#include <string_view>

namespace dtrun::mpi {
namespace {

LinkedMpi mpi_of_library(std::string_view name) {
    // libmpi.so.12 is Intel MPI's and MPICH's under their common ABI.
    for (const std::string_view known : {"libmpi.so.40", "libmpi_mpifh.so.40", "libmpi_cxx.so.40"})
        if (name == known) return LinkedMpi::open_mpi;
    for (const std::string_view known : {"libmpi.so.12", "libmpifort.so.12"})
        if (name == known) return LinkedMpi::mpich;
    return name.starts_with("libmpich") ? LinkedMpi::mpich : LinkedMpi::none;
}

}  // namespace

LinkedMpi linked_mpi(const std::string& path) {
    for (const std::string& name : linked_libraries(path).needed) {
        const LinkedMpi mpi = mpi_of_library(name);
        if (mpi != LinkedMpi::none) return mpi;
    }
    return LinkedMpi::none;
}

}  // namespace dtrun::mpi
