#pragma once

#include "collectives/compression.h"
#include "collectives/types.h"

#include <cstddef>
#include <cstdint>

namespace dtrun::collectives {

/// Encoded values of all ranks, which the owner of a piece combines into an encoded sum or mean.
struct CudaPiece {
    const std::byte* encoded = nullptr;  ///< of all ranks, one behind the other
    std::size_t stride = 0;              ///< bytes from one rank's to the next one's
    std::uint32_t ranks = 0;
    /// The rank whose values are taken, unencoded, from `own` instead of `encoded`; >= ranks: none.
    std::uint32_t own_rank = ~0u;
    const float* own = nullptr;
    std::uint32_t divisor = 1;  ///< of the sum; the number of ranks for an average
    std::size_t count = 0;      ///< values of each rank
};

/// The codecs of codec.h for memory of the GPU, with the same bits, and what belongs to them.
///
/// Functions enqueue their work on a stream (a cudaStream_t) of the current device, and return 0 or
/// a cudaError_t. Any alignment; fastest where values lie at multiples of 16 bytes and encoded ones
/// at multiples of 4. Pointers may be null if there is nothing to do.
///
/// In a library of its own, libdtrun_codec_cuda.so, that is loaded where there is a GPU: it has the
/// CUDA runtime inside.
struct CudaCodecs {
    static constexpr std::uint32_t kAbi = 2;
    std::uint32_t abi;

    /// Whether there is code for the current device, and a driver that is new enough: 0, or why not.
    int (*check)();
    int (*encode)(Format format, Rounding rounding, std::uint64_t seed, const float* values,
                  std::size_t count, std::byte* out, float* error, void* stream);
    int (*decode)(Format format, const std::byte* in, std::size_t count, float* values,
                  void* stream);
    int (*decode_add)(Format format, const std::byte* in, std::size_t count, float* sums,
                      void* stream);
    /// In one pass: decodes what all ranks have sent of a piece, adds it up in the order of ranks,
    /// divides, and encodes the result.
    /// \param error  if not null, error[i] += (result - its decoded value) * divisor, or 0 as in
    ///               encode()
    /// \param values  if not null, gets the decoded values of `out`
    int (*combine)(Format format, Rounding rounding, std::uint64_t seed, const CudaPiece& piece,
                   std::byte* out, float* error, float* values, void* stream);
    /// Puts the values of segments one behind the other, with the errors of the last call, where
    /// there are any: values[i] = in[i] + error[i].
    /// \param values  may be `out` of a single segment
    /// \param errors  if not null, becomes 0; may be `error` of a single segment
    int (*gather)(const Segment* segments, std::size_t number, float* values, float* errors,
                  void* stream);
    /// Reverses gather(): out[i] = values[i], and error[i] = errors[i] where a segment keeps
    /// errors.
    int (*scatter)(const Segment* segments, std::size_t number, const float* values,
                   const float* errors, void* stream);
    /// divide() of reduce.h
    int (*divide)(void* data, std::size_t count, DType type, std::uint32_t divisor, void* stream);
    /// The text of an error that the others return; lives for ever.
    const char* (*error_text)(int error);
};

}  // namespace dtrun::collectives

extern "C" __attribute__((visibility("default"))) const dtrun::collectives::CudaCodecs*
dtrun_codec_cuda();
