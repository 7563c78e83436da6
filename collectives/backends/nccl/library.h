#pragma once

#include "base/result.h"
#include "collectives/backends/nccl/api.h"

#include <memory>
#include <string>
#include <vector>

namespace dtrun::collectives::nccl {

/// Files to take instead of looking for them; "" where it is to be looked for.
struct LibraryPaths {
    std::string nccl;    ///< DTRUN_NCCL_LIBRARY
    std::string cudart;  ///< DTRUN_CUDART_LIBRARY
};

/// NCCL or RCCL and the runtime of the GPUs, as found in this process or on this host. They are not
/// closed again: both leave threads behind.
class NcclLibrary {
public:
    /// Takes what this process has loaded already, so that there are not two of them beside a
    /// framework's; then what the loader finds, CUDA's folders, and pip's packages.
    /// Errc: not_found (no driver, no library), invalid_input (a library that is too old)
    static Result<std::shared_ptr<const NcclLibrary>> open(const LibraryPaths& paths);

    NcclFunctions nccl;
    GpuFunctions gpu;
    bool rccl = false;  ///< RCCL and HIP, not NCCL and CUDA
    int version = 0;    ///< 22809 is 2.28.9

    std::string name() const;  ///< "NCCL 2.28.9"
    /// GPUs that this process may use. Errc: not_found (none, with the reason)
    Result<int> device_count() const;
    /// "CUDA driver version is insufficient for CUDA runtime version"
    std::string gpu_error(int code) const;
    /// The text of an error: its name, and the details if the library has any.
    std::string nccl_error(NcclResult code, NcclComm* comm) const;
};

std::string version_text(int version);  ///< "2.28.9" of 22809, "2.7.8" of 2708

/// Where pip puts NVIDIA's libraries in site-packages `site`: NAME.so.2 of NCCL, NAME.so.12 of CUDA.
std::vector<std::string> pip_paths(const std::string& site, const std::string& soname);

}  // namespace dtrun::collectives::nccl
