#pragma once

// What a rank of the lab prints and what reports are made of. Each record lists its fields once: the
// rank's writer, the report's reader, the report's JSON and its CSV all go by fields(), so that a
// field has one name and one type everywhere.
//
// A line of a rank is the record as a JSON object, with its kType as the member "type".

#include "collectives/backends/backend_table.h"

#include <array>
#include <compare>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::lab {

/// An unknown number; null in JSON.
inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// Record::fields(record, visit) calls visit("name", record.name) for every member, which is a text,
// a bool, a number, NameValues, or a vector of records.

using NameValues = std::vector<std::pair<std::string, std::string>>;

struct NicRecord {
    std::string name;
    std::string model;
    double speed_mbit = kUnknown;
    std::string driver;

    template <class Nic, class Visit>
    static void fields(Nic& it, Visit&& visit) {
        visit("name", it.name);
        visit("model", it.model);
        visit("speed_mbit", it.speed_mbit);
        visit("driver", it.driver);
    }
};

struct GpuRecord {
    std::string model;
    double memory_bytes = kUnknown;

    template <class Gpu, class Visit>
    static void fields(Gpu& it, Visit&& visit) {
        visit("model", it.model);
        visit("memory_bytes", it.memory_bytes);
    }
};

/// Whether networks compute on GPUs when this backend reduces their gradients.
constexpr bool computes_on_gpu(std::string_view backend) {
    const collectives::BackendRow* const row = collectives::find_backend(backend);
    return row != nullptr && row->on_device();
}

/// Facts of a host. Texts are empty where the host lacks something, or does not tell.
struct HostRecord {
    static constexpr const char* kType = "host";

    std::string name, os, kernel, cpu;
    double cores = kUnknown;
    double memory_bytes = kUnknown;
    std::vector<NicRecord> nics;  ///< those with a device, else all but the loopback
    std::vector<GpuRecord> gpus;
    std::string gpu_links;  ///< how GPUs reach each other: "NVLink (NV18)"; lines
    std::string driver;     ///< version, of the GPUs
    std::string cuda;       ///< version
    /// Versions of the library behind each backend, in the order of kBackends.
    std::array<std::string, collectives::kBackendCount> libraries;
    std::string python, torch, horovod;  ///< versions

    template <class Host, class Visit>
    static void fields(Host& it, Visit&& visit) {
        visit("name", it.name);
        visit("os", it.os);
        visit("kernel", it.kernel);
        visit("cpu", it.cpu);
        visit("cores", it.cores);
        visit("memory_bytes", it.memory_bytes);
        visit("nics", it.nics);
        visit("gpus", it.gpus);
        visit("gpu_links", it.gpu_links);
        visit("driver", it.driver);
        visit("cuda", it.cuda);
        for (std::size_t i = 0; i < it.libraries.size(); ++i)
            visit(collectives::kBackends[i].name, it.libraries[i]);
        visit("python", it.python);
        visit("torch", it.torch);
        visit("horovod", it.horovod);
    }
};

/// The backend and the places of ranks, which are part of all records of a run.
struct ShapeRecord {
    std::string backend;
    int hosts = 1;
    int slots_per_host = 1;
    int ranks = 1;
    auto operator<=>(const ShapeRecord&) const = default;

    template <class Shape, class Visit>
    static void fields(Shape& it, Visit&& visit) {
        visit("backend", it.backend);
        visit("hosts", it.hosts);
        visit("slots_per_host", it.slots_per_host);
        visit("ranks", it.ranks);
    }
};

/// A communicator, and why its backend was chosen.
struct CommRecord : ShapeRecord {
    static constexpr const char* kType = "comm";

    std::string version, transport, why;
    double bootstrap_ms = kUnknown;    ///< of the slowest rank
    bool oversubscribed = false;       ///< a host has more ranks than processors, or than GPUs
    double line_rate_mbit = kUnknown;  ///< of the network interface that it uses between hosts
    NameValues details;                ///< "GPUDirect P2P", "no: ..."

