#include "collectives/backends/nccl/api.h"
#include "collectives/backends/nccl/codec_cuda.h"
#include "collectives/codec/codec.h"
#include "collectives/codec/reduce.h"
#include "tests/collectives/nccl/fake_gpu.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

// libdtrun_codec_cuda.so without a GPU: the CPU's codecs, which are to give the same bits, in the
// streams of the fake runtime. Settings of the environment:
//   FAKE_CODEC_ERROR  what check() returns

using namespace dtrun::collectives;

extern "C" const char* cudaGetErrorString(int code);

namespace {

constexpr int kSuccess = 0;
constexpr int kIllegalAddress = 700;

/// A kernel that reads and writes what it has got.
class Kernel {
public:
    explicit Kernel(void* stream) : stream_(fake::stream_of(stream)) {}

    Kernel& uses(const void* data, std::size_t bytes, bool optional = false) {
        const bool absent = data == nullptr && optional;
        legal_ = legal_ && (bytes == 0 || absent || fake::is_device_memory(data, bytes));
        return *this;
    }
    int launch(std::function<void()> work) {
        if (!legal_) return kIllegalAddress;
        stream_.enqueue(std::move(work));
        return kSuccess;
    }

private:
    fake::Stream& stream_;
    bool legal_ = true;
};

int check() {
    const char* const error = std::getenv("FAKE_CODEC_ERROR");
    return error == nullptr ? kSuccess : std::atoi(error);
}

int encode_fake(Format format, Rounding rounding, std::uint64_t seed, const float* values,
                const float* before, std::size_t count, std::byte* out, float* error,
                void* stream) {
    return Kernel(stream)
        .uses(values, count * sizeof(float))
        .uses(before, count * sizeof(float), true)
        .uses(out, encoded_bytes(format, count))
        .uses(error, count * sizeof(float), true)
        .launch([=] {
            std::vector<float> sum(values, values + count);
            for (std::size_t i = 0; before != nullptr && i < count; ++i) sum[i] += before[i];
            if (error != nullptr) std::fill(error, error + count, 0.0F);
            encode(format, rounding, seed, sum.data(), count, out, error);
        });
}

int decode_fake(Format format, const std::byte* in, std::size_t count, float* values,
                void* stream) {
    return Kernel(stream)
        .uses(in, encoded_bytes(format, count))
        .uses(values, count * sizeof(float))
        .launch([=] { decode(format, in, count, values); });
}

std::vector<float> sum_of(Format format, const CudaChunk& chunk) {
    std::vector<float> sum(chunk.count);
    std::vector<float> part(chunk.count);
    for (std::uint32_t rank = 0; rank < chunk.ranks; ++rank) {
        if (rank == chunk.own_rank)
            for (std::size_t i = 0; i < chunk.count; ++i)
                part[i] =
                    chunk.own_before == nullptr ? chunk.own[i] : chunk.own[i] + chunk.own_before[i];
        else
            decode(format, chunk.encoded + rank * chunk.stride, chunk.count, part.data());
        if (rank == 0)
            sum = part;
        else
            reduce_into(sum.data(), sum.data(), part.data(), chunk.count, DType::f32, Reduce::sum);
    }
    divide(sum.data(), chunk.count, DType::f32, chunk.divisor);
    return sum;
}

int combine_fake(Format format, Rounding rounding, std::uint64_t seed, const CudaChunk& chunk,
                 std::byte* out, float* error, float* values, void* stream) {
    const std::size_t bytes = chunk.count * sizeof(float);
    Kernel kernel(stream);
    kernel.uses(out, encoded_bytes(format, chunk.count)).uses(error, bytes, true);
    kernel.uses(values, bytes, true);
    for (std::uint32_t rank = 0; rank < chunk.ranks; ++rank) {
        if (rank == chunk.own_rank)
            kernel.uses(chunk.own, bytes).uses(chunk.own_before, bytes, true);
        else
            kernel.uses(chunk.encoded + rank * chunk.stride, encoded_bytes(format, chunk.count));
    }
    return kernel.launch([=] {
        const std::vector<float> sum = sum_of(format, chunk);
        std::vector<float> back(chunk.count);
        encode(format, rounding, seed, sum.data(), chunk.count, out);
        decode(format, out, chunk.count, back.data());
        for (std::size_t i = 0; error != nullptr && i < chunk.count; ++i) {
            error[i] = 0.0F + (sum[i] - back[i]) * static_cast<float>(chunk.divisor);
            if (!std::isfinite(error[i])) error[i] = 0;
        }
        if (values != nullptr) std::copy(back.begin(), back.end(), values);
    });
}

/// The memory of segments, and of an array that has all of them.
Kernel& uses(Kernel& kernel, const CudaSegment* segments, std::size_t number, const float* all) {
    for (std::size_t i = 0; i < number; ++i) {
        const Segment& one = segments[i].segment;
        const std::size_t bytes = one.count * sizeof(float);
        kernel.uses(one.in, bytes, true).uses(one.out, bytes, true).uses(one.error, bytes, true);
        kernel.uses(all + segments[i].begin, bytes);
    }
    return kernel;
}

/// The segments are the caller's, and gone when the kernel runs.
int gather_fake(const CudaSegment* segments, std::size_t number, float* values, void* stream) {
    Kernel kernel(stream);
    return uses(kernel, segments, number, values)
        .launch([=, all = std::vector<CudaSegment>(segments, segments + number)] {
            for (const auto& [one, begin] : all)
                for (std::size_t i = 0; i < one.count; ++i)
                    values[begin + i] = one.in == nullptr      ? 0.0F
                                        : one.error == nullptr ? one.in[i]
                                                               : one.in[i] + one.error[i];
        });
}

int scatter_fake(const CudaSegment* segments, std::size_t number, const float* values,
                 const float* errors, void* stream) {
    Kernel kernel(stream);
    return uses(kernel, segments, number, values)
        .launch([=, all = std::vector<CudaSegment>(segments, segments + number)] {
            for (const auto& [one, begin] : all)
                for (std::size_t i = 0; i < one.count && one.out != nullptr; ++i) {
                    one.out[i] = values[begin + i];
                    if (one.error != nullptr) one.error[i] = errors[begin + i];
                }
        });
}

int divide_fake(void* data, std::size_t count, DType type, std::uint32_t divisor, void* stream) {
    return Kernel(stream).uses(data, count * bytes_of(type)).launch([=] {
        divide(data, count, type, divisor);
    });
}

const char* text_of(int error) {
    return error == kIllegalAddress ? "an illegal memory access was encountered"
                                    : cudaGetErrorString(error);
}

constexpr CudaCodecs kCodecs = {
    CudaCodecs::kAbi, check,        encode_fake, decode_fake, combine_fake,
    gather_fake,      scatter_fake, divide_fake, text_of,
};

}  // namespace

const CudaCodecs* dtrun_codec_cuda() {
    return &kCodecs;
}
