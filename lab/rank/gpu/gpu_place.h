#pragma once

#include "collectives/device.h"
#include "lab/rank/gpu/train_cuda.h"

#include <string>

namespace dtrun::lab::rank {

/// The kernels of libdtrun_train_cuda.so for the current device. Once loaded they stay.
/// \param path  "": in the folder of the plug-ins of libdtrun_collectives
/// Errc: not_found (there is no such library, or it has nothing for this GPU)
Result<const TrainKernels*> open_train_kernels(const std::string& path);

/// Where a network learns on a GPU: the stream that all of its work is given to.
struct GpuPlace {
    /// \param path  of the kernels, as for open_train_kernels()
    /// Errc: not_found (says what is missing), internal
    static Result<GpuPlace> open(const collectives::Device& device, const std::string& path);

    collectives::Device device;
    collectives::DeviceStream stream;
    const TrainKernels* kernels;
};

}  // namespace dtrun::lab::rank
