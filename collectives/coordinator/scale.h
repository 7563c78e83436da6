#pragma once

#include "collectives/types.h"

namespace dtrun::collectives {

/// out[i] = in[i] * factor. `out` may be `in`. 16-bit floats are multiplied as f32 and rounded to
/// nearest even, integers as f64 and rounded towards zero. The bits do not depend on the
/// floating-point modes of the caller.
void scale(const void* in, void* out, std::size_t count, DType type, double factor);

}  // namespace dtrun::collectives
