#pragma once

#include "collectives/codec/format.h"

namespace dtrun::collectives {

inline constexpr Format kAllFormats[] = {
#define DTRUN_FORMAT(format, ...) Format::format,
#include "collectives/codec/formats.def"
#undef DTRUN_FORMAT
};

/// The relative error that two roundings may cost: of numbers from N(0, 1), with a scale for each
/// block of 256 where the format has one.
inline double bound(Format format) {
    switch (format) {
        case Format::f16:
            return 5e-4;
        case Format::bf16:
            return 4e-3;
        case Format::int8:
            return 1.2e-2;
        case Format::e4m3:
        case Format::e4m3_unscaled:
            return 4.5e-2;
        default:
            return 9e-2;
    }
}

}  // namespace dtrun::collectives
