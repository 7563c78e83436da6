#include "collectives/codec/lanes_avx2.h"

#include "collectives/codec/array_kernels.h"
#include "collectives/codec/reduce_kernels.h"

namespace dtrun::collectives {

const Kernels kAvx2Kernels = {
    ArrayCodec<Avx2Lanes>::encode,     ArrayCodec<Avx2Lanes>::decode,
    ArrayCodec<Avx2Lanes>::decode_add, ArrayReduction<Avx2Lanes>::reduce_into,
    ArrayReduction<Avx2Lanes>::divide,
};

}  // namespace dtrun::collectives
