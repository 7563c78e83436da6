#include "collectives/codec/lanes_avx2.h"

#include "collectives/codec/array_kernels.h"

namespace dtrun::collectives {

const CodecKernels kAvx2Kernels = {
    ArrayCodec<Avx2Lanes>::encode,
    ArrayCodec<Avx2Lanes>::decode,
    ArrayCodec<Avx2Lanes>::decode_add,
};

}  // namespace dtrun::collectives
