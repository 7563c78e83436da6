#include "collectives/codec/lanes_avx512.h"

#include "collectives/codec/reduce_kernels.h"

namespace dtrun::collectives {

const ReduceKernels kAvx512ReduceKernels = {
    ArrayReduction<Avx512Lanes>::reduce_into,
    ArrayReduction<Avx512Lanes>::divide,
};

}  // namespace dtrun::collectives