    template <class Comm, class Visit>
    static void fields(Comm& it, Visit&& visit) {
        ShapeRecord::fields(it, visit);
        visit("version", it.version);
        visit("transport", it.transport);
        visit("why", it.why);
        visit("bootstrap_ms", it.bootstrap_ms);
        visit("oversubscribed", it.oversubscribed);
        visit("line_rate_mbit", it.line_rate_mbit);
        visit("details", it.details);
    }
};

/// One size of one operation. Times are the slowest rank's, of each iteration.
struct RowRecord : ShapeRecord {
    static constexpr const char* kType = "row";

    std::string op, dtype, compression;
    bool in_place = false;    ///< the result lies where the input was
    std::uint64_t bytes = 0;  ///< of the whole array, as nccl-tests counts
    std::uint64_t count = 0;
    std::uint64_t iters = 0;
    std::uint64_t warmup = 0;
    double t_min_us = kUnknown, t_mean_us = kUnknown, t_p50_us = kUnknown, t_p99_us = kUnknown,
           t_max_us = kUnknown;
    double algbw_GBps = kUnknown, busbw_GBps = kUnknown;
    double wire_bytes_per_rank = kUnknown;
    double rel_err = kUnknown;
    double wrong = 0;  ///< elements; unknown: not checked

    template <class Row, class Visit>
    static void fields(Row& it, Visit&& visit) {
        ShapeRecord::fields(it, visit);
        visit("op", it.op);
        visit("dtype", it.dtype);
        visit("compression", it.compression);
        visit("in_place", it.in_place);
        visit("bytes", it.bytes);
        visit("count", it.count);
        visit("iters", it.iters);
        visit("warmup", it.warmup);
        visit("t_min_us", it.t_min_us);
        visit("t_mean_us", it.t_mean_us);
        visit("t_p50_us", it.t_p50_us);
        visit("t_p99_us", it.t_p99_us);
        visit("t_max_us", it.t_max_us);
        visit("algbw_GBps", it.algbw_GBps);
        visit("busbw_GBps", it.busbw_GBps);
        visit("wire_bytes_per_rank", it.wire_bytes_per_rank);
        visit("rel_err", it.rel_err);
        visit("wrong", it.wrong);
    }
};

/// An epoch of a training: what had been reached when its last step ended.
struct EpochRecord {
    int epoch = 0;              ///< 1 is the first
    double seconds = kUnknown;  ///< of all steps so far, without tests; of the slowest rank
    double accuracy = kUnknown;
    double loss = kUnknown;            ///< mean over the epoch
    std::uint64_t ended_unix_ms = 0;   ///< when its last step ended
    std::uint64_t tested_unix_ms = 0;  ///< when its test ended

    template <class Epoch, class Visit>
    static void fields(Epoch& it, Visit&& visit) {
        visit("epoch", it.epoch);
        visit("seconds", it.seconds);
        visit("accuracy", it.accuracy);
        visit("loss", it.loss);
        visit("ended_unix_ms", it.ended_unix_ms);
        visit("tested_unix_ms", it.tested_unix_ms);
    }
};

/// The backend of a program that is not told which one to use.
inline constexpr const char* kOwnBackend = "own";

/// One training, or somebody's program.
struct TrainRecord : ShapeRecord {
    static constexpr const char* kType = "train";

    /// "serial", "parallel", or the compression of its gradients. A serial training is of no
    /// backend, "none", or, on a GPU, of that with which others compute there.
    std::string algorithm;
    std::string model;  ///< of somebody's program: its command
    std::string data;
    std::string scaling = "strong";  ///< or "weak"
    int epochs = 0;                  ///< 0: it does not say
    int global_batch = 0;            ///< samples of a step, of all ranks; 0: it does not say
    int seed = 1;
    double loss_scale = 1;
    /// Of a step: medians, without the first ones.
    double step_ms = kUnknown, compute_ms = kUnknown, comm_ms = kUnknown;
    double samples_per_s = kUnknown;  ///< global_batch / step_ms
    double accuracy = kUnknown;       ///< at the end, 0..1
    double loss = kUnknown;
    double seconds = kUnknown;  ///< of all steps
    double train_samples = kUnknown, test_samples = kUnknown;
    double learning_rate = kUnknown;
    std::uint64_t init_unix_ms = 0;   ///< when the rank program began to get ready
    std::uint64_t start_unix_ms = 0;  ///< when the first step began
    std::vector<EpochRecord> by_epoch;

