// Holds the CUDA codecs of libdtrun_codec_cuda.so against those of the CPU, bit by bit, on this
// host's GPU, and measures them against the card's own copy. Exit code 77: no GPU here.
//
//   test_codec_cuda [--mib N]    N MiB of f32 for the measurement (default 1024)

#include "collectives/codec/codec.h"
#include "collectives/codec/reduce.h"
#include "collectives/nccl/codec_cuda.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/core.h>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace dtrun::collectives {
namespace {

constexpr int kNoGpu = 77;
constexpr Format kFormats[] = {
#define DTRUN_FORMAT(format, ...) Format::format,
#include "collectives/codec/formats.def"
#undef DTRUN_FORMAT
};
constexpr Rounding kRoundings[] = {Rounding::nearest, Rounding::stochastic};
constexpr std::uint64_t kSeed = 1234;

/// A failed call of CUDA: nothing that follows would mean anything.
void require(int error, const char* what) {
    if (error == cudaSuccess) return;
    fmt::print(stderr, "test_codec_cuda: {}: {}\n", what,
               cudaGetErrorString(static_cast<cudaError_t>(error)));
    std::exit(1);
}

/// Memory of the GPU.
class Device {
public:
    explicit Device(std::size_t bytes) : bytes_(bytes) {
        require(cudaMalloc(&data_, std::max<std::size_t>(bytes, 1)), "cudaMalloc");
    }
    template <class T>
    explicit Device(const std::vector<T>& data, std::size_t offset = 0)
        : Device(offset + data.size() * sizeof(T)) {
        copy_in(data, offset);
    }
    ~Device() { cudaFree(data_); }
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    template <class T>
    T* at(std::size_t offset = 0) const {
        return reinterpret_cast<T*>(static_cast<std::byte*>(data_) + offset);
    }
    template <class T>
    void copy_in(const std::vector<T>& data, std::size_t offset) {
        require(cudaMemcpy(at<std::byte>(offset), data.data(), data.size() * sizeof(T),
                           cudaMemcpyHostToDevice),
                "copy to the GPU");
    }
    template <class T>
    std::vector<T> copy_out(std::size_t offset = 0) const {
        std::vector<T> data((bytes_ - offset) / sizeof(T));
        require(cudaMemcpy(data.data(), at<std::byte>(offset), data.size() * sizeof(T),
                           cudaMemcpyDeviceToHost),
                "copy from the GPU");
        return data;
    }

private:
    std::size_t bytes_;
    void* data_ = nullptr;
};

/// Counts what is wrong and says what it is.
class Verdict {
public:
    void check(bool right, const std::string& what) {
        checks_++;
        if (right) return;
        if (wrong_++ < 20) fmt::print(stderr, "WRONG: {}\n", what);
    }
    int finish() const {
        fmt::print("{} checks, {} wrong\n", checks_, wrong_);
        return wrong_ == 0 ? 0 : 1;
    }
    bool good() const { return wrong_ == 0; }

private:
    int checks_ = 0;
    int wrong_ = 0;
};

/// The same bits; NaNs of different processors differ.
bool same(const std::vector<float>& a, const std::vector<float>& b) {
    return std::ranges::equal(a, b, [](float x, float y) {
        return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y) ||
               (std::isnan(x) && std::isnan(y));
    });
}

