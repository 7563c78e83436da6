#include "collectives/codec/lanes_avx512.h"

#include "collectives/codec/array_kernels.h"

namespace dtrun::collectives {

const CodecKernels kAvx512Kernels = {
    ArrayCodec<Avx512Lanes>::encode,
    ArrayCodec<Avx512Lanes>::decode,
    ArrayCodec<Avx512Lanes>::decode_add,
};

}  // namespace dtrun::collectives
