#include "tests/collectives/nccl/codec_checks.h"

#include "collectives/codec/codec.h"
#include "collectives/codec/numbers.h"
#include "collectives/codec/reduce.h"

#include <fmt/core.h>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <span>

namespace dtrun::collectives {
namespace {

constexpr Format kFormats[] = {
#define DTRUN_FORMAT(format, ...) Format::format,
#include "collectives/codec/formats.def"
#undef DTRUN_FORMAT
};
constexpr Rounding kRoundings[] = {Rounding::nearest, Rounding::stochastic};
constexpr std::uint64_t kSeed = 1234;

/// The same bits; NaNs of different processors differ.
bool same(std::span<const float> a, std::span<const float> b) {
    return std::ranges::equal(a, b, [](float x, float y) {
        return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y) ||
               (std::isnan(x) && std::isnan(y));
    });
}

/// The same codes, but that a NaN which is the result of a sum has a sign and a payload of each processor's
/// own, and formats without a scale keep what they have room for.
bool same_codes(Format format, std::span<const std::byte> a, std::span<const std::byte> b) {
    if (has_scale(format) || a.size() != b.size()) return std::ranges::equal(a, b);
    const std::size_t count = a.size() / value_bytes(format);
    std::vector<float> x(count), y(count);
    decode(format, a.data(), count, x.data());
    decode(format, b.data(), count, y.data());
    return same(x, y);
}

/// An array in memory of the GPU, between bytes that nobody may write.
template <class T>
class OnGpu {
public:
    /// \param offset  bytes from an aligned address to the array
    OnGpu(const DeviceMemory& memory, std::size_t count, std::size_t offset = 0)
        : memory_(memory), count_(count), before_(kGuard + offset) {
        all_.assign(before_ + count * sizeof(T) + kGuard, kPoison);
        data_ = memory.allocate(all_.size());
        memory.copy_in(data_, all_.data(), all_.size());
    }
    OnGpu(const DeviceMemory& memory, const std::vector<T>& values, std::size_t offset = 0)
        : OnGpu(memory, values.size(), offset) {
        if (!values.empty()) memory.copy_in(data(), values.data(), values.size() * sizeof(T));
    }
    ~OnGpu() { memory_.release(data_); }
    OnGpu(const OnGpu&) = delete;
    OnGpu& operator=(const OnGpu&) = delete;

    T* data() const { return reinterpret_cast<T*>(static_cast<std::byte*>(data_) + before_); }
    std::vector<T> values() {
        memory_.copy_out(all_.data(), data_, all_.size());
        std::vector<T> values(count_);
        if (count_ > 0) std::memcpy(values.data(), all_.data() + before_, count_ * sizeof(T));
        return values;
    }
    /// Whether the bytes around the array are what they were; after values().
    bool untouched_around() const {
        const auto poisoned = [](std::byte byte) { return byte == kPoison; };
        const std::span<const std::byte> all(all_);
        return std::ranges::all_of(all.first(before_), poisoned) &&
               std::ranges::all_of(all.last(kGuard), poisoned);
    }

private:
    static constexpr std::size_t kGuard = 256;
    static constexpr std::byte kPoison{0xa5};
    const DeviceMemory& memory_;
    std::size_t count_;
    std::size_t before_;
    std::vector<std::byte> all_;
    void* data_ = nullptr;
};

/// One comparison of everything with everything.
class Checks {
public:
    Checks(const CudaCodecs& cuda, const DeviceMemory& memory, Verdict& verdict)
        : cuda_(cuda), memory_(memory), verdict_(verdict) {}

