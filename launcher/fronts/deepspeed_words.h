#pragma once

#include <optional>
#include <string>

namespace dtrun::fronts {

/// What DeepSpeed's own flags say beyond what Options holds; empty or unset: not given.
struct DeepspeedWords {
    std::optional<int> nodes;  ///< --num_nodes
    std::optional<int> gpus;   ///< --num_gpus
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

}  // namespace dtrun::fronts
