#include "collectives/codec/codec.h"

#include "collectives/codec/isa.h"
#include "collectives/codec/kernels.h"
#include "collectives/codec/numbers.h"

#include <array>
#include <string>
#include <utility>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace dtrun::collectives {
namespace {

constexpr std::array<std::pair<Format, std::string_view>, 7> kNames = {{
    {Format::f16, "fp16"},
    {Format::bf16, "bf16"},
    {Format::e4m3, "fp8-e4m3"},
    {Format::e5m2, "fp8-e5m2"},
    {Format::int8, "int8"},
    {Format::e4m3_unscaled, "fp8-e4m3-unscaled"},
    {Format::e5m2_unscaled, "fp8-e5m2-unscaled"},
}};

const CodecKernels& kernels() {
#if defined(__x86_64__)
    switch (isa()) {
        case Isa::avx512:
            return kAvx512Kernels;
        case Isa::avx2:
            return kAvx2Kernels;
        case Isa::scalar:
            break;
    }
#endif
    return kScalarKernels;
}

/// Rounds to nearest and keeps denormal numbers while it lives, whatever the program has chosen:
/// ranks have to agree about every bit, and some libraries change these when they are loaded.
class DefaultArithmetic {
public:
    DefaultArithmetic(const DefaultArithmetic&) = delete;
    DefaultArithmetic& operator=(const DefaultArithmetic&) = delete;
#if defined(__x86_64__)
    DefaultArithmetic() : before_(_mm_getcsr()) {
        if ((before_ & ~kFlags) != kDefault) _mm_setcsr(kDefault);
    }
    ~DefaultArithmetic() {
        if ((before_ & ~kFlags) != kDefault) _mm_setcsr(before_);
    }

private:
    static constexpr unsigned kDefault = 0x1f80;  ///< no exceptions, round to nearest
    static constexpr unsigned kFlags = 0x3f;      ///< exceptions that have happened
    const unsigned before_;
#else
    DefaultArithmetic() = default;
#endif
};

}  // namespace

std::size_t encoded_bytes(Format format, std::size_t count) {
    if (format == Format::f16 || format == Format::bf16) return 2 * count;
    if (!has_scale(format)) return count;
    return count + sizeof(float) * (count / kBlock + (count % kBlock != 0));
}

void encode(Format format, Rounding rounding, std::uint64_t seed, const float* values,
            std::size_t count, std::byte* out, float* error) {
    const DefaultArithmetic arithmetic;
    kernels().encode(format, rounding, seed, values, count, reinterpret_cast<unsigned char*>(out),
                     error);
}

void decode(Format format, const std::byte* in, std::size_t count, float* values) {
    const DefaultArithmetic arithmetic;
    kernels().decode(format, reinterpret_cast<const unsigned char*>(in), count, values);
}

void decode_add(Format format, const std::byte* in, std::size_t count, float* sums) {
    const DefaultArithmetic arithmetic;
    kernels().decode_add(format, reinterpret_cast<const unsigned char*>(in), count, sums);
}

std::string_view name_of(Format format) {
    for (const auto& [known, name] : kNames) {
        if (known == format) return name;
    }
    return "?";
}

Result<Format> parse_format(std::string_view name) {
    std::string all;
    for (const auto& [format, known] : kNames) {
        if (known == name) return format;
        all += (all.empty() ? "" : ", ") + std::string(known);
    }
    return fail(Errc::invalid_input, "\"{}\" is no format: {}", name, all);
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
