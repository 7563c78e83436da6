#pragma once

#include "base/result.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::lab {

/// A number that nobody has told.
inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

struct NicRecord {
    std::string name;
    std::string model;
    double speed_mbit = kUnknown;
    std::string driver;
};

struct GpuRecord {
    std::string model;
    double memory_bytes = kUnknown;
};

/// What a host is and has. Empty: it has not got that, or does not tell.
struct HostRecord {
    std::string name, os, kernel, cpu;
    double cores = kUnknown;
    double memory_bytes = kUnknown;
    std::vector<NicRecord> nics;
    std::vector<GpuRecord> gpus;
    std::string gpu_links;  ///< lines
    std::string driver, cuda, nccl, mpi, gloo, oneccl, python, torch;
};

/// What one run of the rank program is, in all that it prints.
struct ShapeRecord {
    std::string backend;
    int hosts = 1;
    int slots_per_host = 1;
    int ranks = 1;
    auto operator<=>(const ShapeRecord&) const = default;
};

/// A communicator, and how it came to be the one it is.
struct CommRecord : ShapeRecord {
    std::string version, transport, why;
    double bootstrap_ms = kUnknown;
    bool oversubscribed = false;
    std::vector<std::pair<std::string, std::string>> details;  ///< "GPUDirect P2P", "no: ..."
};

/// One size of one operation. Times are the slowest rank's, of each iteration.
struct RowRecord : ShapeRecord {
    std::string op, dtype, compression;
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
};

/// One training.
struct TrainRecord : ShapeRecord {
    std::string algorithm;  ///< "serial", "parallel", or the compression of its gradients
    std::string model;
    int epochs = 0;
    int global_batch = 0;
    double loss_scale = 1;
    double step_ms = kUnknown, compute_ms = kUnknown, comm_ms = kUnknown;
    double samples_per_s = kUnknown;
    double accuracy = kUnknown;  ///< 0..1
    double loss = kUnknown;
    double seconds = kUnknown;
    std::string data;
};

/// A run that did not give all it should.
struct FailureRecord : ShapeRecord {
    std::string what;  ///< "facts", "sweep", "train" and the algorithm
    int exit_code = 0;
    std::string error;
};

/// Everything that `dtrun bench` has found.
struct LabReport {
    static constexpr int kVersion = 1;
    std::string dtrun;    ///< its version
    std::string started;  ///< "2025-01-31 13:45:00 UTC"
    std::string command;  ///< what was typed
    double seconds = 0;   ///< that it took
    bool interrupted = false;
    std::vector<HostRecord> hosts;
    std::vector<CommRecord> comms;
    std::vector<RowRecord> rows;
    std::vector<TrainRecord> train;
    std::vector<FailureRecord> failures;
    std::vector<std::string> skipped;  ///< backends that were not measured, and why: a line each

    /// Whether a result was wrong or a run failed.
    bool failed() const;
};

/// Calls visit("name", member) for every member, in the order of the columns.
template <class Shape, class Visit>
void each_of_shape(Shape& it, Visit visit) {
    visit("backend", it.backend);
    visit("hosts", it.hosts);
    visit("slots_per_host", it.slots_per_host);
    visit("ranks", it.ranks);
}

template <class Row, class Visit>
void each_of_row(Row& it, Visit visit) {
    visit("op", it.op);
    visit("dtype", it.dtype);
    visit("compression", it.compression);
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

template <class Train, class Visit>
void each_of_train(Train& it, Visit visit) {
    visit("algorithm", it.algorithm);
    visit("model", it.model);
    visit("data", it.data);
    visit("epochs", it.epochs);
    visit("global_batch", it.global_batch);
    visit("loss_scale", it.loss_scale);
    visit("step_ms", it.step_ms);
    visit("compute_ms", it.compute_ms);
    visit("comm_ms", it.comm_ms);
    visit("samples_per_s", it.samples_per_s);
    visit("accuracy", it.accuracy);
    visit("loss", it.loss);
    visit("seconds", it.seconds);
}

template <class Failure, class Visit>
void each_of_failure(Failure& it, Visit visit) {
    visit("what", it.what);
    visit("exit_code", it.exit_code);
    visit("error", it.error);
}

/// Takes lines of the rank program, one JSON object each, into a report.
class RecordReader {
public:
    explicit RecordReader(LabReport& report) : report_(report) {}

    /// What a line was. `other` is none of ours: what a library prints.
    enum class Line { host, comm, row, train, error, other };
    /// Errc: invalid_input (looks like one of ours, but cannot be read)
    Result<Line> take(std::string_view line);

    /// Of "error" lines, one a line; empty: none.
    const std::string& errors() const { return errors_; }

private:
    LabReport& report_;
    std::string errors_;
};

/// A report as JSON, one element a line, and back. Errc of parsing: invalid_input, which names what
/// is wrong.
std::string write_json(const LabReport& report);
Result<LabReport> parse_report(std::string_view text, std::string_view name);

/// Foreign text for a terminal or a table: what is neither printable nor a line end becomes a blank,
/// what is no UTF-8 a question mark.
std::string printable(std::string_view text);

}  // namespace dtrun::lab
