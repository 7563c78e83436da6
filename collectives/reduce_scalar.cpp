#include "collectives/codec/lanes_scalar.h"

#include "collectives/reduce_kernels.h"

namespace dtrun::collectives {

const ReduceKernels kScalarReduceKernels = {
    ArrayReduction<ScalarLanes>::reduce_into,
    ArrayReduction<ScalarLanes>::divide,
};

}  // namespace dtrun::collectives
