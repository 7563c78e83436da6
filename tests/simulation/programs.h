#pragma once

#include "tests/simulation/ledger.h"
#include "tests/simulation/world.h"
#include "worker/client/client.h"

#include <cstdint>
#include <memory>
#include <string>

namespace dtrun::simulation {

/// What all programs of a simulation know.
struct Script {
    World& world;
    Ledger& ledger;
    Machine* daemon = nullptr;
    std::string
        state_directory{};      ///< of the daemon; SQLite's files there are on its machine's disk
    bool over = false;          ///< programs are to come to their end
    std::uint64_t running = 0;  ///< programs of users that have not ended well

    /// A run of a program that another launcher has started: its processes live and die together.
    struct Run {
        std::uint64_t number = 0;
        std::vector<Machine*> machines;
    };
    std::vector<Run> runs{};
    std::uint32_t members_min = 1, members_max = 1;
};

inline constexpr std::uint16_t kPort = 9'100;  ///< of the daemon
Secret daemon_secret();

/// `dtrun serve --state DIR`.
void serve(Script& script, Process& process);

/// A rank of another launcher's run, which uses a store of the daemon and meets the others at fences.
void use_store(Script& script, Process& process, std::size_t run, std::uint32_t rank);

/// A member of an elastic job of the daemon, with the library.
void be_member(Script& script, Process& process);

/// `dtrun join`: a head, its agent and two ranks of the elastic job, whose requests pass two relays.
void join_host(Script& script, Process& process);

/// Reads what is left in every key of every store that is still there.
void read_all(Script& script, Process& process, bool& done);

}  // namespace dtrun::simulation
