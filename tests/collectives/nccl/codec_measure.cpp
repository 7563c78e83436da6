#include "tests/collectives/nccl/codec_measure.h"

#include "collectives/codec/codec.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>

namespace dtrun::collectives {
namespace {

constexpr int kWarmUp = 3;
constexpr int kTimes = 21;
/// Sets of arrays that take turns, where one of them would stay in the GPU's cache.
constexpr std::size_t kSetsOfSmall = 3;
constexpr std::size_t kSmallMib = 64;

/// Memory of the GPU.
class Memory {
public:
    explicit Memory(std::size_t bytes) {
        require_cuda(cudaMalloc(&data_, std::max<std::size_t>(bytes, 1)), "cudaMalloc");
    }
    ~Memory() { cudaFree(data_); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    template <class T>
    T* at(std::size_t offset) const {
        return reinterpret_cast<T*>(static_cast<std::byte*>(data_) + offset);
    }

private:
    void* data_ = nullptr;
};

/// What one measured call reads and writes.
struct Arrays {
    Arrays(std::size_t bytes, std::size_t shift_by)
        : from(bytes + 256),
          to(bytes + 256),
          error(bytes + 256),
          encoded(encoded_bytes(Format::f16, bytes / sizeof(float))),
          shift(shift_by) {
        std::vector<float> some(1 << 18);
        std::mt19937 random(1);
        std::normal_distribution<float> normal(0, 1e-3f);
        for (float& value : some) value = normal(random);
        for (std::size_t i = 0; i < bytes; i += some.size() * sizeof(float))
            require_cuda(cudaMemcpy(from.at<std::byte>(shift + i), some.data(),
                                    std::min(bytes - i, some.size() * sizeof(float)),
                                    cudaMemcpyHostToDevice),
                         "copy to the GPU");
        require_cuda(cudaMemset(error.at<void>(0), 0, bytes + 256), "cudaMemset");
    }

    Memory from, to, error, encoded;
    std::size_t shift;  ///< bytes between a boundary and values

    float* values() const { return from.at<float>(shift); }
    float* results() const { return to.at<float>(shift); }
    float* errors() const { return error.at<float>(shift); }
    std::byte* codes() const { return encoded.at<std::byte>(0); }
};

/// Median seconds of calls on the default stream.
double seconds(const std::function<int(std::size_t turn)>& run) {
    cudaEvent_t start{};
    cudaEvent_t end{};
    require_cuda(cudaEventCreate(&start), "cudaEventCreate");
    require_cuda(cudaEventCreate(&end), "cudaEventCreate");
    std::vector<float> times;
    for (int i = 0; i < kWarmUp + kTimes; i++) {
        require_cuda(cudaEventRecord(start, nullptr), "cudaEventRecord");
        require_cuda(run(static_cast<std::size_t>(i)), "a measured call");
        require_cuda(cudaEventRecord(end, nullptr), "cudaEventRecord");
        require_cuda(cudaEventSynchronize(end), "cudaEventSynchronize");
        float ms = 0;
        require_cuda(cudaEventElapsedTime(&ms, start, end), "cudaEventElapsedTime");
        if (i >= kWarmUp) times.push_back(ms);
    }
    cudaEventDestroy(start);
    cudaEventDestroy(end);
    std::ranges::nth_element(times, times.begin() + kTimes / 2);
    return static_cast<double>(times[kTimes / 2]) * 1e-3;
}

/// Measures codecs on arrays of one size.
class Bench {
public:
    Bench(const CudaCodecs& cuda, std::size_t mib, bool aligned)
        : cuda_(cuda), mib_(mib), aligned_(aligned), count_((mib << 20) / sizeof(float)) {
        const std::size_t sets = mib < kSmallMib ? kSetsOfSmall : 1;
        for (std::size_t i = 0; i < sets; ++i)
            sets_.push_back(std::make_unique<Arrays>(mib << 20, aligned ? 0 : sizeof(float)));
        const auto bytes = mib << 20;
        copy_rate_ = 2.0 * plain() / seconds([&](std::size_t turn) {
                         const Arrays& a = set(turn);
                         return cudaMemcpyAsync(a.to.at<void>(0), a.from.at<void>(0), bytes,
                                                cudaMemcpyDeviceToDevice, nullptr);
                     });
    }

