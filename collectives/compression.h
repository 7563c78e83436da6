#pragma once

#include "collectives/codec/format.h"

#include <cstddef>

namespace dtrun::collectives {

/// How an allreduce of f32 is compressed.
struct Compression {
    Format format = Format::e4m3;
    Rounding rounding = Rounding::nearest;
    /// Buffer for error feedback, one float per value, or nullptr: the last call's rounding errors
    /// are added to this rank's values, and this call's are stored here. Zeros at first.
    float* error = nullptr;
};

/// A part of the values of a call: values of several tensors are reduced as one.
struct Segment {
    const float* in;
    float* out;  ///< may be `in`
    std::size_t count;
    float* error = nullptr;  ///< `count` of them, see Compression
};

}  // namespace dtrun::collectives
