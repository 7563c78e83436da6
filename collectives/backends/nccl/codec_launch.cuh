#pragma once

#include "collectives/backends/nccl/codec_kernels.cuh"

// The functions of CudaCodecs, made of kernels. Who includes this has declared, in this namespace,
//   template <class Kernel, class... Arguments>
//   void start(Kernel kernel, unsigned grid, void* stream, Arguments... arguments);
//   int launched();  // what the last start() has come to
// that start kernels on a GPU, or do their work on a CPU.
namespace dtrun::collectives::cuda {

template <Format format>
struct FormatTag {
    static constexpr Format kFormat = format;
};

/// Calls use(FormatTag<format>()).
template <class Use>
void with_format(Format format, Use&& use) {
    switch (format) {
#define DTRUN_FORMAT(format, ...)         \
    case Format::format:                  \
        use(FormatTag<Format::format>()); \
        break;
#include "collectives/codec/formats.def"
#undef DTRUN_FORMAT
    }
}

template <bool value>
struct Flag {
    static constexpr bool kValue = value;
};

/// Calls use() with a Flag for each condition, so that kernels do not ask for it again and again.
template <class Use>
void with_flags(bool first, Use&& use) {
    first ? use(Flag<true>()) : use(Flag<false>());
}
template <class Use>
void with_flags(bool first, bool second, Use&& use) {
    with_flags(first, [&](auto a) { with_flags(second, [&](auto b) { use(a, b); }); });
}
template <bool stochastic>
constexpr Rounding rounding_of(Flag<stochastic>) {
    return stochastic ? Rounding::stochastic : Rounding::nearest;
}

inline bool is_aligned(const void* p, std::size_t to) {
    return reinterpret_cast<std::uintptr_t>(p) % to == 0;
}

template <class... Pointers>
bool floats_aligned(const Pointers*... pointers) {
    return (is_aligned(pointers, sizeof(float4)) && ...);
}

inline bool codes_aligned(Format format, const void* codes) {
    return is_aligned(codes, value_bytes(format) * kFour);
}

inline unsigned grid_of(std::size_t count) {
    constexpr std::size_t each = kBlocksAtOnce * kBlock;
    return static_cast<unsigned>((count + each - 1) / each);
}

inline unsigned char* bytes_at(std::byte* data) {
    return reinterpret_cast<unsigned char*>(data);
}

inline int encode(Format format, Rounding rounding, std::uint64_t seed, const float* values,
                  const float* before, std::size_t count, std::byte* out, float* error,
                  void* stream) {
    if (count == 0) return 0;
    const bool aligned = floats_aligned(values, before, error) && codes_aligned(format, out);
    with_format(format, [&](auto tag) {
        with_flags(rounding == Rounding::stochastic, aligned,
                   [&](auto stochastic, auto on_boundary) {
                       start(encode_kernel<decltype(tag)::kFormat, rounding_of(stochastic),
                                           on_boundary.kValue>,
                             grid_of(count), stream, mix64(seed), values, before, count,
                             bytes_at(out), error);
                   });
    });
    return launched();
}

inline int decode(Format format, const std::byte* in, std::size_t count, float* values,
                  void* stream) {
    if (count == 0) return 0;
    with_format(format, [&](auto tag) {
        with_flags(floats_aligned(values) && codes_aligned(format, in), [&](auto on_boundary) {
            start(decode_kernel<decltype(tag)::kFormat, on_boundary.kValue>, grid_of(count), stream,
                  reinterpret_cast<const unsigned char*>(in), count, values);
        });
    });
    return launched();
}

inline int combine(Format format, Rounding rounding, std::uint64_t seed, const CudaChunk& chunk,
                   std::byte* out, float* error, float* values, void* stream) {
    if (chunk.count == 0) return 0;
    const bool aligned = floats_aligned(chunk.own, chunk.own_before, error, values) &&
                         codes_aligned(format, out) && codes_aligned(format, chunk.encoded) &&
                         chunk.stride % (value_bytes(format) * kFour) == 0;
    with_format(format, [&](auto tag) {
        with_flags(rounding == Rounding::stochastic, aligned,
                   [&](auto stochastic, auto on_boundary) {
                       start(combine_kernel<decltype(tag)::kFormat, rounding_of(stochastic),
                                            on_boundary.kValue>,
                             grid_of(chunk.count), stream, mix64(seed), chunk, bytes_at(out), error,
                             values);
                   });
    });
    return launched();
}

/// Calls use(grid, some) for as many segments at a time as a kernel takes.
template <class Use>
int launch_segments(const CudaSegment* segments, std::size_t number, Use&& use) {
    for (std::size_t next = 0; next < number;) {
        SegmentTable some{};
        unsigned tiles = 0;
        for (; next < number && some.number < kSegmentsMax; next++) {
            const std::size_t count = segments[next].segment.count;
            if (count == 0) continue;
            some.of[some.number] = segments[next];
            some.tiles[some.number++] = tiles;
            tiles += static_cast<unsigned>((count + kTile - 1) / kTile);
        }
        some.tiles[some.number] = tiles;
        if (tiles == 0) break;
        use(tiles, some);
        if (const int error = launched(); error != 0) return error;
    }
    return 0;
}

inline int gather(const CudaSegment* segments, std::size_t number, float* values, void* stream) {
    return launch_segments(segments, number, [&](unsigned grid, const SegmentTable& some) {
        start(gather_kernel, grid, stream, some, values);
    });
}

inline int scatter(const CudaSegment* segments, std::size_t number, const float* values,
                   const float* errors, void* stream) {
    return launch_segments(segments, number, [&](unsigned grid, const SegmentTable& some) {
        start(scatter_kernel, grid, stream, some, values, errors);
    });
}

template <class T>
void divide_as(void* data, std::size_t count, std::uint32_t divisor, void* stream) {
    constexpr std::size_t each = 4 * kThreads;
    constexpr std::size_t grid_max = 65'536;
    const std::size_t grid = (count + each - 1) / each;
    start(divide_kernel<T>, static_cast<unsigned>(grid < grid_max ? grid : grid_max), stream,
          static_cast<T*>(data), count, divisor);
}

inline int divide(void* data, std::size_t count, DType type, std::uint32_t divisor, void* stream) {
    if (count == 0 || divisor <= 1) return 0;
    switch (type) {
        case DType::f32:
            divide_as<float>(data, count, divisor, stream);
            break;
        case DType::f64:
            divide_as<double>(data, count, divisor, stream);
            break;
        case DType::f16:
            divide_as<HalfWord>(data, count, divisor, stream);
            break;
        case DType::bf16:
            divide_as<BFloatWord>(data, count, divisor, stream);
            break;
        case DType::i8:
            divide_as<signed char>(data, count, divisor, stream);
            break;
        case DType::u8:
            divide_as<unsigned char>(data, count, divisor, stream);
            break;
        case DType::i32:
            divide_as<std::int32_t>(data, count, divisor, stream);
            break;
        case DType::i64:
            divide_as<std::int64_t>(data, count, divisor, stream);
            break;
    }
    return launched();
}

}  // namespace dtrun::collectives::cuda
