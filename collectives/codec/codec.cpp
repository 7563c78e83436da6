#include "collectives/codec/codec.h"

#include "collectives/codec/default_arithmetic.h"
#include "collectives/codec/format_table.h"
#include "collectives/codec/isa.h"
#include "collectives/codec/kernels.h"
#include "collectives/codec/numbers.h"

#include <string>

namespace dtrun::collectives {

std::size_t encoded_bytes(Format format, std::size_t count) {
    const FormatRow& row = row_of(format);
    const std::size_t scales = row.is_scaled() ? (count + row.block - 1) / row.block : 0;
    return count * (row.bits / 8) + scales * sizeof(float);
}

void encode(Format format, Rounding rounding, std::uint64_t seed, const float* values,
            std::size_t count, std::byte* out, float* error) {
    const DefaultArithmetic arithmetic;
    kernels().encode(format, rounding, seed, values, count, reinterpret_cast<unsigned char*>(out),
                     error);
}

void decode(Format format, const std::byte* in, std::size_t count, float* values,
            bool past_caches) {
    const DefaultArithmetic arithmetic;
    kernels().decode(format, reinterpret_cast<const unsigned char*>(in), count, values,
                     past_caches);
}

void decode_add(Format format, const std::byte* in, std::size_t count, float* sums) {
    const DefaultArithmetic arithmetic;
    kernels().decode_add(format, reinterpret_cast<const unsigned char*>(in), count, sums);
}

std::string_view name_of(Format format) {
    return row_of(format).name;
}

std::string_view codec_dispatch() {
    return name_of(isa());
}

Result<void> set_codec_dispatch(std::string_view name) {
    for (const Isa known : {Isa::scalar, Isa::avx2, Isa::avx512}) {
        if (name_of(known) == name) return set_isa(known);
    }
    return fail(Errc::not_found, "\"{}\" is none of scalar, avx2, avx512", name);
}

}  // namespace dtrun::collectives
