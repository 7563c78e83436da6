// A rank with arrays on a GPU, with what users have: <dtrun/communicator.h>. The libraries for the
// GPU are those of the environment. Prints "ok", or what went wrong.
#include "tests/collectives/support/sums.h"

#include <dtrun/communicator.h>

#include <dlfcn.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

using namespace dtrun;

/// The CUDA runtime, as far as it is needed here.
struct Runtime {
    int (*malloc)(void**, std::size_t) = nullptr;
    int (*free)(void*) = nullptr;
    int (*memcpy)(void*, const void*, std::size_t, int) = nullptr;
    int (*create_stream)(void**, unsigned) = nullptr;
    int (*memcpy_async)(void*, const void*, std::size_t, int, void*) = nullptr;

    Runtime() {
        void* const library = ::dlopen(std::getenv("DTRUN_CUDART_LIBRARY"), RTLD_NOW);
        REQUIRE(library != nullptr);
        malloc = reinterpret_cast<decltype(malloc)>(::dlsym(library, "cudaMalloc"));
        free = reinterpret_cast<decltype(free)>(::dlsym(library, "cudaFree"));
        memcpy = reinterpret_cast<decltype(memcpy)>(::dlsym(library, "cudaMemcpy"));
        create_stream = reinterpret_cast<decltype(create_stream)>(
            ::dlsym(library, "cudaStreamCreateWithFlags"));
        memcpy_async =
            reinterpret_cast<decltype(memcpy_async)>(::dlsym(library, "cudaMemcpyAsync"));
    }
};

/// An array on the GPU.
class Floats {
public:
    Floats(const Runtime& runtime, const std::vector<float>& values)
        : runtime_(runtime), count_(values.size()) {
        void* data = nullptr;
        REQUIRE(runtime_.malloc(&data, count_ * sizeof(float)) == 0);
        data_ = static_cast<float*>(data);
        set(values);
    }
    ~Floats() { runtime_.free(data_); }
    Floats(const Floats&) = delete;
    Floats& operator=(const Floats&) = delete;

    float* data() const { return data_; }
    std::size_t count() const { return count_; }
    void set(const std::vector<float>& values) const {
        REQUIRE(runtime_.memcpy(data_, values.data(), count_ * sizeof(float), kDefault) == 0);
    }
    std::vector<float> get() const {
        std::vector<float> values(count_);
        REQUIRE(runtime_.memcpy(values.data(), data_, count_ * sizeof(float), kDefault) == 0);
        return values;
    }

private:
    static constexpr int kDefault = 4;
    const Runtime& runtime_;
    std::size_t count_;
    float* data_ = nullptr;
};

void same_bits_everywhere(Communicator& comm, const Runtime& gpu, const Floats& values) {
    const Floats all(gpu, std::vector<float>(values.count() * comm.size()));
    comm.allgather(values.data(), all.data(), values.count());
    const auto own = values.get();
    const auto others = all.get();
    for (std::uint32_t rank = 0; rank < comm.size(); ++rank)
        REQUIRE(std::memcmp(others.data() + rank * own.size(), own.data(),
                            own.size() * sizeof(float)) == 0);
}

void compression(Communicator& comm, const Runtime& gpu) {
    const struct {
        Format format;
        double error;
    } formats[] = {{Format::f16, 1e-3},  {Format::bf16, 6e-3},         {Format::e4m3, 6e-2},
                   {Format::e5m2, 0.12}, {Format::int8, 2e-2},         {Format::e4m3_unscaled, 0.3},
                   {Format::none, 1e-6}, {Format::e5m2_unscaled, 0.12}};
    const Floats data(gpu, numbers(20'001, comm.rank()));
    for (const auto& [format, error] : formats)
        for (const bool stochastic : {false, true}) {
            data.set(numbers(data.count(), comm.rank()));
            comm.allreduce(data.data(), data.data(), data.count(), Reduce::sum,
                           {format, stochastic});
            REQUIRE(relative_error(data.get(), comm.size()) < error * (stochastic ? 2 : 1));
            same_bits_everywhere(comm, gpu, data);
        }
    // What is lost is made good later.
    const Floats left(gpu, std::vector<float>(data.count()));
    std::vector<float> mean(data.count());
    for (int step = 0; step < 20; ++step) {
        data.set(numbers(data.count(), comm.rank()));
        comm.allreduce(data.data(), data.data(), data.count(), Reduce::sum,
                       {Format::e4m3, false, left.data()});
        const auto values = data.get();
        for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += values[i] / 20;
    }
    REQUIRE(relative_error(mean, comm.size()) < 0.01);
}

void many(Communicator& comm, const Runtime& gpu) {
    const Floats a(gpu, numbers(5'000, comm.rank()));
    const Floats b(gpu, numbers(333, comm.rank()));
    const Floats kept(gpu, std::vector<float>(333));
    comm.allreduce_many<float>({{a.data(), a.count()}, {b.data(), b.count()}});
    REQUIRE(relative_error(a.get(), comm.size()) < 1e-6);
    REQUIRE(relative_error(b.get(), comm.size()) < 1e-6);
    a.set(numbers(5'000, comm.rank()));
    b.set(numbers(333, comm.rank()));
    comm.allreduce_many<float>({{a.data(), a.count()}, {b.data(), b.count(), kept.data()}},
                               Reduce::sum, {Format::int8});
    REQUIRE(relative_error(a.get(), comm.size()) < 2e-2);
    REQUIRE(relative_error(b.get(), comm.size()) < 2e-2);
    same_bits_everywhere(comm, gpu, a);
    same_bits_everywhere(comm, gpu, b);
}

/// Sums of what a stream of the caller's copies into an array just before.
void streams(Communicator& comm, const Runtime& gpu) {
    constexpr std::size_t kCount = 200'000;
    void* stream = nullptr;
    REQUIRE(gpu.create_stream(&stream, 1) == 0);
    comm.set_stream(stream);
    const Floats data(gpu, std::vector<float>(kCount));
    for (int round = 1; round <= 20; ++round) {
        const Floats next(gpu, std::vector<float>(kCount, static_cast<float>(round)));
        REQUIRE(gpu.memcpy_async(data.data(), next.data(), kCount * sizeof(float), 4, stream) == 0);
        comm.start_allreduce(data.data(), data.data(), kCount).get();
        REQUIRE(data.get().back() == static_cast<float>(round) * static_cast<float>(comm.size()));
    }
    comm.set_stream(nullptr);
    REQUIRE(dtrun_comm_set_stream(nullptr, stream) == DTRUN_INVALID);
}

}  // namespace

int main() try {
    const Runtime gpu;
    Worker worker;
    CommunicatorOptions options;
    options.device_memory = true;
    Communicator comm(worker, options);
    REQUIRE(comm.backend() == std::string("nccl"));
    compression(comm, gpu);
    many(comm, gpu);
    streams(comm, gpu);
    options.device = static_cast<int>(comm.rank());
    Communicator chosen(worker, options);
    REQUIRE(chosen.facts().find("GPU: " + std::to_string(comm.rank())) != std::string::npos);
    auto half = comm.split(static_cast<int>(comm.rank() % 2));
    REQUIRE(half.has_value());
    many(*half, gpu);
    std::printf("ok\n");
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
