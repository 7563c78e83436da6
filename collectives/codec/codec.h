#pragma once

#include "base/result.h"
#include "collectives/codec/format.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dtrun::collectives {

/// Bytes of `count` encoded values. Blocks lie one behind the other, each its scale (an f32, little
/// endian, for scaled formats) and then its values; the last block may be shorter.
std::size_t encoded_bytes(Format format, std::size_t count);

/// Writes values[0, count) to `out`, of which encoded_bytes() are written; any alignment.
///
/// The scale of a block is its largest magnitude divided by the largest number of the format, and
/// at least f32's least normal number: the largest value survives, but for a rounding of f32, and
/// blocks of tiny values lose precision instead of becoming infinite. A block of zeros has scale 0.
/// A block with a NaN, or else an infinity, has that as its scale, and every value of it is decoded
/// as NaN: what has blown up is seen at once.
/// Values that are not finite in f16, bf16 and unscaled formats stay so as far as the format has
/// them (E4M3: NaN); finite ones beyond the largest 8-bit float become that one.
///
/// The bits depend on the arguments alone: not on the processor (nor on its being a GPU), not on
/// the floating-point modes of the caller. A part that begins at a multiple of kBlock may be
/// encoded by itself; rounded to nearest, it has the same bits as in the whole.
/// \param seed  for stochastic rounding: the same seed gives the same bits. Two neighbouring seeds
///              are as good as any
/// \param error  if not null, error[i] += values[i] - decoded value, for error feedback; 0 where
///               that is not finite
void encode(Format format, Rounding rounding, std::uint64_t seed, const float* values,
            std::size_t count, std::byte* out, float* error = nullptr);

/// values[i] = decoded value. All that encode() can write, and any other bytes, may be decoded.
/// \param past_caches  the values are a part of a result that is too large for the caches
void decode(Format format, const std::byte* in, std::size_t count, float* values,
            bool past_caches = false);

/// sums[i] += decoded value
void decode_add(Format format, const std::byte* in, std::size_t count, float* sums);

std::string_view name_of(Format format);  ///< "fp16", "bf16", "fp8-e4m3", "fp8-e5m2", "int8", ...

/// The instructions that codecs and reduce_into() use, the best of this processor: "avx512", "avx2"
/// or "scalar".
std::string_view codec_dispatch();
/// Sets other instructions, for tests. Errc: not_found (this processor lacks them)
Result<void> set_codec_dispatch(std::string_view name);

}  // namespace dtrun::collectives