    bool is_serial() const { return algorithm == "serial"; }
    /// The network computes where the arrays of the backend are.
    bool is_on_gpu() const { return computes_on_gpu(backend); }

    template <class Train, class Visit>
    static void fields(Train& it, Visit&& visit) {
        ShapeRecord::fields(it, visit);
        visit("algorithm", it.algorithm);
        visit("model", it.model);
        visit("data", it.data);
        visit("scaling", it.scaling);
        visit("epochs", it.epochs);
        visit("global_batch", it.global_batch);
        visit("seed", it.seed);
        visit("loss_scale", it.loss_scale);
        visit("step_ms", it.step_ms);
        visit("compute_ms", it.compute_ms);
        visit("comm_ms", it.comm_ms);
        visit("samples_per_s", it.samples_per_s);
        visit("accuracy", it.accuracy);
        visit("loss", it.loss);
        visit("seconds", it.seconds);
        visit("train_samples", it.train_samples);
        visit("test_samples", it.test_samples);
        visit("learning_rate", it.learning_rate);
        visit("init_unix_ms", it.init_unix_ms);
        visit("start_unix_ms", it.start_unix_ms);
        visit("by_epoch", it.by_epoch);
    }
};

/// What one rank of somebody's program has told of its steps.
struct StepsRecord {
    static constexpr const char* kType = "steps";

    int rank = 0;
    /// How it told: "progress" (Worker.progress), "torch" (dtrun.torch's own steps) or "output"
    /// (--step-regex); empty: it told of none.
    std::string source;
    std::uint64_t steps = 0;
    double step_ms = kUnknown;  ///< the median, without the first ones
    double samples_per_s = kUnknown, rank_samples_per_s = kUnknown;  ///< as its output says
    double seconds = kUnknown;                                       ///< of all these steps
    double begin_ns = kUnknown;  ///< of its monotonic clock, when the first step began or ended
    double batch = kUnknown;     ///< samples of a step of this rank
    std::string compression;     ///< that dtrun.torch was asked for from outside, and uses
    std::string backend;         ///< that dtrun.torch uses
    std::uint64_t lines = 0;     ///< of its output
    std::vector<EpochRecord> epochs;  ///< by the accuracies that it has printed

    template <class Steps, class Visit>
    static void fields(Steps& it, Visit&& visit) {
        visit("rank", it.rank);
        visit("source", it.source);
        visit("steps", it.steps);
        visit("step_ms", it.step_ms);
        visit("samples_per_s", it.samples_per_s);
        visit("rank_samples_per_s", it.rank_samples_per_s);
        visit("seconds", it.seconds);
        visit("begin_ns", it.begin_ns);
        visit("batch", it.batch);
        visit("compression", it.compression);
        visit("backend", it.backend);
        visit("lines", it.lines);
        visit("epochs", it.epochs);
    }
};

/// Messages between two ranks, while all others wait.
struct PairRecord : ShapeRecord {
    static constexpr const char* kType = "pair";

    int from = 0, to = 0;  ///< ranks
    std::string from_host, to_host;
    double latency_us = kUnknown;      ///< half of the round trip of 4 bytes, median
    double bandwidth_GBps = kUnknown;  ///< of messages of 1 MiB, one behind the other

    template <class Pair, class Visit>
    static void fields(Pair& it, Visit&& visit) {
        ShapeRecord::fields(it, visit);
        visit("from", it.from);
        visit("to", it.to);
        visit("from_host", it.from_host);
        visit("to_host", it.to_host);
        visit("latency_us", it.latency_us);
        visit("bandwidth_GBps", it.bandwidth_GBps);
    }
};

/// Why something could not be measured.
struct ErrorRecord {
    static constexpr const char* kType = "error";

    std::string text;

    template <class Failed, class Visit>
    static void fields(Failed& it, Visit&& visit) {
        visit("text", it.text);
    }
};

}  // namespace dtrun::lab
