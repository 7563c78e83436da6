#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::lab {

/// `dtrun bench`: what to measure and where to write it, a member for each flag. Hosts and how they are
/// reached are in Options.
struct BenchCommand {
    // The sweep: every backend on every number of hosts with every number of ranks on each.
    std::vector<std::string> backends;  ///< --backends; empty: those that every host has
    std::vector<int> hosts;             ///< --hosts; empty: 1, 2, 4, ... and all
    std::vector<int> slots;             ///< --slots; empty: 1, 2, 4, ... and all of a host

    // What is measured in each of these shapes.
    bool sweep = true;  ///< --no-sweep: nothing but --train and --pairs
    std::vector<std::string> ops{"allreduce"};
    std::vector<std::uint64_t> sizes;  ///< bytes, rising; empty: 1K..16M:x4
    std::vector<std::string> dtypes{"f32"};
    std::vector<std::string> compress;  ///< empty: none; in training none, fp16 and int8
    std::optional<int> iters;           ///< unset: as many as `seconds` has room for
    std::optional<int> warmup;          ///< unset: the rank program's own number
    std::optional<std::chrono::milliseconds> seconds;  ///< of one row; unset: about 40 s for all
    bool check = true;                                 ///< --no-check: results are not looked at
    bool compress_auto = false;  ///< --compress-auto: only where a program would do it by default
    bool in_place = false;       ///< --in-place: operations that can are measured in place, too

    // Messages between two ranks, for every pair of them.
    enum class Pairs { none, hosts, ranks };
    Pairs pairs = Pairs::none;  ///< --pairs: one rank on each host, or all

    // Somebody's program, which is measured instead of all that.
    std::vector<std::string> program;  ///< behind "--"
    std::string program_text;          ///< the same, as a shell would take it
    std::string step_regex;            ///< --step-regex, as typed; empty: it tells of its steps
    std::string accuracy_regex;        ///< --accuracy-regex, as typed; empty: the usual ways

    // Training.
    bool train = false;
    std::vector<std::string>
        algorithms;  ///< besides serial; empty: parallel and those of `compress`, of a program parallel
    std::string data;  ///< folder with MNIST's files on every host; empty: generated digits
    int epochs = 3;
    std::string model = "mlp";
    std::string python = "python3";   ///< --python: on every host, with PyTorch
    std::optional<int> global_batch;  ///< unset: 256 in training, and not known of a program
    int seed = 1;
    int seeds = 1;  ///< every training is done with this many, from `seed`
    std::vector<std::string>
        scaling;                 ///< strong and weak; empty: strong, of a program by its batches
    double target_accuracy = 0;  ///< 0..1; 0: none
    std::string loss_scale;      ///< as typed; empty: 1

    // Reports: files, "-" is standard output; empty: none.
    std::string csv;
    std::string json;
    std::string markdown;
    std::string html;
    std::string title;          ///< --title: of the page and of the Markdown
    bool chinese = false;       ///< --lang zh: the words of reports
    double line_rate_mbit = 0;  ///< --line-rate: of the network between hosts; 0: as hosts tell
    bool explain = false;       ///< which transport each communicator has, and why

    std::string from;                ///< --from: a report that is written again; nothing is run
    bool compare = false;            ///< compares two reports and runs nothing
    std::vector<std::string> files;  ///< the two reports

    std::vector<std::string> launch;  ///< flags for the dtrun that starts ranks, as given
    std::string rank_program;         ///< on every host; empty: the one that belongs to this dtrun
    std::optional<std::chrono::milliseconds> timeout;  ///< --timeout: longest silence of a run
};

}  // namespace dtrun::lab
