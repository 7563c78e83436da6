#pragma once

#include "base/result.h"
#include "collectives/backends/nccl/codec_cuda.h"

#include <string>

namespace dtrun::collectives::nccl {

/// The codecs of libdtrun_codec_cuda.so for the current device. Once loaded they stay.
/// \param path  "": beside the plug-in that this is part of
/// Errc: invalid_input (there is no such library, or it has nothing for this GPU)
Result<const CudaCodecs*> open_codecs(const std::string& path);

}  // namespace dtrun::collectives::nccl
