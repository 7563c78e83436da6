#include "collectives/codec/lanes_scalar.h"

#include "collectives/codec/reduce_kernels.h"

namespace dtrun::collectives {

const ReduceKernels kScalarReduceKernels = {
    ArrayReduction<ScalarLanes>::reduce_into,
    ArrayReduction<ScalarLanes>::divide,
};

}  // namespace dtrun::collectives