    std::vector<CodecRate> run() {
        rates_.push_back({"copy", mib_, aligned_, copy_rate_ * 1e-9, 1});
        for (const Format format : {Format::f16, Format::bf16, Format::e4m3, Format::e5m2,
                                    Format::int8, Format::e4m3_unscaled, Format::e5m2_unscaled})
            measure_format(format);
        measure_segments();
        return std::move(rates_);
    }

private:
    const Arrays& set(std::size_t turn) const { return *sets_[turn % sets_.size()]; }
    double plain() const { return static_cast<double>(mib_ << 20); }

    void add(const std::string& name, double bytes,
             const std::function<int(const Arrays& arrays)>& call) {
        const double rate = bytes / seconds([&](std::size_t turn) { return call(set(turn)); });
        rates_.push_back({name, mib_, aligned_, rate * 1e-9, rate / copy_rate_});
    }

    void measure_format(Format format) {
        const std::string name(name_of(format));
        const auto small = static_cast<double>(encoded_bytes(format, count_));
        for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
            const char* const how = rounding == Rounding::nearest ? "" : " stochastic";
            add(name + " encode" + how, plain() + small, [&](const Arrays& a) {
                return cuda_.encode(format, rounding, 1, a.values(), nullptr, count_, a.codes(),
                                    nullptr, nullptr);
            });
            add(name + " encode with errors" + how, 3 * plain() + small, [&](const Arrays& a) {
                return cuda_.encode(format, rounding, 1, a.values(), a.errors(), count_, a.codes(),
                                    a.errors(), nullptr);
            });
        }
        add(name + " decode", plain() + small, [&](const Arrays& a) {
            return cuda_.decode(format, a.codes(), count_, a.results(), nullptr);
        });
        constexpr std::uint32_t ranks = 8;
        const std::size_t part = count_ / ranks / kBlock * kBlock;
        const std::size_t stride = encoded_bytes(format, part);
        add(name + " combine 8 ranks", static_cast<double>((ranks + 1) * stride),
            [&](const Arrays& a) {
                const CudaChunk chunk{a.codes(), stride, ranks, ~0u, nullptr, nullptr, ranks, part};
                return cuda_.combine(format, Rounding::nearest, 1, chunk, a.to.at<std::byte>(0),
                                     nullptr, nullptr, nullptr);
            });
    }

    /// Segments of a network's tensors: two thirds are small.
    std::vector<CudaSegment> segments(const Arrays& a, bool errors) const {
        std::vector<CudaSegment> all;
        std::size_t at = 0;
        for (std::size_t i = 0; at < count_; ++i) {
            const std::size_t wanted = i % 3 == 0 ? std::max<std::size_t>(count_ / 20, 1) : 769;
            const std::size_t length = std::min(wanted, count_ - at);
            all.push_back(
                {{a.values() + at, a.values() + at, length, errors ? a.errors() + at : nullptr},
                 at});
            at += length;
        }
        return all;
    }

    void measure_segments() {
        for (const bool errors : {false, true}) {
            const std::string with = errors ? " with errors" : "";
            add("gather" + with, (errors ? 3 : 2) * plain(), [&](const Arrays& a) {
                const auto all = segments(a, errors);
                return cuda_.gather(all.data(), all.size(), a.results(), nullptr);
            });
            add("scatter" + with, (errors ? 4 : 2) * plain(), [&](const Arrays& a) {
                const auto all = segments(a, errors);
                return cuda_.scatter(all.data(), all.size(), a.results(), a.results(), nullptr);
            });
        }
    }

    const CudaCodecs& cuda_;
    std::size_t mib_;
    bool aligned_;
    std::size_t count_;
    std::vector<std::unique_ptr<Arrays>> sets_;
    double copy_rate_ = 0;  ///< bytes a second
    std::vector<CodecRate> rates_;
};

}  // namespace

void require_cuda(int error, const char* what) {
    if (error == cudaSuccess) return;
    fmt::print(stderr, "test_codec_cuda: {}: {}\n", what,
               cudaGetErrorString(static_cast<cudaError_t>(error)));
    std::exit(1);
}

std::vector<CodecRate> measure_codecs(const CudaCodecs& cuda, std::size_t mib, bool aligned) {
    return Bench(cuda, mib, aligned).run();
}

}  // namespace dtrun::collectives
