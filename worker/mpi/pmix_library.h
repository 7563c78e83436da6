#pragma once

#include "base/result.h"
#include "worker/mpi/pmix_abi.h"

#include <string>

namespace dtrun::mpi {

/// libpmix, loaded for as long as the process lives.
struct PmixLibrary {
    std::string path;     ///< of its file, as far as the loader knows it
    std::string version;  ///< e.g. "4.2.2"

    pmix::ErrorString error_string = nullptr;
    pmix::ServerInit server_init = nullptr;
    pmix::RegisterNspace register_nspace = nullptr;
    pmix::RegisterClient register_client = nullptr;
    pmix::SetupFork setup_fork = nullptr;
    pmix::DmodexRequest dmodex_request = nullptr;
};

/// \param name  of a file, or of a library where the system finds it; empty: libpmix.so.2
/// Errc: not_found (what to install), invalid_input (a version below 4, or no server library)
Result<PmixLibrary> load_pmix(const std::string& name);

}  // namespace dtrun::mpi
