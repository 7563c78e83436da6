#pragma once

#include "collectives/codec/format.h"
#include "collectives/types.h"

namespace dtrun::collectives {

/// The functions of codec.h and reduce.h, for one kind of processor. All kinds give the same bits.
struct Kernels {
    void (*encode)(Format format, Rounding rounding, std::uint64_t seed, const float* values,
                   std::size_t count, unsigned char* out, float* error);
    void (*decode)(Format format, const unsigned char* in, std::size_t count, float* values,
                   bool past_caches);
    void (*decode_add)(Format format, const unsigned char* in, std::size_t count, float* sums);
    void (*reduce_into)(void* out, const void* a, const void* b, std::size_t count, DType type,
                        Reduce reduce);
    void (*divide)(void* data, std::size_t count, DType type, std::uint32_t divisor);
};

extern const Kernels kScalarKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#endif

/// Those of isa().
const Kernels& kernels();

}  // namespace dtrun::collectives
