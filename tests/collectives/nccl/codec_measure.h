#pragma once

#include "collectives/backends/nccl/codec_cuda.h"

#include <cstddef>
#include <string>
#include <vector>

namespace dtrun::collectives {

/// One line of the table: bytes that are read and written a second.
struct CodecRate {
    std::string name;  ///< "int8 encode"
    std::size_t mib;   ///< of the f32 values
    bool aligned;
    double gbytes_per_s;
    double of_copy;  ///< the rate of the card's own copy is 1
};

/// Measures all codecs on the current GPU.
/// \param mib      of f32 values; small ones take turns, as in a cache nothing would be measured
/// \param aligned  else arrays of values begin 4 bytes behind a boundary
std::vector<CodecRate> measure_codecs(const CudaCodecs& cuda, std::size_t mib, bool aligned);

/// Ends the program with a failed call of CUDA: nothing that follows would mean anything.
void require_cuda(int error, const char* what);

}  // namespace dtrun::collectives
