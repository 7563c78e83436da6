#include "collectives/codec/reduce.h"

#include "collectives/codec/default_arithmetic.h"
#include "collectives/codec/kernels.h"

namespace dtrun::collectives {

void reduce_into(void* out, const void* a, const void* b, std::size_t count, DType type,
                 Reduce reduce) {
    if (count == 0) return;
    const DefaultArithmetic arithmetic;
    kernels().reduce_into(out, a, b, count, type, reduce);
}

void divide(void* data, std::size_t count, DType type, std::uint32_t divisor) {
    if (count == 0 || divisor <= 1) return;
    const DefaultArithmetic arithmetic;
    kernels().divide(data, count, type, divisor);
}

}  // namespace dtrun::collectives
