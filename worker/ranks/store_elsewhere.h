#pragma once

#include "rendezvous/wire/rank_messages.h"
#include "worker/ranks/rank_runner.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace dtrun::ranks {

/// Where a process below a rank looks for torch's store, if that is not where the rank was told to: a launcher
/// within it has replaced MASTER_ADDR or MASTER_PORT, and has left TORCHELASTIC_USE_AGENT_STORE as it was. Torch
/// then takes somebody else to serve the store at that address, and nobody does.
/// \param rank, process  environments, as environment_of() has them
/// \return "ADDRESS:PORT"
std::optional<std::string> store_elsewhere(const std::string& rank, const std::string& process);

/// Whether a process seems to try an address of its own program's choice (tcp://...), of which its environment
/// tells nothing: it has torch, sleeps just as torch does between two attempts to connect, by the clock and for the
/// time of its client, and nothing on its host is connected to the store at MASTER_PORT; nor has it other libraries by
/// which ranks meet. A program that merely sleeps is none: neither Python's time.sleep() nor a longer one looks so.
/// \param environment  its own
bool seems_to_look_elsewhere(pid_t process, const std::string& environment);

/// How many processes the world of a torchrun within a rank has, if that world is of one host: other ranks, which run the
/// same, then have worlds of their own.
/// \param rank, process  environments
std::optional<std::uint32_t> own_world(const std::string& rank, const std::string& process);

/// Ranks below which there are such processes, for the report of a job that ends.
std::vector<RankWait> waits_elsewhere(std::span<const RunningRank> ranks);

/// What programs below ranks do that are launchers themselves.
struct Nested {
    /// Ranks below which torch waits, right now, at an address where nobody is.
    std::vector<RankWait> waits{};
    std::string note{};  ///< of a world of rank 0 alone; empty: none was seen
};
Nested look_for_nested(std::span<const RunningRank> ranks);

}  // namespace dtrun::ranks
