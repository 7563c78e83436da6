#pragma once

#include "base/numbered.h"
#include "rendezvous/wire/binding_request.h"
#include "rendezvous/wire/control_messages.h"
#include "rendezvous/wire/job_settings.h"
#include "rendezvous/wire/message.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

// Messages of an agent's start: what the head sends on its standard input, and what the agent
// answers before any rank runs.

namespace dtrun {

/// Time for the command of --health-check to end.
inline constexpr std::chrono::seconds kHealthCheckLimit{60};

/// One of several programs of a job, on consecutive ranks.
struct JobProgram {
    std::vector<std::string> argv;
    std::vector<std::pair<std::string, std::string>> env;  ///< overrides the job's
    std::string directory;                                 ///< as with --wdir; empty: the job's
    std::uint32_t ranks = 0;                               ///< that run it
    std::vector<HostId> hosts;                             ///< where these are

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("argv", m.argv), f("env", m.env), f("directory", m.directory), f("ranks", m.ranks);
        f("hosts", m.hosts);
    }
};

/// Which of the programs a rank runs; 0 where the job has only one.
inline std::size_t program_of(const std::vector<JobProgram>& programs, Rank rank) {
    std::uint64_t next = 0;  // the first rank of the program behind
    for (std::size_t i = 0; i < programs.size(); ++i) {
        next += programs[i].ranks;
        if (std::to_underlying(rank) < next) return i;
    }
    return 0;
}

/// Ranks from `first` to `last`.
struct RankRange {
    std::uint32_t first = 0;
    std::uint32_t last = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("first", m.first), f("last", m.last);
    }
};

/// --wrap: a command by which the program of some ranks is run.
struct Wrap {
    std::vector<RankRange> ranks;    ///< none: all
    std::vector<std::string> words;  ///< "{}": the program and its arguments; without: at the end

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("ranks", m.ranks), f("words", m.words);
    }
};

/// A soft limit of the caller's; base/process/soft_limits.h has the names.
struct ForwardedRlimit {
    std::string name;
    std::uint64_t value = 0;  ///< UINT64_MAX: none

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("name", m.name), f("value", m.value);
    }
};

/// Head -> agent, on the agent's standard input, before anything else. It is a message, and has a member
/// for each thing that an agent must know before it can connect, besides what the user has asked for.
struct AgentConfig : JobSettings {
    std::string job_id;                  ///< 16 bytes
    std::string secret;                  ///< 32 bytes
    HostId host{};                       ///< this host's index in the job
    std::uint64_t agent = 0;             ///< this agent's number: no other of the job has it
    std::string host_name;               ///< what the user calls this host
    std::vector<std::string> addresses;  ///< the head's numeric addresses, the most likely first
    std::uint16_t port = 0;              ///< of the head's rendezvous server
    bool head_is_here = false;           ///< on this machine, and no relay is between
    bool relay = false;                  ///< other hosts' agents will connect to this one
    std::vector<std::string> argv;       ///< the program and its arguments
    std::vector<JobProgram> programs;    ///< if there are several, all; `argv` is the first
    std::vector<std::pair<std::string, std::string>> env;  ///< overrides the host's environment
    std::string directory;            ///< working directory of the ranks; empty: home
    bool directory_required = false;  ///< --wdir: missing is an error, else fall back to home
    std::uint32_t reserve_ports = 0;  ///< how many consecutive free ports to find for the ranks
    bool reserve_everywhere = false;  ///< with `nodes`: on all hosts, not only on the first
    std::uint32_t output_window_bytes = 1u << 20;  ///< most output sent and not yet credited
    std::uint32_t cpus_per_rank = 0;               ///< as given by a scheduler; 0: not known
    std::vector<std::string> contracts;            ///< names; contracts/variables.h knows them
    std::string nodelist;                          ///< the hosts with ranks, in Slurm's notation
    std::string tasks_per_node;                    ///< ranks of these hosts, in the form 4(x2),3
    std::string mpi_job;          ///< MPI's name of the job: the same on all hosts, unguessable
    std::uint32_t ranks_min = 0;  ///< of an elastic job; 0: it is not elastic
    std::uint32_t ranks_max = 0;  ///< of an elastic job
    bool others_go_on = false;    ///< when a rank fails; what it has started ends with it
    std::uint32_t standby = 0;    ///< processes that are kept ready to become ranks
    std::vector<std::string> preload;  ///< Python modules that these import
    BindingRequest binding;            ///< which processors ranks are to have
    std::vector<Wrap> wraps;           ///< the first is the outermost
    TerminalSize terminal_size{};      ///< of the rank that has a terminal
    HostId debug_host{};               ///< of the rank that waits for a debugger
    std::string store_socket;          ///< as Welcome's; empty: the head is elsewhere
    std::uint32_t store_by_tcp =
        0;  ///< how many ranks, the first, may ask the head's store at its port
    std::vector<ForwardedRlimit> limits;  ///< for the ranks of hosts other than the caller's
    /// For agents that a scheduler starts, which all get the same configuration: names of the job's
    /// hosts by index. The agent finds itself there and sets `host`, `agent`, `host_name`,
    /// `reserve_ports`, `binding.ranks` and `relay`. If there are more hosts than `tree_threshold`,
    /// `relays` follows.
    std::vector<std::string> nodes;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        JobSettings::fields(m, f);
        f("job", m.job_id), f("secret", m.secret), f("host", m.host), f("host_name", m.host_name);
        f("agent", m.agent), f("addresses", m.addresses), f("port", m.port), f("relay", m.relay);
        f("head_is_here", m.head_is_here);
        f("argv", m.argv), f("programs", m.programs), f("env", m.env);
        f("directory", m.directory), f("directory_required", m.directory_required);
        f("reserve_ports", m.reserve_ports), f("reserve_everywhere", m.reserve_everywhere);
        f("output_window_bytes", m.output_window_bytes), f("cpus_per_rank", m.cpus_per_rank);
        f("contracts", m.contracts), f("nodelist", m.nodelist);
        f("tasks_per_node", m.tasks_per_node), f("mpi_job", m.mpi_job);
        f("ranks_min", m.ranks_min), f("ranks_max", m.ranks_max);
        f("others_go_on", m.others_go_on), f("standby", m.standby), f("preload", m.preload);
        f("binding", m.binding), f("wraps", m.wraps), f("terminal_size", m.terminal_size);
        f("debug_host", m.debug_host), f("limits", m.limits), f("nodes", m.nodes);
        f("store_socket", m.store_socket), f("store_by_tcp", m.store_by_tcp);
    }
};

