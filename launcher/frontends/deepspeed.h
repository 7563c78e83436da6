#pragma once
// `dtrun deepspeed`: the words of DeepSpeed's runner become a job of dtrun's.

#include "base/result.h"
#include "launcher/cli/run.h"
#include "launcher/plan/environment.h"

#include <optional>
#include <string>

namespace dtrun::frontends {

/// What DeepSpeed's own flags say beyond what Options holds; empty or unset: not given.
struct DeepspeedWords {
    std::optional<int> nodes;  ///< --num_nodes; of MIN:MAX the latter
    std::optional<int> gpus;   ///< --num_gpus
    bool elastic = false;      ///< --elastic_training, or --num_nodes MIN:MAX
    std::optional<int> nodes_min,
        nodes_max;  ///< --min_elastic_nodes, --max_elastic_nodes, or likewise
    std::string master_addr;
    std::optional<int> master_port;
    int node_rank = -1;
    std::string launcher;
    bool module = false;
    bool no_python = false;
    bool no_local_rank = false;
    bool no_ssh = false;
    bool save_pid = false;
    std::string rank_logs;  ///< --enable_each_rank_log
    std::string venv_script;
};

struct ParsedDeepspeed : cli::ParsedRun {
    DeepspeedWords own;
};

const cli::FlagTable<ParsedDeepspeed>& deepspeed_flags();

/// Reads .deepspeed_env too, and looks which Python PATH has and whether DeepSpeed's usual hostfile
/// is there.
/// Errc: invalid_input, not_found, denied
Result<cli::RunCommand> parse_deepspeed(cli::Words words, plan::EnvironmentView environment);

std::string deepspeed_help();

}  // namespace dtrun::frontends