/// Block by block: usual gradients, any bits, denormal numbers, huge ones.
std::vector<float> test_values(std::size_t count, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 1);
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; i++) {
        const auto bits = static_cast<std::uint32_t>(random());
        const std::size_t kind = i / kBlock % 5;
        if (kind < 2) values[i] = normal(random) * (kind == 0 ? 1.0f : 1e-4f);
        if (kind == 2) values[i] = std::bit_cast<float>(bits);
        if (kind == 3) values[i] = std::bit_cast<float>(bits & 0x80ff'ffffu);
        if (kind == 4) values[i] = std::bit_cast<float>((bits & 0x807f'ffffu) | 0x7e80'0000u);
    }
    return values;
}

std::string describe(Format format, Rounding rounding, std::size_t count, std::size_t offset) {
    return fmt::format("{}{}, {} values at {}", name_of(format),
                       rounding == Rounding::stochastic ? " stochastic" : "", count, offset);
}

/// \param offset  of encoded values, and four times of others, from an aligned address
void check_codec(const CudaCodecs& cuda, Format format, Rounding rounding, std::size_t count,
                 std::size_t offset, Verdict& verdict) {
    const std::string what = describe(format, rounding, count, offset);
    const std::vector<float> values = test_values(count, 7);
    std::vector<float> error(count, 0.5f);
    std::vector<std::byte> encoded(encoded_bytes(format, count));
    const Device on_values(values, 4 * offset);
    const Device on_error(error, 4 * offset);
    const Device on_encoded(offset + encoded.size());
    encode(format, rounding, kSeed, values.data(), count, encoded.data(), error.data());
    require(cuda.encode(format, rounding, kSeed, on_values.at<float>(4 * offset), count,
                        on_encoded.at<std::byte>(offset), on_error.at<float>(4 * offset), nullptr),
            "encode");
    verdict.check(on_encoded.copy_out<std::byte>(offset) == encoded, what + ": encoded");
    verdict.check(same(on_error.copy_out<float>(4 * offset), error), what + ": error");

    std::vector<float> back(count);
    std::vector<float> sums = test_values(count, 8);
    const Device on_back(4 * (offset + count));
    const Device on_sums(sums, 4 * offset);
    decode(format, encoded.data(), count, back.data());
    decode_add(format, encoded.data(), count, sums.data());
    require(cuda.decode(format, on_encoded.at<std::byte>(offset), count,
                        on_back.at<float>(4 * offset), nullptr),
            "decode");
    require(cuda.decode_add(format, on_encoded.at<std::byte>(offset), count,
                            on_sums.at<float>(4 * offset), nullptr),
            "decode_add");
    verdict.check(same(on_back.copy_out<float>(4 * offset), back), what + ": decoded");
    verdict.check(same(on_sums.copy_out<float>(4 * offset), sums), what + ": added");
}

/// Every code of a byte, every half: also those that encode() never writes.
void check_patterns(const CudaCodecs& cuda, Format format, Verdict& verdict) {
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
    const Device on_in(in);
    const Device on_values(count * sizeof(float));
    require(cuda.decode(format, on_in.at<std::byte>(), count, on_values.at<float>(), nullptr),
            "decode");
    verdict.check(same(on_values.copy_out<float>(), expected),
                  fmt::format("{}: every pattern", name_of(format)));
}

void check_combine(const CudaCodecs& cuda, Format format, Rounding rounding, std::uint32_t ranks,
                   std::uint32_t own_rank, bool average, Verdict& verdict) {
    const std::size_t count = 5 * kBlock + 77;
    const std::size_t stride = encoded_bytes(format, count) + 3;
    std::vector<std::byte> peers(ranks * stride);
    const std::vector<float> own = test_values(count, 100);
    std::vector<float> sum(count);
    for (std::uint32_t rank = 0; rank < ranks; rank++) {
        const std::vector<float> values = test_values(count, rank);
        std::vector<float> part = own;
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
    const std::uint32_t divisor = average ? ranks : 1;
    divide(sum.data(), count, DType::f32, divisor);
    std::vector<std::byte> out(encoded_bytes(format, count));
    std::vector<float> back(count);
    encode(format, rounding, kSeed, sum.data(), count, out.data());
    decode(format, out.data(), count, back.data());
    std::vector<float> error(count, 0.5f);
    for (std::size_t i = 0; i < count; i++) {
        const float lost = sum[i] - back[i];
        const float scaled = lost * static_cast<float>(divisor);
        error[i] += scaled;
        if (!std::isfinite(error[i])) error[i] = 0;
    }

    const Device on_peers(peers);
    const Device on_own(own);
    const Device on_out(out.size());
    const Device on_error(std::vector<float>(count, 0.5f));
    const Device on_back(count * sizeof(float));
    const CudaPiece piece{on_peers.at<std::byte>(), stride,  ranks, own_rank,
                          on_own.at<float>(),       divisor, count};
    require(cuda.combine(format, rounding, kSeed, piece, on_out.at<std::byte>(),
                         on_error.at<float>(), on_back.at<float>(), nullptr),
            "combine");
    const std::string what =
        fmt::format("{} combined from {} ranks, rank {} owns it{}",
                    describe(format, rounding, count, 0), ranks, own_rank, average ? ", mean" : "");
    verdict.check(on_out.copy_out<std::byte>() == out, what + ": encoded");
    verdict.check(same(on_back.copy_out<float>(), back), what + ": decoded");
    verdict.check(same(on_error.copy_out<float>(), error), what + ": error");
}

/// Segments of all lengths, more than one launch takes, some of which keep errors.
void check_segments(const CudaCodecs& cuda, Verdict& verdict) {
    constexpr std::size_t number = 200;
    std::vector<std::size_t> begins;
    std::size_t count = 0;
    for (std::size_t i = 0; i < number; i++) {
        begins.push_back(count);
        count += i == 100 ? 1'000'003 : i * i % 1999;
    }
    begins.push_back(count);
    const std::vector<float> in = test_values(count, 3);
    const std::vector<float> kept = test_values(count, 4);
    const Device on_in(in);
    const Device on_kept(kept);
    const Device on_out(count * sizeof(float));
    const Device on_values(count * sizeof(float));
    const Device on_errors(count * sizeof(float));
    std::vector<Segment> segments;
    std::vector<float> gathered = in;
    std::vector<float> kept_after = kept;
    for (std::size_t i = 0; i < number; i++) {
        const std::size_t at = begins[i] * sizeof(float);
        const std::size_t length = begins[i + 1] - begins[i];
        const bool keeps = i % 3 != 0;
        segments.push_back({on_in.at<float>(at), on_out.at<float>(at), length,
                            keeps ? on_kept.at<float>(at) : nullptr});
        if (!keeps) continue;
        for (std::size_t k = begins[i]; k < begins[i + 1]; k++) {
            gathered[k] += kept[k];
            kept_after[k] = 0;
        }
    }
    require(
        cuda.gather(segments.data(), number, on_values.at<float>(), on_errors.at<float>(), nullptr),
        "gather");
    verdict.check(same(on_values.copy_out<float>(), gathered), "gathered");
    verdict.check(same(on_errors.copy_out<float>(), std::vector<float>(count)), "no errors yet");
    require(cuda.scatter(segments.data(), number, on_values.at<float>(), on_errors.at<float>(),
                         nullptr),
            "scatter");
    verdict.check(same(on_out.copy_out<float>(), gathered), "scattered");
    verdict.check(same(on_kept.copy_out<float>(), kept_after), "errors scattered");
}

void check_divide(const CudaCodecs& cuda, DType type, Verdict& verdict) {
    const std::size_t count = 3001;
    std::mt19937 random(5);
    for (const std::uint32_t divisor : {1u, 2u, 3u, 255u, 0xffff'ffffu}) {
        std::vector<unsigned char> data(count * bytes_of(type));
        for (std::size_t i = 0; i < data.size(); i++) {
            data[i] = static_cast<unsigned char>(random());
            // Numbers: what NaNs are divided to is each processor's own.
            const bool top = i % bytes_of(type) == bytes_of(type) - 1;
            if (is_float(type) && top) data[i] = (data[i] & 0x80) | 0x3f;
        }
        const Device on_data(data);
        divide(data.data(), count, type, divisor);
        require(cuda.divide(on_data.at<void>(), count, type, divisor, nullptr), "divide");
        verdict.check(on_data.copy_out<unsigned char>() == data,
                      fmt::format("{} divided by {}", name_of(type), divisor));
    }
}

void check_all(const CudaCodecs& cuda, Verdict& verdict) {
    verdict.check(cuda.check() == 0, "the codecs run here");
    check_segments(cuda, verdict);
    for (const Format format : kFormats) {
        check_patterns(cuda, format, verdict);
        for (const Rounding rounding : kRoundings) {
            for (const std::size_t count : {0, 1, 3, 255, 256, 257, 1000, 1'048'579}) {
                for (const std::size_t offset : {0, 1, 4}) {
                    check_codec(cuda, format, rounding, count, offset, verdict);
                }
            }
            for (const bool average : {false, true}) {
                check_combine(cuda, format, rounding, 1, ~0u, average, verdict);
                check_combine(cuda, format, rounding, 2, 1, average, verdict);
                check_combine(cuda, format, rounding, 8, 0, average, verdict);
                check_combine(cuda, format, rounding, 8, ~0u, average, verdict);
            }
        }
    }
    for (const DType type : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8, DType::u8,
                             DType::i32, DType::i64}) {
        check_divide(cuda, type, verdict);
    }
}

/// Median seconds of `run`, on the default stream.
double seconds(const std::function<int()>& run) {
    cudaEvent_t start{};
    cudaEvent_t end{};
    require(cudaEventCreate(&start), "cudaEventCreate");
    require(cudaEventCreate(&end), "cudaEventCreate");
    std::vector<float> times;
    for (int i = 0; i < 23; i++) {
        require(cudaEventRecord(start, nullptr), "cudaEventRecord");
        require(run(), "a measured call");
        require(cudaEventRecord(end, nullptr), "cudaEventRecord");
        require(cudaEventSynchronize(end), "cudaEventSynchronize");
        float ms = 0;
        require(cudaEventElapsedTime(&ms, start, end), "cudaEventElapsedTime");
        if (i >= 3) times.push_back(ms);
    }
    cudaEventDestroy(start);
    cudaEventDestroy(end);
    std::ranges::sort(times);
    return static_cast<double>(times[times.size() / 2]) * 1e-3;
}

/// A line of the table: bytes that are read and written, against those of a copy.
void report(const std::string& name, double bytes, double copy_rate,
            const std::function<int()>& run) {
    const double rate = bytes / seconds(run) * 1e-9;
    fmt::print("  {:36} {:8.0f} GB/s {:6.1f} % of a copy\n", name, rate, 100 * rate / copy_rate);
}

void measure(const CudaCodecs& cuda, std::size_t mib) {
    const std::size_t bytes = mib << 20;
    const std::size_t count = bytes / sizeof(float);
    std::vector<float> some(1 << 20);
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 1e-3f);
    for (float& value : some) value = normal(random);
    const Device from(bytes);
    const Device to(bytes);
    const Device encoded(encoded_bytes(Format::f16, count));
    for (std::size_t i = 0; i < bytes; i += some.size() * sizeof(float)) {
        require(
            cudaMemcpy(from.at<std::byte>(i), some.data(),
                       std::min(bytes - i, some.size() * sizeof(float)), cudaMemcpyHostToDevice),
            "copy to the GPU");
    }
    const double copied = 2.0 * static_cast<double>(bytes) * 1e-9 / seconds([&] {
                              return cudaMemcpyAsync(to.at<void>(), from.at<void>(), bytes,
                                                     cudaMemcpyDeviceToDevice, nullptr);
                          });
    fmt::print("{} MiB of f32; a copy reads and writes {:.0f} GB/s\n", mib, copied);
    const auto plain = static_cast<double>(bytes);
    for (const Format format : kFormats) {
        const std::string name(name_of(format));
        const auto small = static_cast<double>(encoded_bytes(format, count));
        for (const Rounding rounding : kRoundings) {
            report(name + (rounding == Rounding::nearest ? " encode" : " encode stochastic"),
                   plain + small, copied, [&] {
                       return cuda.encode(format, rounding, 1, from.at<float>(), count,
                                          encoded.at<std::byte>(), nullptr, nullptr);
                   });
        }
        report(name + " decode", plain + small, copied, [&] {
            return cuda.decode(format, encoded.at<std::byte>(), count, to.at<float>(), nullptr);
        });
        report(name + " decode_add", 2 * plain + small, copied, [&] {
            return cuda.decode_add(format, encoded.at<std::byte>(), count, to.at<float>(), nullptr);
        });
        constexpr std::uint32_t ranks = 8;
        const std::size_t part = count / ranks / kBlock * kBlock;
        const std::size_t stride = encoded_bytes(format, part);
        const CudaPiece piece{encoded.at<std::byte>(), stride, ranks, ~0u, nullptr, ranks, part};
        report(name + " combine 8 ranks", static_cast<double>((ranks + 1) * stride), copied, [&] {
            return cuda.combine(format, Rounding::nearest, 1, piece, to.at<std::byte>(), nullptr,
                                nullptr, nullptr);
        });
    }
}

const CudaCodecs* load() {
    void* const library = ::dlopen(DTRUN_CODEC_CUDA, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        fmt::print(stderr, "test_codec_cuda: {}\n", ::dlerror());
        std::exit(1);
    }
    const auto get =
        reinterpret_cast<const CudaCodecs* (*)()>(::dlsym(library, "dtrun_codec_cuda"));
    return get == nullptr ? nullptr : get();
}

}  // namespace