/// Address at which one relay listens for the agents behind it.
struct RelayAddress {
    HostId host{};
    std::string address;  ///< numeric
    std::uint16_t port = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("host", m.host), f("address", m.address), f("port", m.port);
    }
};

/// Head -> agents that a scheduler started, on their standard input, when the relays have joined.
/// An agent whose relay is not listed connects to the head.
struct Relays {
    std::vector<RelayAddress> relays;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("relays", m.relays);
    }
};

/// Why a host cannot run the program, found before any rank is started.
enum class HostProblem : std::uint8_t {
    none,
    program_missing,
    not_executable,
    directory_missing,
    mpi,
    other,
    unhealthy,  ///< --health-check has not ended well
    binding     ///< it has not the processors or GPUs that ranks are to be bound to
};

struct Join {
    HostId host{};
    std::string hostname;  ///< what the host calls itself
    std::int64_t agent_pid = 0;
    std::string address;                 ///< numeric address by which this host reached the head
    std::string interface;               ///< network interface that holds `address`
    std::vector<std::string> addresses;  ///< of all its interfaces, `address` first; numeric
    std::uint16_t free_port = 0;   ///< the first of the reserved ports, if some were requested
    std::uint16_t relay_port = 0;  ///< port at which it listens for the agents behind it
    std::string directory;         ///< where the ranks will run
    std::string machine;  ///< equal for two agents of one machine, or container; empty: not known
    HostProblem problem = HostProblem::none;
    std::string problem_text;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("host", m.host), f("hostname", m.hostname), f("agent_pid", m.agent_pid);
        f("address", m.address), f("interface", m.interface), f("free_port", m.free_port),
            f("relay_port", m.relay_port), f("addresses", m.addresses);
        f("directory", m.directory), f("machine", m.machine), f("problem", m.problem),
            f("problem_text", m.problem_text);
    }
};

/// Addresses at which rank 0's host listens; other hosts try them before any rank starts.
struct Probe {
    std::vector<std::string> addresses;  ///< numeric
    std::uint16_t port = 0;
    std::uint32_t timeout_ms = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("addresses", m.addresses), f("port", m.port), f("timeout_ms", m.timeout_ms);
    }
};

struct Reached {
    std::vector<std::string> addresses;  ///< those of the probe that answered
    std::string why;                     ///< why the others did not answer

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("addresses", m.addresses), f("why", m.why);
    }
};

}  // namespace dtrun
