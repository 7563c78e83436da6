#include "collectives/shared_library.h"
#include "lab/rank/gpu/gpu_learner.h"
#include "lab/rank/trainer.h"
#include "tests/lab/rank/gpu_checks.h"
#include "tests/support/catch.h"

#include <dtrun_collectives.h>
#include <cstdlib>
#include <filesystem>

// The kernels of training on a GPU and what gives them their work, over a runtime that only pretends:
// kernels run thread by thread, in streams that are threads.

namespace dtrun::lab::rank {
namespace {

/// The fake, in place of NVIDIA's libraries, until the end of the test.
class FakeGpu {
public:
    FakeGpu() {
        for (const char* const name : kNames) ::setenv(name, FAKE_NCCL, 1);
    }
    ~FakeGpu() {
        for (const char* const name : kNames) ::unsetenv(name);
    }
    FakeGpu(const FakeGpu&) = delete;
    FakeGpu& operator=(const FakeGpu&) = delete;

    static collectives::Device device() {
        auto device = collectives::Device::open(0);
        REQUIRE(device.has_value());
        return *device;
    }
    static GpuPlace place() {
        auto place = GpuPlace::open(device(), FAKE_NCCL);
        REQUIRE(place.has_value());
        return std::move(*place);
    }

private:
    static constexpr const char* kNames[] = {"DTRUN_NCCL_LIBRARY", "DTRUN_CUDART_LIBRARY"};
};

const DataSet& few_digits() {
    static const DataSet data{draw_digits(300, 1), draw_digits(400, 2), "few digits"};
    return data;
}

}  // namespace

TEST_CASE("a network on a GPU learns what the processor's learns, but for rounding", "[lab][gpu]") {
    const FakeGpu fake;
    const GpuPlace place = FakeGpu::place();
    const Model model = GENERATE(Model::mlp, Model::cnn);
    // Neither the batch nor its parts are a multiple of a tile.
    const auto apart = compare_learners(
        {model, 3, model == Model::mlp ? std::size_t{130} : std::size_t{37}, few_digits()},
        learner_on_gpu(place),
        [&](void* to, const void* from, std::size_t bytes) {
            return place.device.copy(to, from, bytes);
        },
        5);
    REQUIRE(apart.has_value());
    INFO(name_of(model) << ": loss " << apart->loss << ", gradients " << apart->gradients
                        << ", weights " << apart->weights << ", told apart " << apart->told_apart);
    CHECK(apart->loss < 1e-7);
    CHECK(apart->gradients < 1e-5);
    CHECK(apart->weights < 1e-5);
    CHECK(apart->told_apart <= 1);
}

TEST_CASE("training on a GPU ends where the processor's ends", "[lab][gpu]") {
    const FakeGpu fake;
    const GpuPlace place = FakeGpu::place();
    SerialReducer serial;
    TrainOptions options;
    options.epochs = 2;
    options.global_batch = 60;
    const auto wanted = train(options, few_digits(), serial);
    const auto got = train(options, few_digits(), serial, learner_on_gpu(place));
    REQUIRE(got.has_value());
    CHECK(got->loss == Approx(wanted->loss).epsilon(1e-4));
    CHECK(std::abs(got->accuracy - wanted->accuracy) <= 1.0 / 400);
    CHECK(got->accuracy > 0.4);
    CHECK(got->compute_ms > 0);
}

TEST_CASE("losses are counted once, and gradients do not grow from step to step", "[lab][gpu]") {
    const FakeGpu fake;
    const GpuPlace place = FakeGpu::place();
    const auto learner = learner_on_gpu(place)({Model::mlp, 1, 8, few_digits()});
    REQUIRE(learner.has_value());
    const std::vector<std::uint32_t> picks{1, 2, 3, 4, 5, 6, 7, 8};
    const std::vector<std::uint32_t> others{9, 10, 11};
    REQUIRE((*learner)->learn(picks, 1).has_value());
    const double once = *(*learner)->take_loss();
    CHECK(once > 0);
    CHECK(*(*learner)->take_loss() == 0);
    const std::span<float> weights = (*learner)->gradients().front();
    std::vector<float> first(weights.size()), second(weights.size());
    REQUIRE(place.device.copy(first.data(), weights.data(), weights.size_bytes()).has_value());
    // The images of a call are its own, also when the next call comes before it is done.
    REQUIRE((*learner)->learn(others, 1).has_value());
    const double of_others = *(*learner)->take_loss();
    REQUIRE((*learner)->learn(others, 1).has_value());
    REQUIRE((*learner)->learn(picks, 1).has_value());
    CHECK(*(*learner)->take_loss() == Approx(once + of_others));
    REQUIRE(place.device.copy(second.data(), weights.data(), weights.size_bytes()).has_value());
    CHECK(first == second);
}

TEST_CASE("what a GPU lacks for training is named", "[lab][gpu]") {
    const FakeGpu fake;
    const collectives::Device device = FakeGpu::device();
    ::setenv("DTRUN_BACKEND_DIR", "/nowhere", 1);
    const auto beside =
        collectives::folder_of(&dtrun_comm_create) / "dtrun/backends/libdtrun_train_cuda.so";
    if (!std::filesystem::exists(beside))
        CHECK(
            GpuPlace::open(device, "").error().message ==
            "training on a GPU needs /nowhere/libdtrun_train_cuda.so, which a dtrun that was built "
            "with a CUDA toolkit has (DTRUN_TRAIN_CUDA_LIBRARY names one that is elsewhere)");
    ::unsetenv("DTRUN_BACKEND_DIR");
    CHECK(GpuPlace::open(device, "/nowhere/x.so").error().message.starts_with("/nowhere/x.so: "));
    ::setenv("FAKE_TRAIN_ERROR", "35", 1);
    CHECK(GpuPlace::open(device, FAKE_NCCL).error().message ==
          "the kernels of training do not run on this GPU: CUDA driver version is insufficient "
          "for CUDA runtime version");
    ::unsetenv("FAKE_TRAIN_ERROR");
    // A rank whose GPU has too little memory says so.
    const GpuPlace place = FakeGpu::place();
    ::setenv("FAKE_GPU_MEMORY", "100000", 1);
    const auto learner = learner_on_gpu(place)({Model::cnn, 1, 64, few_digits()});
    ::unsetenv("FAKE_GPU_MEMORY");
    REQUIRE_FALSE(learner.has_value());
    CHECK(learner.error().message.starts_with("a network on the GPU: GPU memory for an array of "));
    CHECK(learner.error().message.ends_with(" bytes: out of memory"));
}

}  // namespace dtrun::lab::rank
