#include "collectives/coordinator/scale.h"

#include "collectives/codec/default_arithmetic.h"
#include "collectives/codec/numbers.h"

#include <cstring>

namespace dtrun::collectives {
namespace {

template <class Value, class Factor>
[[gnu::noinline]] void scale_as(const void* in, void* out, std::size_t count, Factor factor) {
    const auto* const from = static_cast<const Value*>(in);
    auto* const to = static_cast<Value*>(out);
    for (std::size_t i = 0; i < count; ++i)
        to[i] = static_cast<Value>(static_cast<Factor>(from[i]) * factor);
}

template <float (*widen)(std::uint16_t), std::uint16_t (*narrow)(float)>
[[gnu::noinline]] void scale_short(const void* in, void* out, std::size_t count, float factor) {
    const auto* const from = static_cast<const std::uint16_t*>(in);
    auto* const to = static_cast<std::uint16_t*>(out);
    for (std::size_t i = 0; i < count; ++i) to[i] = narrow(widen(from[i]) * factor);
}

}  // namespace

void scale(const void* in, void* out, std::size_t count, DType type, double factor) {
    if (factor == 1.0) {
        if (in != out && count > 0) std::memcpy(out, in, count * bytes_of(type));
        return;
    }
    const DefaultArithmetic arithmetic;
    switch (type) {
        case DType::f32:
            return scale_as<float>(in, out, count, static_cast<float>(factor));
        case DType::f64:
            return scale_as<double>(in, out, count, factor);
        case DType::f16:
            return scale_short<float_of_half, half_of>(in, out, count, static_cast<float>(factor));
        case DType::bf16:
            return scale_short<float_of_bf16, bf16_of>(in, out, count, static_cast<float>(factor));
        case DType::i8:
            return scale_as<std::int8_t>(in, out, count, factor);
        case DType::u8:
            return scale_as<std::uint8_t>(in, out, count, factor);
        case DType::i32:
            return scale_as<std::int32_t>(in, out, count, factor);
        case DType::i64:
            return scale_as<std::int64_t>(in, out, count, factor);
    }
}

}  // namespace dtrun::collectives