int run(int argc, char** argv) {
    std::size_t mib = 1024;
    if (argc == 3 && std::string(argv[1]) == "--mib")
        mib = std::strtoul(argv[2], nullptr, 10);
    else if (argc != 1)
        mib = 0;
    if (mib == 0) {
        fmt::print(stderr, "usage: test_codec_cuda [--mib N]\n");
        return 2;
    }
    const CudaCodecs* const cuda = load();
    if (cuda == nullptr || cuda->abi != CudaCodecs::kAbi) {
        fmt::print(stderr, "test_codec_cuda: {} is another version\n", DTRUN_CODEC_CUDA);
        return 1;
    }
    int devices = 0;
    const cudaError_t found = cudaGetDeviceCount(&devices);
    if (found != cudaSuccess || devices == 0) {
        fmt::print("SKIPPED: no GPU: {}\n",
                   found == cudaSuccess ? "none" : cudaGetErrorString(found));
        return kNoGpu;
    }
    cudaDeviceProp properties{};
    require(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    int driver = 0;
    int runtime = 0;
    require(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    require(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    fmt::print("{} (sm_{}{}), driver for CUDA {}.{}, runtime {}.{}, CPU codecs: {}\n",
               properties.name, properties.major, properties.minor, driver / 1000,
               driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10, codec_dispatch());
    Verdict verdict;
    check_all(*cuda, verdict);
    if (verdict.good()) measure(*cuda, mib);
    return verdict.finish();
}

}  // namespace dtrun::collectives

int main(int argc, char** argv) {
    return dtrun::collectives::run(argc, argv);
}
