#pragma once

#include "collectives/codec/format.h"

namespace dtrun::collectives {

/// encode(), decode() and decode_add() of codec.h, for one kind of processor. All kinds give the
/// same bits.
struct CodecKernels {
    void (*encode)(Format format, Rounding rounding, std::uint64_t seed, const float* values,
                   std::size_t count, unsigned char* out, float* error);
    void (*decode)(Format format, const unsigned char* in, std::size_t count, float* values,
                   bool past_caches);
    void (*decode_add)(Format format, const unsigned char* in, std::size_t count, float* sums);
};

extern const CodecKernels kScalarKernels;
#if defined(__x86_64__)
extern const CodecKernels kAvx2Kernels;
extern const CodecKernels kAvx512Kernels;
#endif

}  // namespace dtrun::collectives
