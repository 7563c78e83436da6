#pragma once

#include <string_view>

namespace dtrun::agent {

/// How an agent is called to be a rank of `dtrun demo`, a program that every host has by then.
inline constexpr std::string_view kDemoRank = "--demo-rank";

/// Says which rank this is and where, meets the others, and uses the job's store; rank 0 says how long that took.
/// \return the process's exit status
int run_demo_rank();

}  // namespace dtrun::agent
