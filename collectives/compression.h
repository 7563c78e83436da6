#pragma once

#include "collectives/codec/format.h"
#include "collectives/types.h"

#include <cstddef>

namespace dtrun::collectives {

/// When values travel in fewer bits.
enum class CompressionPolicy {
    automatic,  ///< between hosts, where it is faster, which is tried; in full else, which is exact
    always,     ///< also on one host, and however few they are: to study formats
};

/// How values are compressed.
struct Compression {
    Format format = Format::e4m3;
    Rounding rounding = Rounding::nearest;
    /// Buffer for error feedback, one float per value, or nullptr: the last call's rounding errors
    /// are added to this rank's values, and this call's are stored here. Zeros at first.
    float* error = nullptr;
    CompressionPolicy policy = CompressionPolicy::automatic;
};

/// A part of the values of a call: values of several tensors are reduced as one.
struct Segment {
    const float* in;
    float* out;  ///< may be `in`
    std::size_t count;
    float* error = nullptr;  ///< `count` of them, see Compression
};

/// The same in host memory, where values need not be f32. Sums are f32 whatever they are.
struct TypedSegment {
    const void* in;
    void* out;  ///< may be `in`
    std::size_t count;
    float* error = nullptr;
    DType type = DType::f32;  ///< or f16, bf16
};

}  // namespace dtrun::collectives
