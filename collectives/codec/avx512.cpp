#include "collectives/codec/lanes_avx512.h"

#include "collectives/codec/array_kernels.h"
#include "collectives/codec/reduce_kernels.h"

namespace dtrun::collectives {

const Kernels kAvx512Kernels = {
    ArrayCodec<Avx512Lanes>::encode,     ArrayCodec<Avx512Lanes>::decode,
    ArrayCodec<Avx512Lanes>::decode_add, ArrayReduction<Avx512Lanes>::reduce_into,
    ArrayReduction<Avx512Lanes>::divide,
};

}  // namespace dtrun::collectives
