#pragma once

#include "base/result.h"
#include "hostfiles/host.h"
#include "lab/plan/options.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrun::lab {

/// Where ranks may run, as far as the plan has to know it.
struct LabPlaces {
    HostList hosts;             ///< filtered; one if nobody has named any
    bool any_slots = false;     ///< slots of these hosts are no limit: mere names, or this machine
    int slots_default_max = 1;  ///< what the default of --slots goes up to
};

/// One run of the rank program.
struct LabRun {
    enum class Kind { facts, sweep, pairs, train, script };
    Kind kind = Kind::sweep;
    std::string backend;
    std::string
        algorithm;  ///< train, script: "serial", "parallel", a compression, or a name of --algorithms
    std::string
        compress;  ///< script: what dtrun.torch is asked to send gradients as; empty: nothing
    int seed = 1;  ///< train, script
    int hosts = 1;
    int slots = 1;                   ///< ranks on each of them
    std::vector<std::string> words;  ///< of the rank program

    int ranks() const { return hosts * slots; }
    /// Whether it is a program of somebody's, the trainer among them.
    bool is_program() const { return kind == Kind::train || kind == Kind::script; }
};

/// "4..64M:x4", "1K,1M", "512..4K": bytes with K, M and G of 1024; a range grows by the factor
/// behind ":x", else by 2, and has both of its ends.
/// \return rising, each once; or invalid_input that quotes the wrong item
Result<std::vector<std::uint64_t>> parse_sizes(std::string_view text);

/// "25gbit", "100mbit", "2.5Gbit/s": Mbit/s. Errc: invalid_input
Result<double> parse_line_rate(std::string_view text);

/// "95%" or "0.95": above 0, at most 1. Errc: invalid_input
Result<double> parse_accuracy(std::string_view text);

/// An item of --algorithms for a program: "int8", or "8 bits=--bit8-allreduce", whose words are added to the
/// program's.
struct ProgramAlgorithm {
    std::string name;
    std::vector<std::string> words;
    std::string compress;  ///< a format that dtrun.torch is asked for; empty: none
};
/// Errc: invalid_input (no format that dtrun.torch has)
Result<ProgramAlgorithm> parse_program_algorithm(std::string_view item);

/// "64K", "1.5M", "4": a number of bytes in few letters.
std::string short_bytes(double bytes);

/// The run that asks this many hosts for their facts.
/// \param backends  also tried, with one rank on each host; may be empty
LabRun facts_run(const BenchCommand& command, int hosts, const std::vector<std::string>& backends);

/// All runs but facts_run(), in order. Where the command has a program, that is run alone; "{backend}" and "{seed}"
/// in its words are those of the run.
/// \param backends  those of the command, or else those that were found; of a program kOwnBackend
/// \return invalid_input: a shape for which hosts or slots are missing
Result<std::vector<LabRun>> plan_runs(const BenchCommand& command, const LabPlaces& places,
                                      const std::vector<std::string>& backends, bool oversubscribe);

/// Arguments of the dtrun that starts a run, without argv[0].
/// \param hostfile  the user's, at a path that can be read again; empty: none
std::vector<std::string> launch_words(const LabRun& run, const BenchCommand& command,
                                      const std::string& hostfile, const std::string& rank_program);

}  // namespace dtrun::lab
