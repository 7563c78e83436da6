#pragma once

#include "tests/simulation/ledger.h"
#include "tests/simulation/owned_ledger.h"
#include "tests/simulation/world.h"
#include "worker/client/client.h"

#include <fmt/format.h>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

namespace dtrun {
class Daemon;
}

namespace dtrun::simulation {

class StoreUser;

/// What all programs of a simulation know.
struct Script {
    World& world;
    Ledger& ledger;
    Machine* daemon = nullptr;
    std::string state_directory{};  ///< of the daemon; SQLite's files are on its machine's disk
    std::optional<milliseconds> keep_unused{};  ///< as the daemon's option
    Daemon* served = nullptr;                   ///< the daemon that runs
    bool calm = false;  ///< nothing fails any more, and programs may take their time
    bool over = false;  ///< programs are to come to their end
    OwnedLedger owned{};
    bool disk_flips = false;  ///< bits, so that jobs may be refused
    std::size_t refused = 0;  ///< times that programs were told of a damaged job
    void take(const embedded::Failure& failure);
    std::vector<const StoreUser*> users{};  ///< of all programs, those that were killed among them

    /// A run of a program that another launcher has started: its processes live and die together.
    struct Run {
        std::uint64_t number = 0;
        std::vector<Machine*> machines;
    };
    std::vector<Run> runs{};

    /// Elastic jobs, one after the other: when one has ended, its members begin the next.
    struct Job {
        std::string base;
        std::uint32_t ranks_min = 1, ranks_max = 1;
        double finishes = 0;  ///< how likely a member says that it has finished, at each turn
        std::uint64_t number = 0;

        std::string name() const { return fmt::format("{}.{}", base, number); }
        void end(const std::string& ended) { number += name() == ended ? 1 : 0; }
    };
    std::deque<Job> jobs{};
};

inline constexpr std::uint16_t kPort = 9'100;  ///< of the daemon
Secret daemon_secret();
/// What a program on the process's machine finds of the daemon, and what lets it into a job there.
embedded::Surroundings surroundings(const Script& script, Process& process, const std::string& job);
embedded::ClientCredentials credentials(const std::string& job);

/// `dtrun serve --state DIR`.
void serve(Script& script, Process& process);

/// A rank of another launcher's run, which uses a store of the daemon and meets the others at fences.
void use_store(Script& script, Process& process, std::size_t run, std::uint32_t rank);

/// A member of an elastic job of the daemon, with the library.
void be_member(Script& script, Process& process, Script::Job& job);

/// `dtrun join`: a head, its agent and two ranks of the elastic job, whose requests pass two relays.
void join_host(Script& script, Process& process, Script::Job& job);

/// Reads what is left in every key of every store that is still there.
/// \param is_read  whether that could be done; it must be, unless the disk flips bits
void read_all(Script& script, Process& process, bool& done, bool& is_read);

}  // namespace dtrun::simulation
