#pragma once
// `dtrun torchrun`: torchrun's words become a job of dtrun's.

#include "base/result.h"
#include "launcher/cli/run.h"
#include "launcher/plan/environment.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::frontends {

/// What torchrun's own flags say beyond what Options holds; empty or unset: not given.
struct TorchrunArgs {
    std::string nodes;          ///< --nnodes as written; `shape` has the numbers
    std::string backend;        ///< --rdzv-backend
    std::string endpoint;       ///< --rdzv-endpoint
    std::string endpoint_host;  ///< of that, without brackets
    std::string run_id;         ///< --rdzv-id
    bool standalone = false;
    bool module = false;
    bool no_python = false;
    bool run_path = false;
    std::string log_dir;
    plan::RankOutput::Streams redirects;
    plan::RankOutput::Streams tee;
    std::vector<std::uint32_t> local_ranks;  ///< --local-ranks-filter
    std::optional<int> node_rank;
    std::string master_addr;
    std::optional<int> master_port;
    std::string local_addr;
    std::optional<bool> is_host;                                       ///< --rdzv-conf is_host
    std::optional<std::chrono::milliseconds> join_timeout, last_call;  ///< likewise
    std::vector<std::string> unforwarded;  ///< --signals-to-handle that dtrun does not forward
    std::vector<std::string> unused_conf;  ///< keys of --rdzv-conf that say nothing to dtrun
};

struct ParsedTorchrun : cli::ParsedRun {
    TorchrunArgs own;
};

const cli::FlagTable<ParsedTorchrun>& torchrun_flags();

/// Errc: invalid_input, not_found, denied
Result<cli::RunCommand> parse_torchrun(cli::Words words, plan::EnvironmentView environment);

std::string torchrun_help();

/// "3", or "0:1,11:3" by local rank: bit 0 is standard output, bit 1 standard error.
/// Errc: invalid_input
Result<plan::RankOutput::Streams> parse_streams(std::string_view text);

}  // namespace dtrun::frontends
