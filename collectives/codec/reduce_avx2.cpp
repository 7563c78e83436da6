#include "collectives/codec/lanes_avx2.h"

#include "collectives/codec/reduce_kernels.h"

namespace dtrun::collectives {

const ReduceKernels kAvx2ReduceKernels = {
    ArrayReduction<Avx2Lanes>::reduce_into,
    ArrayReduction<Avx2Lanes>::divide,
};

}  // namespace dtrun::collectives
