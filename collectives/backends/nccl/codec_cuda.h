#pragma once

#include "collectives/compression.h"
#include "collectives/types.h"

#include <cstddef>
#include <cstdint>

namespace dtrun::collectives {

/// Encoded values of all ranks, which the owner of a chunk combines into an encoded sum or mean.
struct CudaChunk {
    const std::byte* encoded = nullptr;  ///< of all ranks, one behind the other
    std::size_t stride = 0;              ///< bytes from one rank's to the next one's
    std::uint32_t ranks = 0;
    /// The rank whose values are taken, unencoded, from `own` instead of `encoded`; >= ranks: none.
    std::uint32_t own_rank = ~0u;
    const float* own = nullptr;
    const float* own_before = nullptr;  ///< if not null, is added to `own`
    std::uint32_t divisor = 1;          ///< of the sum; the number of ranks for an average
    std::size_t count = 0;              ///< values of each rank
};

/// A segment, and where its values lie among those of several. Without `in` its values are zeros, without `out`
/// they go nowhere.
struct CudaSegment {
    Segment segment;
    std::size_t begin = 0;
};

/// The codecs of codec.h for memory of the GPU, with the same bits, and what belongs to them.
///
/// Functions enqueue their work on a stream (a cudaStream_t) of the current device, and return 0 or
/// a cudaError_t. Any alignment; fastest where values lie at multiples of 16 bytes, encoded ones at
/// multiples of 4, or 8 if they have 16 bits. Pointers may be null if there is nothing to do.
///
/// Errors are those of error feedback: what coding has lost of a value, or 0 where that is not
/// finite. Those of the last call are added to the values as these are read, and those of this call
/// are written in the same pass, so that feedback costs no pass of its own.
///
/// In a library of its own, libdtrun_codec_cuda.so, that is loaded where there is a GPU: it has the
/// CUDA runtime inside.
struct CudaCodecs {
    static constexpr std::uint32_t kAbi = 4;
    std::uint32_t abi;

    /// Whether there is code for the current device, and a driver that is new enough: 0, or why not.
    int (*check)();
    /// \param before  errors of the last call, or nullptr
    /// \param error   gets those of this one, unless nullptr; may be `before`
    int (*encode)(Format format, Rounding rounding, std::uint64_t seed, const float* values,
                  const float* before, std::size_t count, std::byte* out, float* error,
                  void* stream);
    int (*decode)(Format format, const std::byte* in, std::size_t count, float* values,
                  void* stream);
    /// In one pass: decodes what all ranks have sent of a chunk, adds it up in the order of ranks,
    /// divides, and encodes the result.
    /// \param error  if not null, gets what the result has lost times the divisor; may be
    ///               chunk.own_before
    /// \param values  if not null, gets the decoded values of `out`
    int (*combine)(Format format, Rounding rounding, std::uint64_t seed, const CudaChunk& chunk,
                   std::byte* out, float* error, float* values, void* stream);
    /// Puts the values of segments together, with the errors of the last call where there are any:
    /// values[begin + i] = in[i] + error[i].
    /// \param values  not of a segment
    int (*gather)(const CudaSegment* segments, std::size_t number, float* values, void* stream);
    /// Reverses gather(): out[i] = values[begin + i], and error[i] = errors[begin + i] where a
    /// segment keeps errors.
    int (*scatter)(const CudaSegment* segments, std::size_t number, const float* values,
                   const float* errors, void* stream);
    /// divide() of reduce.h
    int (*divide)(void* data, std::size_t count, DType type, std::uint32_t divisor, void* stream);
    /// The text of an error that the others return; lives for ever.
    const char* (*error_text)(int error);
};

}  // namespace dtrun::collectives

extern "C" __attribute__((visibility("default"))) const dtrun::collectives::CudaCodecs*
dtrun_codec_cuda();
