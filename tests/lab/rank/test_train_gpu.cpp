#include "base/json_writer.h"
#include "lab/names.h"
#include "lab/rank/gpu/gpu_learner.h"
#include "lab/rank/trainer.h"
#include "tests/lab/rank/gpu_checks.h"

#include <fmt/format.h>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

// Does the lab's network learn on this host's GPU what it learns on the processor, and how long do
// its steps take? Exit code 77: no GPU here.
//
//   test_train_gpu [--quick] [--json FILE]
//     --quick  with few images, as for compute-sanitizer
//     --json   writes what was found to a file as well
//
// DTRUN_TRAIN_CUDA_LIBRARY names another library than the one that was built with it.

namespace dtrun::lab::rank {
namespace {

constexpr int kNoGpu = 77;
constexpr int kUsage = 2;
constexpr std::size_t kSteps = 6;

/// What rounding, and the GPU's own exponential function, may change.
constexpr LearnerDistance kNear{1e-5, 1e-4, 1e-4, 4};
constexpr double kAccuracyNear = 0.01;

struct Outcome {
    Model model = Model::mlp;
    LearnerDistance apart;
    Trained on_cpu, on_gpu;

    bool good() const {
        return apart.loss <= kNear.loss && apart.gradients <= kNear.gradients &&
               apart.weights <= kNear.weights && apart.told_apart <= kNear.told_apart &&
               std::abs(on_cpu.accuracy - on_gpu.accuracy) <= kAccuracyNear;
    }
    std::string line() const {
        JsonWriter json;
        json.add("model", name_of(model)).add("right", good());
        json.add("loss", apart.loss).add("gradients", apart.gradients);
        json.add("weights", apart.weights);
        json.add("told_apart", static_cast<double>(apart.told_apart));
        json.add("accuracy_cpu", on_cpu.accuracy).add("accuracy_gpu", on_gpu.accuracy);
        json.add("step_ms_cpu", on_cpu.step_ms).add("step_ms_gpu", on_gpu.step_ms);
        return json.text();
    }
};

Result<Outcome> look_at(Model model, const DataSet& data, const GpuPlace& place) {
    Outcome outcome;
    outcome.model = model;
    const auto copy = [&](void* to, const void* from, std::size_t bytes) {
        return place.device.copy(to, from, bytes);
    };
    const auto apart = compare_learners({model, 3, 250, data}, learner_on_gpu(place), copy, kSteps);
    if (!apart) return std::unexpected(apart.error());
    outcome.apart = *apart;
    TrainOptions options;
    options.model = model;
    options.global_batch = 256;
    SerialReducer serial;
    const auto on_cpu = train(options, data, serial);
    if (!on_cpu) return std::unexpected(on_cpu.error());
    const auto on_gpu = train(options, data, serial, learner_on_gpu(place));
    if (!on_gpu) return std::unexpected(on_gpu.error());
    outcome.on_cpu = *on_cpu;
    outcome.on_gpu = *on_gpu;
    return outcome;
}

int run(bool quick, std::FILE* json) {
    const auto device = collectives::Device::open(0);
    if (!device) {
        fmt::print("SKIPPED: {}\n", device.error().message);
        return kNoGpu;
    }
    const char* const given = std::getenv("DTRUN_TRAIN_CUDA_LIBRARY");
    const auto place = GpuPlace::open(*device, given == nullptr ? DTRUN_TRAIN_CUDA : given);
    if (!place) {
        fmt::print("{}\n", place.error().message);
        return 1;
    }
    const DataSet data =
        quick ? DataSet{draw_digits(300, 1), draw_digits(200, 2), ""} : generated_digits();
    bool good = true;
    for (const Model model : {Model::mlp, Model::cnn}) {
        const auto outcome = look_at(model, data, *place);
        if (!outcome) {
            fmt::print("{}: {}\n", name_of(model), outcome.error().message);
            return 1;
        }
        good = good && outcome->good();
        fmt::print("{}\n", outcome->line());
        if (json != nullptr) fmt::print(json, "{}\n", outcome->line());
    }
    fmt::print("{}\n", good ? "ok" : "FAILED: the GPU learns something else");
    return good ? 0 : 1;
}

}  // namespace
}  // namespace dtrun::lab::rank

int main(int argc, char** argv) {
    bool quick = false;
    std::FILE* json = nullptr;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (word == "--quick") {
            quick = true;
        } else if (word == "--json" && i + 1 < argc) {
            json = std::fopen(argv[++i], "w");
            if (json != nullptr) continue;
            fmt::print(stderr, "test_train_gpu: {}: {}\n", argv[i], std::strerror(errno));
            return dtrun::lab::rank::kUsage;
        } else {
            fmt::print(stderr, "usage: test_train_gpu [--quick] [--json FILE]\n");
            return dtrun::lab::rank::kUsage;
        }
    }
    const int status = dtrun::lab::rank::run(quick, json);
    if (json != nullptr) std::fclose(json);
    return status;
}