    void codec(Format format, Rounding rounding, std::size_t count, std::size_t offset);
    void patterns(Format format);
    void combined(Format format, Rounding rounding, std::uint32_t ranks, std::uint32_t own_rank,
                  std::size_t offset);
    void segments(std::size_t largest);
    void divided(DType type);

private:
    template <class T>
    void result(OnGpu<T>& is, const std::vector<T>& should, const std::string& what) {
        const std::vector<T> values = is.values();
        if constexpr (std::is_same_v<T, float>)
            verdict_.check(same(values, should), what);
        else
            verdict_.check(values == should, what);
        verdict_.check(is.untouched_around(), what + ": memory beside it");
    }
    /// Codes of what was summed up first.
    void result_of_sum(Format format, OnGpu<std::byte>& is, const std::vector<std::byte>& should,
                       const std::string& what) {
        verdict_.check(same_codes(format, is.values(), should), what);
        verdict_.check(is.untouched_around(), what + ": memory beside it");
    }
    void ran(int code, const char* what) {
        verdict_.check(code == 0, fmt::format("{}: {}", what, cuda_.error_text(code)));
    }

    const CudaCodecs& cuda_;
    const DeviceMemory& memory_;
    Verdict& verdict_;
};

std::string describe(Format format, Rounding rounding, std::size_t count, std::size_t offset) {
    return fmt::format("{}{}, {} values at {}", name_of(format),
                       rounding == Rounding::stochastic ? " stochastic" : "", count, offset);
}

/// \param offset  of encoded values, and four times of others, from an aligned address
void Checks::codec(Format format, Rounding rounding, std::size_t count, std::size_t offset) {
    const std::string what = describe(format, rounding, count, offset);
    const std::vector<float> values = test_values(count, 7);
    const std::vector<float> before = test_values(count, 9);
    std::vector<float> sum = values;
    for (std::size_t i = 0; i < count; ++i) sum[i] += before[i];
    for (const bool feedback : {false, true}) {
        std::vector<std::byte> encoded(encoded_bytes(format, count));
        std::vector<float> error(count);
        const float* const from = feedback ? sum.data() : values.data();
        encode(format, rounding, kSeed, from, count, encoded.data(), error.data());
        OnGpu<float> on_values(memory_, values, 4 * offset);
        OnGpu<float> on_error(memory_, before, 4 * offset);
        OnGpu<std::byte> on_encoded(memory_, encoded.size(), offset);
        const float* const added = feedback ? on_error.data() : nullptr;
        ran(cuda_.encode(format, rounding, kSeed, on_values.data(), added, count, on_encoded.data(),
                         on_error.data(), nullptr),
            "encode");
        if (feedback)
            result_of_sum(format, on_encoded, encoded, what + ": a sum encoded");
        else
            result(on_encoded, encoded, what + ": encoded");
        result(on_error, error, what + (feedback ? ": error of a sum" : ": error"));
        result(on_values, values, what + ": the values themselves");
        OnGpu<std::byte> again(memory_, encoded.size(), offset);
        encode(format, rounding, kSeed, values.data(), count, encoded.data());
        ran(cuda_.encode(format, rounding, kSeed, on_values.data(), nullptr, count, again.data(),
                         nullptr, nullptr),
            "encode");
        result(again, encoded, what + ": encoded without an error");

        std::vector<float> back(count);
        decode(format, encoded.data(), count, back.data());
        OnGpu<float> on_back(memory_, count, 4 * offset);
        ran(cuda_.decode(format, again.data(), count, on_back.data(), nullptr), "decode");
        result(on_back, back, what + ": decoded");
    }
}

/// Every code of a byte, every half: also those that encode() never writes.
void Checks::patterns(Format format) {
    const bool words = format == Format::f16 || format == Format::bf16;
    const std::size_t count = words ? 65536 : kBlock;
    std::vector<std::byte> in(encoded_bytes(format, count));
    std::byte* codes = in.data();
    if (in.size() > count && !words) {
        const float scale = 0.37f;
        std::memcpy(codes, &scale, sizeof scale);
        codes += sizeof scale;
    }
    for (std::size_t i = 0; i < count; i++)
        std::memcpy(codes + (words ? 2 * i : i), &i, words ? 2 : 1);
    std::vector<float> expected(count);
    decode(format, in.data(), count, expected.data());
    for (const std::size_t offset : {0, 1}) {
        OnGpu<std::byte> on_in(memory_, in, offset);
        OnGpu<float> on_values(memory_, count, 4 * offset);
        ran(cuda_.decode(format, on_in.data(), count, on_values.data(), nullptr), "decode");
        result(on_values, expected, fmt::format("{}: every pattern", name_of(format)));
    }
}

void Checks::combined(Format format, Rounding rounding, std::uint32_t ranks, std::uint32_t own_rank,
                      std::size_t offset) {
    const std::size_t count = 5 * kBlock + 77;
    const std::size_t stride = encoded_bytes(format, count) / 8 * 8 + 8 + (offset == 0 ? 0 : 3);
    const std::uint32_t divisor = ranks % 2 == 0 ? ranks : 1;
    const std::vector<float> own = test_values(count, 100);
    const std::vector<float> before = test_values(count, 101);
    std::vector<std::byte> peers(ranks * stride);
    std::vector<float> sum(count);
    for (std::uint32_t rank = 0; rank < ranks; rank++) {
        const std::vector<float> values = test_values(count, rank);
        std::vector<float> part = own;
        for (std::size_t i = 0; i < count; ++i) part[i] += before[i];
        if (rank != own_rank) {
            std::byte* const to = peers.data() + rank * stride;
            encode(format, rounding, rank, values.data(), count, to);
            decode(format, to, count, part.data());
        }
        if (rank == 0)
            sum = part;
        else
            reduce_into(sum.data(), sum.data(), part.data(), count, DType::f32, Reduce::sum);
    }
    divide(sum.data(), count, DType::f32, divisor);
    std::vector<std::byte> out(encoded_bytes(format, count));
    std::vector<float> back(count);
    std::vector<float> error(count);
    encode(format, rounding, kSeed, sum.data(), count, out.data());
    decode(format, out.data(), count, back.data());
    for (std::size_t i = 0; i < count; i++) {
        error[i] = 0.0f + (sum[i] - back[i]) * static_cast<float>(divisor);
        if (!std::isfinite(error[i])) error[i] = 0;
    }

    OnGpu<std::byte> on_peers(memory_, peers, offset);
    OnGpu<float> on_own(memory_, own, 4 * offset);
    OnGpu<float> on_error(memory_, before, 4 * offset);
    OnGpu<std::byte> on_out(memory_, out.size(), offset);
    OnGpu<float> on_back(memory_, count, 4 * offset);
    const CudaChunk chunk{on_peers.data(), stride,          ranks,   own_rank,
                          on_own.data(),   on_error.data(), divisor, count};
    ran(cuda_.combine(format, rounding, kSeed, chunk, on_out.data(), on_error.data(),
                      on_back.data(), nullptr),
        "combine");
    const std::string what =
        fmt::format("{} combined from {} ranks, rank {} owns it",
                    describe(format, rounding, count, offset), ranks, own_rank);
    result_of_sum(format, on_out, out, what + ": encoded");
    result(on_back, back, what + ": decoded");
    result(on_error, error, what + ": error");
}

/// Segments of all lengths, more than one launch takes, some of which keep errors, and some of which are gaps.
void Checks::segments(std::size_t largest) {
    constexpr std::size_t number = 200;
    std::vector<std::size_t> begins;
    std::size_t count = 0;
    for (std::size_t i = 0; i < number; i++) {
        begins.push_back(count);
        count += i == 100 ? largest : i == 101 ? 3 * 4096 : i * i % 1999;
    }
    begins.push_back(count);
    const std::vector<float> in = test_values(count, 3);
    const std::vector<float> kept = test_values(count, 4);
    const std::vector<float> errors = test_values(count, 5);
    OnGpu<float> on_in(memory_, in);
    OnGpu<float> on_kept(memory_, kept);
    OnGpu<float> on_errors(memory_, errors);
    OnGpu<float> on_out(memory_, std::vector<float>(count));
    OnGpu<float> on_values(memory_, count);
    std::vector<CudaSegment> all;
    std::vector<float> gathered = in;
    std::vector<float> kept_after = kept;
    for (std::size_t i = 0; i < number; i++) {
        const std::size_t at = begins[i];
        const std::size_t length = begins[i + 1] - at;
        const bool keeps = i % 3 != 0;
        if (i % 7 == 5) {
            all.push_back({{nullptr, nullptr, length}, at});
            std::fill_n(gathered.begin() + static_cast<std::ptrdiff_t>(at), length, 0.0f);
            continue;
        }
        all.push_back(
            {{on_in.data() + at, on_out.data() + at, length, keeps ? on_kept.data() + at : nullptr},
             at});
        for (std::size_t k = at; keeps && k < at + length; k++) {
            gathered[k] += kept[k];
            kept_after[k] = errors[k];
        }
    }
    ran(cuda_.gather(all.data(), number, on_values.data(), nullptr), "gather");
    result(on_values, gathered, "gathered");
    result(on_kept, kept, "the errors themselves");
    ran(cuda_.scatter(all.data(), number, on_values.data(), on_errors.data(), nullptr), "scatter");
    result(on_out, gathered, "scattered");
    result(on_kept, kept_after, "errors scattered");
}

void Checks::divided(DType type) {
    const std::size_t count = 3001;
    std::mt19937 random(5);
    for (const std::uint32_t divisor : {1u, 2u, 3u, 255u, 0xffff'ffffu}) {
        std::vector<std::byte> data(count * bytes_of(type));
        for (std::size_t i = 0; i < data.size(); i++) {
            data[i] = static_cast<std::byte>(random());
            // Numbers: what NaNs are divided to is each processor's own.
            const bool top = i % bytes_of(type) == bytes_of(type) - 1;
            if (is_float(type) && top) data[i] = (data[i] & std::byte{0x80}) | std::byte{0x3f};
        }
        OnGpu<std::byte> on_data(memory_, data);
        divide(data.data(), count, type, divisor);
        ran(cuda_.divide(on_data.data(), count, type, divisor, nullptr), "divide");
        result(on_data, data, fmt::format("{} divided by {}", name_of(type), divisor));
    }
}

}  // namespace

std::vector<float> test_values(std::size_t count, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 1);
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; i++) {
        const auto bits = static_cast<std::uint32_t>(random());
        const std::size_t kind = i / kBlock % 6;
        if (kind < 2) values[i] = normal(random) * (kind == 0 ? 1.0f : 1e-4f);
        if (kind == 2) values[i] = std::bit_cast<float>(bits);
        if (kind == 3) values[i] = std::bit_cast<float>(bits & 0x80ff'ffffu);
        if (kind == 4) values[i] = std::bit_cast<float>((bits & 0x807f'ffffu) | 0x7e80'0000u);
        if (kind == 5) values[i] = bits % 2 == 0 ? 0.0f : -0.0f;
    }
    return values;
}

void check_codecs(const CudaCodecs& cuda, const DeviceMemory& memory, std::size_t largest,
                  Verdict& verdict) {
    Checks checks(cuda, memory, verdict);
    verdict.check(cuda.check() == 0, "the codecs run here");
    checks.segments(largest);
    for (const Format format : kFormats) {
        checks.patterns(format);
        for (const Rounding rounding : kRoundings) {
            for (std::size_t count :
                 {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{255},
                  std::size_t{256}, std::size_t{257}, std::size_t{1791}, largest})
                for (const std::size_t offset : {0, 1, 4})
                    checks.codec(format, rounding, count, offset);
            for (const std::size_t offset : {0, 1})
                for (const auto& [ranks, own] :
                     {std::pair{1u, ~0u}, std::pair{2u, 1u}, std::pair{7u, 3u}, std::pair{8u, ~0u}})
                    checks.combined(format, rounding, ranks, own, offset);
        }
    }
    for (const DType type : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8, DType::u8,
                             DType::i32, DType::i64})
        checks.divided(type);
}

}  // namespace dtrun::collectives
