#pragma once

#include "lab/report/results.h"

namespace dtrun {

using namespace lab;

inline RowRecord row_record(const std::string& backend, int hosts, int slots, std::uint64_t bytes,
                            double time_us, const std::string& compression = "none") {
    RowRecord row;
    row.backend = backend;
    row.hosts = hosts;
    row.slots_per_host = slots;
    row.ranks = hosts * slots;
    row.op = "allreduce";
    row.dtype = "f32";
    row.compression = compression;
    row.bytes = bytes;
    row.count = bytes / 4;
    row.iters = 20;
    row.t_min_us = time_us * 0.95;
    row.t_mean_us = time_us * 1.02;
    row.t_p50_us = time_us;
    row.t_p99_us = time_us * 1.5;
    row.t_max_us = time_us * 2;
    row.algbw_GBps = static_cast<double>(bytes) / time_us / 1e3;
    row.busbw_GBps = row.algbw_GBps * 2 * (row.ranks - 1) / row.ranks;
    row.rel_err = compression == "none" ? 0 : 0.0094;
    return row;
}

inline TrainRecord train_record(const std::string& algorithm, const std::string& backend, int hosts,
                                int slots, double step_ms) {
    TrainRecord run;
    run.algorithm = algorithm;
    run.backend = backend;
    run.hosts = hosts;
    run.slots_per_host = slots;
    run.ranks = hosts * slots;
    run.model = "mlp";
    run.epochs = 3;
    run.global_batch = 256;
    run.step_ms = step_ms;
    run.compute_ms = step_ms * 0.8;
    run.comm_ms = step_ms * 0.2;
    run.samples_per_s = 256'000 / step_ms;
    run.accuracy = 0.98351;
    run.loss = 0.05;
    run.seconds = 73.84;
    run.data = "generated digits";
    return run;
}

/// A run whose accuracy rises by epochs.
inline TrainRecord with_epochs(TrainRecord run, int seed,
                               std::initializer_list<double> accuracies) {
    run.seed = seed;
    run.init_unix_ms = 1'700'000'000'000;
    run.start_unix_ms = run.init_unix_ms + 500;
    for (const double accuracy : accuracies) {
        const int number = static_cast<int>(run.by_epoch.size()) + 1;
        const auto ended = run.start_unix_ms + static_cast<std::uint64_t>(number) * 2'000;
        run.by_epoch.push_back({number, 2.0 * number, accuracy, 1.0 / number, ended, ended + 100});
    }
    run.epochs = static_cast<int>(run.by_epoch.size());
    run.accuracy = run.by_epoch.back().accuracy;
    run.seconds = run.by_epoch.back().seconds;
    return run;
}

/// Every pair of `ranks` ranks on as many hosts; messages from or to the last one are slow.
inline void add_pairs(LabReport& report, int ranks) {
    for (int from = 0; from < ranks; ++from)
        for (int to = 0; to < ranks; ++to) {
            if (from == to) continue;
            PairRecord& pair = report.pairs.emplace_back();
            pair.backend = "gloo";
            pair.hosts = pair.ranks = ranks;
            pair.from = from;
            pair.to = to;
            pair.from_host = "s" + std::to_string(from + 1) + ".example";
            pair.to_host = "s" + std::to_string(to + 1) + ".example";
            const bool is_slow = from == ranks - 1 || to == ranks - 1;
            pair.latency_us = is_slow ? 100 : 25;
            pair.bandwidth_GBps = is_slow ? 0.05 : 0.117;
        }
}

/// Two hosts, two backends, a compression, and training.
inline LabReport lab_report() {
    LabReport report;
    report.dtrun = "0.1.0";
    report.started = "2025-01-31 13:45:00 UTC";
    report.command = "dtrun bench -H s1:2,s2:2";
    report.seconds = 48;
    for (const char* const name : {"s1", "s2"}) {
        HostRecord& host = report.hosts.emplace_back();
        host.name = name;
        host.cpu = "EPYC";
        host.cores = 2;
        host.libraries[0] = "Open MPI 4.1.4";  // of mpi
    }
    CommRecord& comm = report.comms.emplace_back();
    comm.backend = "mpi";
    comm.hosts = 2;
    comm.slots_per_host = 2;
    comm.ranks = 4;
    comm.version = "Open MPI 4.1.4";
    comm.transport = "tcp over eth0";
    comm.details = {{"GPUDirect P2P", "no: no GPU"}};
    for (const int slots : {1, 2})
        for (const std::uint64_t bytes : {1'024u, 1'048'576u}) {
            const double time = 10.0 + static_cast<double>(bytes) / 1e3;
            report.rows.push_back(row_record("mpi", 2, slots, bytes, time));
            report.rows.push_back(row_record("gloo", 2, slots, bytes, time * 3));
            report.rows.push_back(row_record("gloo", 2, slots, bytes, time, "int8"));
        }
    report.train = {train_record("serial", "none", 1, 1, 10),
                    train_record("parallel", "mpi", 1, 2, 6),
                    train_record("parallel", "mpi", 2, 1, 8),
                    train_record("parallel", "mpi", 2, 2, 4), train_record("int8", "mpi", 2, 2, 3)};
    return report;
}

/// How often a text has a part.
inline std::size_t count(std::string_view text, std::string_view part) {
    std::size_t times = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; ++at) ++times;
    return times;
}

}  // namespace dtrun
