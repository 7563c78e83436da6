#pragma once

#include <cstdint>
#include <string>

namespace dtrun::mpi {

/// Whose MPI a program is linked with, by the names of the shared libraries that it needs itself.
enum class LinkedMpi : std::uint8_t {
    none,      ///< none, or not known: a script, a static program, one that loads it later
    open_mpi,  ///< speaks PMIx
    mpich,     ///< or Intel MPI, MVAPICH: speaks PMI
};

/// \param path  of a program
LinkedMpi linked_mpi(const std::string& path);

}  // namespace dtrun::mpi
