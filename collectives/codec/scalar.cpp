#include "collectives/codec/lanes_scalar.h"

#include "collectives/codec/array_kernels.h"
#include "collectives/codec/reduce_kernels.h"

namespace dtrun::collectives {

const Kernels kScalarKernels = {
    ArrayCodec<ScalarLanes>::encode,     ArrayCodec<ScalarLanes>::decode,
    ArrayCodec<ScalarLanes>::decode_add, ArrayReduction<ScalarLanes>::reduce_into,
    ArrayReduction<ScalarLanes>::divide,
};

}  // namespace dtrun::collectives
