#include "collectives/codec/reduce.h"

#include "collectives/codec/default_arithmetic.h"
#include "collectives/codec/isa.h"
#include "collectives/codec/reduce_kernels.h"

namespace dtrun::collectives {
namespace {

const ReduceKernels& reduce_kernels() {
#if defined(__x86_64__)
    switch (isa()) {
        case Isa::avx512:
            return kAvx512ReduceKernels;
        case Isa::avx2:
            return kAvx2ReduceKernels;
        case Isa::scalar:
            break;
    }
#endif
    return kScalarReduceKernels;
}

}  // namespace

void reduce_into(void* out, const void* a, const void* b, std::size_t count, DType type,
                 Reduce reduce) {
    if (count == 0) return;
    const DefaultArithmetic arithmetic;
    reduce_kernels().reduce_into(out, a, b, count, type, reduce);
}

void divide(void* data, std::size_t count, DType type, std::uint32_t divisor) {
    if (count == 0 || divisor <= 1) return;
    const DefaultArithmetic arithmetic;
    reduce_kernels().divide(data, count, type, divisor);
}

}  // namespace dtrun::collectives
