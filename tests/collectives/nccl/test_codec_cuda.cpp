// Holds the CUDA codecs of libdtrun_codec_cuda.so against those of the CPU, bit by bit, on this
// host's GPU, and measures them against the card's own copy. Exit code 77: no GPU here.
//
//   test_codec_cuda [--sizes MIB,MIB...] [--misaligned] [--check-only [--quick] | --measure-only]
//                   [--json FILE]
//     --sizes       f32 values to measure with, in MiB (default 1024)
//     --misaligned  measures values that do not begin at multiples of 16 bytes, too
//     --quick       with shorter arrays, as for compute-sanitizer
//     --json        writes what was found to a file as well
//
// DTRUN_CODEC_CUDA_LIBRARY names another library than the one that was built with it.

#include "collectives/backends/shared_library.h"
#include "collectives/codec/codec.h"
#include "tests/collectives/nccl/codec_checks.h"
#include "tests/collectives/nccl/codec_measure.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/core.h>
#include <charconv>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::collectives {
namespace {

constexpr int kNoGpu = 77;
constexpr int kUsage = 2;
constexpr std::size_t kLargest = 1'048'579;
constexpr std::size_t kLargestQuick = 20'011;

struct Options {
    std::vector<std::size_t> sizes{1024};
    bool misaligned = false;
    bool check = true;
    bool measure = true;
    bool quick = false;
    std::string json;
};

std::vector<std::size_t> read_sizes(std::string_view text) {
    std::vector<std::size_t> sizes;
    for (const char* at = text.data(); at < text.data() + text.size();) {
        std::size_t size = 0;
        const auto read = std::from_chars(at, text.data() + text.size(), size);
        if (read.ec != std::errc() || size == 0) return {};
        sizes.push_back(size);
        at = read.ptr + 1;
    }
    return sizes;
}

std::optional<Options> read_options(int count, char** words) {
    Options options;
    for (int i = 1; i < count; ++i) {
        const std::string_view word = words[i];
        const bool has_value = i + 1 < count;
        if (word == "--misaligned") {
            options.misaligned = true;
        } else if (word == "--check-only") {
            options.measure = false;
        } else if (word == "--measure-only") {
            options.check = false;
        } else if (word == "--quick") {
            options.quick = true;
        } else if (word == "--sizes" && has_value) {
            options.sizes = read_sizes(words[++i]);
            if (options.sizes.empty()) return std::nullopt;
        } else if (word == "--json" && has_value) {
            options.json = words[++i];
        } else {
            return std::nullopt;
        }
    }
    return options;
}

const CudaCodecs* load(const std::string& path) {
    void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        fmt::print(stderr, "test_codec_cuda: {}\n", ::dlerror());
        return nullptr;
    }
    const auto get =
        reinterpret_cast<const CudaCodecs* (*)()>(::dlsym(library, "dtrun_codec_cuda"));
    const CudaCodecs* const codecs = get == nullptr ? nullptr : get();
    if (codecs != nullptr && codecs->abi == CudaCodecs::kAbi) return codecs;
    fmt::print(stderr, "test_codec_cuda: {} is another version\n", path);
    return nullptr;
}

DeviceMemory gpu_memory() {
    return {
        [](std::size_t bytes) {
            void* data = nullptr;
            require_cuda(cudaMalloc(&data, bytes), "cudaMalloc");
            return data;
        },
        [](void* data) { cudaFree(data); },
        [](void* to, const void* from, std::size_t bytes) {
            require_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copy to the GPU");
        },
        [](void* to, const void* from, std::size_t bytes) {
            require_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "copy from the GPU");
        }};
}

/// The GPU, in words and as members of a JSON object.
struct About {
    std::string text;
    std::string json;
};

About about_gpu() {
    cudaDeviceProp properties{};
    require_cuda(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    int driver = 0;
    int runtime = 0;
    require_cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    require_cuda(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    const auto version = [](int number) {
        return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
    };
    return {
        fmt::format("{} (sm_{}{}), driver for CUDA {}, runtime {}, CPU codecs: {}", properties.name,
                    properties.major, properties.minor, version(driver), version(runtime),
                    codec_dispatch()),
        fmt::format(R"("gpu": "{}", "sm": {}{}, "driver": "{}", "runtime": "{}")", properties.name,
                    properties.major, properties.minor, version(driver), version(runtime))};
}

void print(const CodecRate& rate) {
    fmt::print("  {:6} MiB {:11} {:38} {:8.0f} GB/s {:6.1f} % of a copy\n", rate.mib,
               rate.aligned ? "" : "misaligned", rate.name, rate.gbytes_per_s, 100 * rate.of_copy);
}

bool write_json(const std::string& path, const About& about, const Verdict& verdict,
                const std::vector<CodecRate>& rates) {
    std::ofstream file(path);
    file << fmt::format("{{{}, \"checks\": {}, \"wrong\": {}, \"rates\": [", about.json,
                        verdict.checks(), verdict.wrong());
    const char* before = "\n";
    for (const CodecRate& rate : rates) {
        file << fmt::format(
            R"({}  {{"name": "{}", "mib": {}, "aligned": {}, "gbytes_per_s": {:.1f}, "of_copy": {:.4f}}})",
            before, rate.name, rate.mib, rate.aligned, rate.gbytes_per_s, rate.of_copy);
        before = ",\n";
    }
    file << "]}\n";
    file.close();
    if (!file) fmt::print(stderr, "test_codec_cuda: cannot write {}\n", path);
    return static_cast<bool>(file);
}

int run(const Options& options) {
    const std::string named = environment_text("DTRUN_CODEC_CUDA_LIBRARY");
    const CudaCodecs* const cuda = load(named.empty() ? DTRUN_CODEC_CUDA : named);
    if (cuda == nullptr) return 1;
    int devices = 0;
    const cudaError_t found = cudaGetDeviceCount(&devices);
    if (found != cudaSuccess || devices == 0) {
        fmt::print("SKIPPED: no GPU: {}\n",
                   found == cudaSuccess ? "none" : cudaGetErrorString(found));
        return kNoGpu;
    }
    const About about = about_gpu();
    fmt::print("{}\n", about.text);
    Verdict verdict;
    if (options.check)
        check_codecs(*cuda, gpu_memory(), options.quick ? kLargestQuick : kLargest, verdict);
    for (const std::string& text : verdict.texts()) fmt::print(stderr, "WRONG: {}\n", text);
    std::vector<CodecRate> rates;
    if (options.measure && verdict.wrong() == 0)
        for (const std::size_t mib : options.sizes)
            for (const bool aligned : {true, false})
                if (aligned || options.misaligned)
                    for (CodecRate& rate : measure_codecs(*cuda, mib, aligned)) {
                        print(rate);
                        rates.push_back(std::move(rate));
                    }
    if (!options.json.empty() && !write_json(options.json, about, verdict, rates)) return 1;
    fmt::print("{} checks, {} wrong\n", verdict.checks(), verdict.wrong());
    return verdict.wrong() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace dtrun::collectives

int main(int argc, char** argv) {
    using namespace dtrun::collectives;
    const auto options = read_options(argc, argv);
    if (options) return run(*options);
    fmt::print(stderr,
               "usage: test_codec_cuda [--sizes MIB,MIB...] [--misaligned] [--check-only [--quick] "
               "| --measure-only] [--json FILE]\n");
    return kUsage;
}
