#pragma once

#include "collectives/types.h"

namespace dtrun::collectives {

/// out[i] = a[i] op b[i], at memory speed; halves are added as floats and rounded to nearest even.
/// `out` may be `a` or `b`, which do not overlap otherwise; any alignment. average counts as sum.
/// NaN: min and max give NaN if either is. Integers wrap around. As in codec.h, the bits depend on
/// the arguments alone, not on the floating-point modes of the caller; so do those of divide().
void reduce_into(void* out, const void* a, const void* b, std::size_t count, DType type,
                 Reduce reduce);

/// data[i] = data[i] / divisor, for average. Integers are rounded towards zero.
void divide(void* data, std::size_t count, DType type, std::uint32_t divisor);

}  // namespace dtrun::collectives
