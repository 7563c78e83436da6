#include "collectives/codec/lanes_scalar.h"

#include "collectives/codec/array_kernels.h"

namespace dtrun::collectives {

const CodecKernels kScalarKernels = {
    ArrayCodec<ScalarLanes>::encode,
    ArrayCodec<ScalarLanes>::decode,
    ArrayCodec<ScalarLanes>::decode_add,
};

}  // namespace dtrun::collectives
