#pragma once

#include "base/log.h"
#include "base/numbered.h"
#include "rendezvous/wire/heartbeat.h"
#include "rendezvous/wire/modes.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// What the user asks of a job and its agents are told as it is. The launcher's options and the configuration of an agent
// both are JobSettings, so that a wish is copied by assignment.

namespace dtrun {

/// Who gets dtrun's standard input. The others read end of file at once.
struct StdinTarget {
    enum class Kind : std::uint8_t { none, all, rank };
    Kind kind = Kind::rank;
    int rank = 0;  ///< with Kind::rank

    bool includes(Rank other) const {
        return kind == Kind::all ||
               (kind == Kind::rank && std::cmp_equal(rank, std::to_underlying(other)));
    }
    bool operator==(const StdinTarget&) const = default;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("kind", m.kind), f("rank", m.rank);
    }
};

/// What torch and its elastic agent are to find.
struct TorchSettings {
    TorchStore torch_store = TorchStore::agent;  ///< --store; proxy by default with --encrypt
    std::string role = "default";                ///< TORCHELASTIC's ROLE_NAME
    std::string run_id;                          ///< TORCHELASTIC_RUN_ID; empty: the job's id
    int max_restarts = 0;  ///< --max-restarts: how often a failed rank makes all start again

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("torch_store", m.torch_store), f("role", m.role), f("run_id", m.run_id);
        f("max_restarts", m.max_restarts);
    }
};

/// How one looks into ranks.
struct LookSettings {
    std::optional<int> pty;         ///< --pty: the rank that has a terminal, and reads ours
    std::optional<int> debug_rank;  ///< --debug-rank: it waits for a debugger
    Debugger debugger = Debugger::automatic;  ///< with it
    bool kill_hung = false;  ///< --on-hang kill: a rank whose section takes too long is killed

    bool has_terminal(Rank rank) const {
        return pty && std::cmp_equal(*pty, std::to_underlying(rank));
    }
    bool is_debugged(Rank rank) const {
        return debug_rank && std::cmp_equal(*debug_rank, std::to_underlying(rank));
    }
    /// Whoever waits for one that is debugged does not hang.
    bool kills_hung() const { return kill_hung && !debug_rank; }

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("pty", m.pty), f("debug_rank", m.debug_rank), f("debugger", m.debugger);
        f("kill_hung", m.kill_hung);
    }
};

struct JobSettings : TorchSettings, LookSettings {
    static constexpr std::chrono::milliseconds kConnectTimeout{10'000};

    bool encrypt = false;  ///< --encrypt: every connection of dtrun's between hosts
    std::vector<std::string> network_interfaces;  ///< --network-interfaces; empty: any
    /// --connect-timeout, for each host: name look-up, connection, log-in and start of the agent.
    std::chrono::milliseconds connect_timeout = kConnectTimeout;
    /// --heartbeat-timeout: a host that is silent for so long is lost. At least one second.
    std::chrono::milliseconds heartbeat_timeout{kHeartbeatTimeout};
    std::chrono::milliseconds grace{5'000};  ///< --grace: from SIGTERM to SIGKILL; 0: KILL at once
    int tree_threshold = 256;  ///< --tree-threshold: with more hosts, some agents relay for others
    log::Level verbosity = log::Level::normal;  ///< --quiet, --verbose, --debug
    std::string health_check;  ///< --health-check: run on each host before it joins; empty: none
    StdinTarget stdin_target;  ///< --stdin
    MpiMode mpi = MpiMode::automatic;  ///< --mpi: by what MPI libraries find their places
    bool horovod_shim = false;  ///< --horovod-shim: dtrun's package `horovod` before all others
    bool rank_macros = false;   ///< ${rank} and its like in the program's arguments are replaced

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        TorchSettings::fields(m, f), LookSettings::fields(m, f);
        f("encrypt", m.encrypt), f("interfaces", m.network_interfaces);
        f("connect_timeout_ms", m.connect_timeout), f("heartbeat_timeout_ms", m.heartbeat_timeout);
        f("grace_ms", m.grace), f("tree_threshold", m.tree_threshold);
        f("log_level", m.verbosity), f("health_check", m.health_check);
        f("stdin", m.stdin_target), f("mpi", m.mpi), f("horovod_shim", m.horovod_shim);
        f("rank_macros", m.rank_macros);
    }
};

}  // namespace dtrun
