#pragma once

#include "base/ids.h"
#include "base/result.h"
#include "rendezvous/frame.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace dtrun {

// The payloads of frames, as MessagePack maps from field name to value. Unknown fields are ignored,
// missing ones keep the default written here. `fields` is the one place that names them; encode()
// and decode() are made from it.

/// Version of this protocol; both sides must have the same.
inline constexpr std::uint16_t kProtocolVersion = 3;

inline constexpr std::chrono::milliseconds kHeartbeatInterval{500};

/// "No rank" or "not known", where a rank is named.
inline constexpr std::uint32_t kNoRank = 0xffff'ffff;

/// Which standard input a rank gets.
enum class InputTarget : std::uint8_t { none, all, one };

/// Who serves torch's store.
enum class TorchStore : std::uint8_t {
    agent,  ///< the agent of rank 0's host, to the job's hosts
    rank0,  ///< rank 0 itself
    proxy,  ///< every agent on loopback, for the job's own store
};

/// By what MPI libraries find their ranks' places.
enum class MpiMode : std::uint8_t {
    automatic,  ///< pmix and pmi, whichever a rank asks for
    pmix,       ///< Open MPI and others over PMIx
    pmi1,       ///< MPICH, Intel MPI, MVAPICH over PMI-1
    pmi2,       ///< the same libraries, built for PMI-2
    none,       ///< nothing: MPI programs run each alone
};

/// Head -> agent, on the agent's standard input, before anything else.
struct Bootstrap {
    std::string job_id;                  ///< 16 bytes
    std::string secret;                  ///< 32 bytes
    std::uint32_t host = 0;              ///< this host's index in the job
    std::string host_name;               ///< what the user calls this host
    std::vector<std::string> addresses;  ///< numeric; the head's, best guess first
    std::uint16_t port = 0;              ///< of the head's rendezvous server
    std::uint32_t connect_timeout_ms = 10'000;
    std::uint32_t grace_ms = 5'000;                        ///< from TERM to KILL
    std::vector<std::string> argv;                         ///< the program and its arguments
    std::vector<std::pair<std::string, std::string>> env;  ///< over the host's own environment
    std::string directory;                ///< working directory of the ranks; empty: home
    bool directory_required = false;      ///< --wdir: missing is an error, else fall back to home
    std::vector<std::string> interfaces;  ///< --network-interfaces; empty: found out
    std::uint32_t reserve_ports = 0;      ///< free ports in a row to find for the ranks
    bool reserve_everywhere = false;      ///< with `nodes`: not only on the first
    std::uint32_t output_window_bytes = 1u << 20;  ///< output that may be under way, uncredited
    InputTarget input = InputTarget::none;
    std::uint32_t input_rank = 0;                ///< for InputTarget::one
    std::uint8_t log_level = 1;                  ///< log::Level
    bool encrypt = false;                        ///< every connection of the job between hosts
    bool relay = false;                          ///< other hosts' agents will connect to this one
    std::uint32_t heartbeat_timeout_ms = 3'000;  ///< silence after which a peer is lost
    std::uint32_t cpus_per_rank = 0;             ///< that a scheduler gave; 0: not known
    std::vector<std::string> contracts;          ///< names; contracts/variables.h knows them
    std::string nodelist;                        ///< the hosts with ranks, in Slurm's notation
    std::string tasks_per_node;                  ///< and their ranks, as 4(x2),3
    TorchStore torch_store = TorchStore::agent;
    MpiMode mpi = MpiMode::automatic;
    std::string mpi_job;  ///< names the job to MPI; the same on all hosts, and not to be guessed
    std::uint32_t max_restarts = 0;
    std::string role = "default";  ///< torchrun's --role
    std::string run_id;            ///< torchrun's --rdzv-id; empty: the job's id
    bool rank_macros = false;      ///< ${rank}, ${local_rank} and so on in argv are replaced
    /// Of agents that a scheduler starts, which all get the same bootstrap: names of the job's hosts
    /// by index. The agent finds itself, and with it `host`, `host_name`, `reserve_ports` and `relay`.
    std::vector<std::string> nodes;
    std::uint32_t tree_threshold = 0;  ///< with `nodes`: with more hosts, `relays` follows

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("job", m.job_id), f("secret", m.secret), f("host", m.host), f("host_name", m.host_name);
        f("addresses", m.addresses), f("port", m.port),
            f("connect_timeout_ms", m.connect_timeout_ms);
        f("grace_ms", m.grace_ms), f("argv", m.argv), f("env", m.env), f("directory", m.directory);
        f("directory_required", m.directory_required), f("interfaces", m.interfaces);
        f("reserve_ports", m.reserve_ports);
        f("reserve_everywhere", m.reserve_everywhere),
            f("output_window_bytes", m.output_window_bytes);
        f("input", m.input), f("input_rank", m.input_rank), f("log_level", m.log_level);
        f("encrypt", m.encrypt), f("relay", m.relay);
        f("heartbeat_timeout_ms", m.heartbeat_timeout_ms), f("cpus_per_rank", m.cpus_per_rank);
        f("contracts", m.contracts), f("nodelist", m.nodelist);
        f("tasks_per_node", m.tasks_per_node), f("torch_store", m.torch_store);
        f("mpi", m.mpi), f("mpi_job", m.mpi_job), f("max_restarts", m.max_restarts);
        f("role", m.role);
        f("run_id", m.run_id), f("rank_macros", m.rank_macros);
        f("nodes", m.nodes), f("tree_threshold", m.tree_threshold);
    }
    static constexpr FrameType kType = FrameType::bootstrap;
};

/// Where one relay waits for the agents behind it.
struct RelayAddress {
    std::uint32_t host = 0;
    std::string address;  ///< numeric
    std::uint16_t port = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("host", m.host), f("address", m.address), f("port", m.port);
    }
};

/// Head -> agents that a scheduler started, on their standard input, when the relays have joined. Who
/// misses its relay in it connects to the head.
struct Relays {
    std::vector<RelayAddress> relays;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("relays", m.relays);
    }
    static constexpr FrameType kType = FrameType::relays;
};

/// Why a host cannot run the program, found before any rank is started.
enum class HostProblem : std::uint8_t {
    none,
    program_missing,
    not_executable,
    directory_missing,
    mpi,
    other
};

struct Join {
    std::uint32_t host = 0;
    std::string hostname;  ///< what the host calls itself
    std::int64_t agent_pid = 0;
    std::string address;                 ///< numeric address by which this host reached the head
    std::string interface;               ///< network interface that holds `address`
    std::vector<std::string> addresses;  ///< of all its interfaces, `address` first; numeric
    std::uint16_t free_port = 0;         ///< the first of those reserved, when asked for
    std::uint16_t relay_port = 0;        ///< where it waits for the agents behind it
    std::string directory;               ///< where the ranks will run
    HostProblem problem = HostProblem::none;
    std::string problem_text;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("host", m.host), f("hostname", m.hostname), f("agent_pid", m.agent_pid);
        f("address", m.address), f("interface", m.interface), f("free_port", m.free_port),
            f("relay_port", m.relay_port), f("addresses", m.addresses);
        f("directory", m.directory), f("problem", m.problem), f("problem_text", m.problem_text);
    }
    static constexpr FrameType kType = FrameType::join;
};

/// One rank's place; the words are those of DESIGN and of Horovod.
struct RankSlot {
    std::uint32_t rank = 0;
    std::uint32_t local_rank = 0;
    std::uint32_t cross_rank = 0;
    std::uint32_t cross_size = 0;
    std::uint32_t slot = 0;  ///< id of the slot on its host

    bool operator==(const RankSlot&) const = default;
    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("rank", m.rank), f("local_rank", m.local_rank), f("cross_rank", m.cross_rank);
        f("cross_size", m.cross_size), f("slot", m.slot);
    }
};

/// One host that has ranks, for contracts that name all of them.
struct NodePlace {
    std::string address;     ///< numeric
    std::uint16_t port = 0;  ///< the first of its free ones, of which it has one for each rank
    std::uint32_t ranks = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("address", m.address), f("port", m.port), f("ranks", m.ranks);
    }
};

/// A part of where all ranks are, in order: the next `ranks` on host `first_node`, as many on the one
/// after it, and so on for `nodes` hosts. After the last part the first begins again, until every rank
/// has its host. This is also how PMI writes it.
struct RankBlock {
    std::uint32_t first_node = 0;  ///< node_rank
    std::uint32_t nodes = 0;
    std::uint32_t ranks = 0;  ///< on each

    bool operator==(const RankBlock&) const = default;
    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("first_node", m.first_node), f("nodes", m.nodes), f("ranks", m.ranks);
    }
};

/// What the ranks of one host are told of a generation.
struct Assign {
    std::uint64_t generation = 0;
    std::uint32_t world_size = 0;
    std::uint32_t node_rank = 0;  ///< this host's index among the hosts that have ranks
    std::uint32_t node_count = 0;
    std::string master_address;  ///< numeric address of rank 0's host, reached by its peers
    std::uint16_t master_port = 0;
    std::vector<RankSlot> ranks;          ///< of this host, in order of local_rank
    std::uint32_t ranks_below = 0;        ///< of this host and of all behind it
    std::vector<std::string> peers;       ///< to rank 0's host: addresses of the job's hosts
    std::vector<NodePlace> nodes;         ///< by node_rank; only where a contract needs them
    std::vector<std::string> node_names;  ///< by node_rank
    std::vector<RankBlock> rank_map;      ///< where all ranks are

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation), f("world_size", m.world_size), f("node_rank", m.node_rank);
        f("node_names", m.node_names), f("rank_map", m.rank_map);
        f("ranks_below", m.ranks_below);
        f("node_count", m.node_count), f("master_address", m.master_address);
        f("master_port", m.master_port), f("ranks", m.ranks), f("peers", m.peers);
        f("nodes", m.nodes);
    }
    static constexpr FrameType kType = FrameType::assign;
};

struct RankPid {
    std::uint32_t rank = 0;
    std::int64_t pid = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("rank", m.rank), f("pid", m.pid);
    }
};

struct Started {
    std::uint64_t generation = 0;
    std::vector<RankPid> ranks;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation), f("ranks", m.ranks);
    }
    static constexpr FrameType kType = FrameType::started;
};

/// How far a rank has come with MPI.
enum class MpiUse : std::uint8_t {
    none,
    initialized,  ///< MPI_Init has begun
    finalized,
    aborted,  ///< it has called MPI_Abort
};

struct Exited {
    std::uint64_t generation = 0;
    std::uint32_t rank = 0;
    std::int64_t pid = 0;          ///< 0: it could not be started, see `error`
    std::int32_t code = 0;         ///< exit status, when `signal` is 0; or what MPI_Abort was told
    std::int32_t signal = 0;       ///< that ended it
    std::int32_t sent_signal = 0;  ///< the last signal that dtrun sent to end it; 0: none
    bool out_of_memory = false;    ///< the kernel's OOM killer was at work
    bool core_dumped = false;
    std::int64_t ran_ns = 0;  ///< from its start to its end
    std::string error;        ///< why it could not be started
    std::string traceback;    ///< that it has left in TORCHELASTIC_ERROR_FILE, at most 1 MiB
    MpiUse mpi = MpiUse::none;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation), f("rank", m.rank), f("pid", m.pid), f("code", m.code);
        f("signal", m.signal), f("sent_signal", m.sent_signal), f("out_of_memory", m.out_of_memory);
        f("core_dumped", m.core_dumped), f("ran_ns", m.ran_ns), f("error", m.error);
        f("traceback", m.traceback), f("mpi", m.mpi);
    }
    static constexpr FrameType kType = FrameType::exited;
};

/// Which of a rank's two outputs.
enum class Stream : std::uint8_t { out, err };

struct OutputEnd {
    std::uint32_t rank = 0;
    Stream stream = Stream::out;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("rank", m.rank), f("stream", m.stream);
    }
    static constexpr FrameType kType = FrameType::output_end;
};

struct Credit {
    std::uint64_t bytes = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("bytes", m.bytes);
    }
    static constexpr FrameType kType = FrameType::credit;
};

struct Input {
    std::string bytes;  ///< empty: end of input

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("bytes", m.bytes);
    }
    static constexpr FrameType kType = FrameType::input;
};

struct InputCredit {
    std::uint64_t bytes = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("bytes", m.bytes);
    }
    static constexpr FrameType kType = FrameType::input_credit;
};

struct SignalRanks {
    std::int32_t signal = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("signal", m.signal);
    }
    static constexpr FrameType kType = FrameType::signal;
};

/// Ends everything on the host: `signal` now, KILL after `grace_ms`, then `done`.
struct Stop {
    std::int32_t signal = 15;
    std::uint32_t grace_ms = 0;
    std::string why;            ///< from a daemon: what ended the job
    bool by_scheduler = false;  ///< which may just be sending `signal` to every process itself

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("signal", m.signal), f("grace_ms", m.grace_ms), f("why", m.why);
        f("by_scheduler", m.by_scheduler);
    }
    static constexpr FrameType kType = FrameType::stop;
};

struct Done {
    std::uint32_t strays = 0;  ///< processes that the ranks had left behind and that were ended

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("strays", m.strays);
    }
    static constexpr FrameType kType = FrameType::done;
};

struct Refuse {
    std::string reason;
    bool later = false;  ///< the same may be tried again in a while

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("reason", m.reason), f("later", m.later);
    }
    static constexpr FrameType kType = FrameType::refuse;
};

/// A rank's first words to its agent, over the socket that DTRUN_SOCKET names.
struct Hello {
    std::uint16_t protocol = kProtocolVersion;
    std::uint32_t rank = kNoRank;  ///< kNoRank: a helper of some rank, which only uses the store
    std::uint64_t generation = 0;  ///< that it was started in; 0: the current one
    std::int64_t pid = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("protocol", m.protocol), f("rank", m.rank), f("generation", m.generation);
        f("pid", m.pid);
    }
    static constexpr FrameType kType = FrameType::hello;
};

/// What a rank is told of itself.
struct Welcome {
    std::string job;  ///< hexadecimal id
    std::uint64_t generation = 0;
    std::uint32_t rank = kNoRank;
    std::uint32_t world_size = 0;
    std::uint32_t local_rank = 0;
    std::uint32_t local_size = 0;
    std::uint32_t cross_rank = 0;
    std::uint32_t cross_size = 0;
    std::uint32_t node_rank = 0;
    std::uint32_t node_count = 0;
    std::string host_name;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("job", m.job), f("generation", m.generation), f("rank", m.rank);
        f("world_size", m.world_size), f("local_rank", m.local_rank), f("local_size", m.local_size);
        f("cross_rank", m.cross_rank), f("cross_size", m.cross_size), f("node_rank", m.node_rank);
        f("node_count", m.node_count), f("host_name", m.host_name);
    }
    static constexpr FrameType kType = FrameType::welcome;
};

/// The connection of a store's client has ended: what it waits for is forgotten.
struct Gone {
    std::uint64_t client = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("client", m.client);
    }
    static constexpr FrameType kType = FrameType::gone;
};

struct FenceEntry {
    std::uint32_t rank = 0;
    std::string bytes;

    bool operator==(const FenceEntry&) const = default;
    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("rank", m.rank), f("bytes", m.bytes);
    }
};

/// Arrivals at one fence: of one rank, or summed over everybody below a relay.
struct Fence {
    std::uint64_t generation = 0;
    std::string name;         ///< at most kNameBytesMax
    std::uint64_t round = 0;  ///< how often every rank has been at a fence of this name before
    std::uint32_t ranks = 1;  ///< that have arrived
    std::vector<FenceEntry> entries;  ///< of those that brought bytes; a rank's own is the only one

    static constexpr std::size_t kNameBytesMax = 1'024;
    /// Of all ranks' entries together, as MessagePack.
    static constexpr std::size_t kBytesMax = 12u << 20;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation), f("name", m.name), f("round", m.round), f("ranks", m.ranks);
        f("entries", m.entries);
    }
    static constexpr FrameType kType = FrameType::fence;
};

/// A rank's deadline has passed. It still waits for `fenced`, which says what holds for all.
struct Unfence {
    std::uint64_t generation = 0;
    std::string name;
    std::uint64_t round = 0;
    std::string why;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation), f("name", m.name), f("round", m.round), f("why", m.why);
    }
    static constexpr FrameType kType = FrameType::unfence;
};

/// The end of a fence, the same for every rank.
struct Fenced {
    std::uint64_t generation = 0;
    std::string name;
    std::uint64_t round = 0;
    bool complete = false;
    std::string why;                  ///< it failed
    std::vector<FenceEntry> entries;  ///< by rank

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation), f("name", m.name), f("round", m.round);
        f("complete", m.complete), f("why", m.why), f("entries", m.entries);
    }
    static constexpr FrameType kType = FrameType::fenced;
};

/// A rank that another launcher has numbered has come to a fence of its kind, or gives it up; `fenced`
/// of generation 0 says how it has ended.
struct GroupFence {
    std::uint64_t client = 0;  ///< as in requests: who it is after a reconnect
    std::string group;         ///< what the launcher calls the run; may be empty
    std::string name;          ///< at most Fence::kNameBytesMax
    std::uint64_t round = 0;   ///< how often it has been at a fence of this name before
    std::uint32_t rank = 0;
    std::uint32_t ranks = 0;          ///< of the group
    std::vector<FenceEntry> entries;  ///< what it brings; one, or none
    std::string why;                  ///< not empty: it has waited long enough, and the fence fails

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("client", m.client), f("group", m.group), f("name", m.name), f("round", m.round);
        f("rank", m.rank), f("ranks", m.ranks), f("entries", m.entries), f("why", m.why);
    }
    static constexpr FrameType kType = FrameType::group_fence;
};

struct RankProgress {
    std::uint32_t rank = kNoRank;
    std::uint64_t step = 0;  ///< whatever the program counts; grows

    bool operator==(const RankProgress&) const = default;
    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("rank", m.rank), f("step", m.step);
    }
    static constexpr FrameType kType = FrameType::progress;
};

/// Something that ranks may want to know.
struct Event {
    enum class Kind : std::uint8_t {
        membership = 1,  ///< a new generation is coming: this one's ranks will be ended
        shutdown = 2,    ///< the job is being ended: SIGTERM comes now, SIGKILL after `grace_ms`
    };
    Kind kind = Kind::membership;
    std::uint64_t generation = 0;  ///< that is coming, or that ends
    std::uint32_t grace_ms = 0;
    std::string why;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("kind", m.kind), f("generation", m.generation), f("grace_ms", m.grace_ms);
        f("why", m.why);
    }
    static constexpr FrameType kType = FrameType::event;
};

/// Sent every kHeartbeatInterval, whatever else is sent; any frame is a sign of life.
struct Heartbeat {
    std::uint32_t reporting = 0;  ///< ranks below that count steps
    RankProgress slowest;         ///< of these
    std::uint64_t fastest_step = 0;
    /// The sender may not get a processor for seconds: its silence means little while its machine
    /// answers. From agents.
    bool busy = false;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("reporting", m.reporting), f("slowest", m.slowest), f("fastest_step", m.fastest_step);
        f("busy", m.busy);
    }
    static constexpr FrameType kType = FrameType::heartbeat;
};

struct RelayLost {
    std::uint32_t host = 0;
    std::string why;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("host", m.host), f("why", m.why);
    }
    static constexpr FrameType kType = FrameType::relay_lost;
};

/// Ends the ranks, but not the agent: another generation follows.
struct Pause {
    std::uint64_t generation = 0;  ///< that is coming
    std::int32_t signal = 15;
    std::uint32_t grace_ms = 0;
    std::string why;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation), f("signal", m.signal), f("grace_ms", m.grace_ms);
        f("why", m.why);
    }
    static constexpr FrameType kType = FrameType::pause;
};

struct Paused {
    std::uint64_t generation = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation);
    }
    static constexpr FrameType kType = FrameType::paused;
};

/// Slots that want to take part in a daemon's job; also the first frame after a lost connection.
struct Enter {
    std::uint64_t member = 0;      ///< random, never 0; who it is after a reconnect
    std::uint64_t generation = 0;  ///< whose ranks it runs; 0: none
    std::uint64_t paused = 0;      ///< that it has accepted, and waits for
    std::string job_name;
    std::string name;             ///< of the host
    std::uint32_t slots = 0;      ///< ranks that it can run; 0: only looks into the store
    std::uint32_t ranks_min = 0;  ///< of the job; 0: as many as `slots` of the first member
    std::uint32_t ranks_max = 0;  ///< of the job; 0: as ranks_min
    std::uint32_t join_timeout_ms = 600'000;  ///< for ranks_min ranks to come together
    std::uint32_t last_call_ms = 2'000;       ///< for more of them, once there are ranks_min
    std::string address;                      ///< as Join's
    std::uint16_t free_port = 0;              ///< for MASTER_PORT, should it get rank 0
    std::vector<std::string> addresses;       ///< as Join's
    /// For so long it tries to come back when its connection has broken; what it was answered last is
    /// kept until then. At most kReturnMsMax.
    std::uint32_t return_ms = 60'000;

    static constexpr std::uint32_t kReturnMsMax = 86'400'000;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("member", m.member), f("generation", m.generation), f("paused", m.paused);
        f("job_name", m.job_name), f("name", m.name), f("slots", m.slots);
        f("ranks_min", m.ranks_min), f("ranks_max", m.ranks_max);
        f("join_timeout_ms", m.join_timeout_ms), f("last_call_ms", m.last_call_ms);
        f("address", m.address), f("free_port", m.free_port), f("addresses", m.addresses);
        f("return_ms", m.return_ms);
    }
    static constexpr FrameType kType = FrameType::enter;
};

struct Propose {
    std::uint64_t generation = 0;  ///< that is coming
    std::string why;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation), f("why", m.why);
    }
    static constexpr FrameType kType = FrameType::propose;
};

struct Accept {
    std::uint64_t generation = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation);
    }
    static constexpr FrameType kType = FrameType::accept;
};

struct Leave {
    bool finished = false;  ///< every rank of it ended with 0: the job is done, not smaller
    std::string why;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("finished", m.finished), f("why", m.why);
    }
    static constexpr FrameType kType = FrameType::leave;
};

/// Addresses at which rank 0's host waits, for the others to try before any rank starts.
struct Probe {
    std::vector<std::string> addresses;  ///< numeric
    std::uint16_t port = 0;
    std::uint32_t timeout_ms = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("addresses", m.addresses), f("port", m.port), f("timeout_ms", m.timeout_ms);
    }
    static constexpr FrameType kType = FrameType::probe;
};

struct Reached {
    std::vector<std::string> addresses;  ///< of the probe's, those that answered
    std::string why;                     ///< the others did not

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("addresses", m.addresses), f("why", m.why);
    }
    static constexpr FrameType kType = FrameType::reached;
};

/// One of those who wait in a store that an agent serves.
struct RankWait {
    std::uint32_t rank = kNoRank;  ///< where it is known
    std::int64_t pid = 0;          ///< on the host of that address, where it is known
    std::string address;           ///< numeric; empty: the agent's own host
    std::string what;              ///< for a person
    bool starting = false;         ///< it belongs to the start of a framework, where all ranks meet
    bool hopeless = false;         ///< `what` is of a rank that the job does not have
    std::uint32_t waited_ms = 0;

    bool operator==(const RankWait&) const = default;
    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("rank", m.rank), f("pid", m.pid), f("address", m.address), f("what", m.what);
        f("starting", m.starting), f("hopeless", m.hopeless), f("waited_ms", m.waited_ms);
    }
};

/// Everybody who waits; what the last one said does not count any more.
struct Waits {
    std::uint64_t generation = 0;
    std::vector<RankWait> waits;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation), f("waits", m.waits);
    }
    static constexpr FrameType kType = FrameType::waits;
};

/// Ranks of a host and MPI.
struct MpiNews {
    std::uint64_t generation = 0;
    std::uint32_t rank = kNoRank;  ///< the first on this host that has called MPI_Init
    std::string problem;           ///< it cannot have MPI, and why; empty: it can
    std::string note;              ///< for the user; it goes on
    bool aborted = false;          ///< it has called MPI_Abort, and is still there

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation), f("rank", m.rank), f("problem", m.problem);
        f("note", m.note), f("aborted", m.aborted);
    }
    static constexpr FrameType kType = FrameType::mpi;
};

/// A whole frame, ready to be sent.
template <class Message>
Bytes encode(const Message& message);

/// Errc: invalid_input
template <class Message>
Result<Message> decode(std::string_view payload);

/// What stands before the raw bytes in the payload of an `output` frame; big-endian, not
/// MessagePack, because the bytes behind it go from pipe to socket without passing through us.
struct OutputHeader {
    static constexpr std::size_t kBytes = 16;
    /// Of the bytes behind it, so that other frames never wait long behind one of these.
    static constexpr std::uint32_t kDataBytesMax = 256u << 10;

    std::uint32_t rank = 0;
    Stream stream = Stream::out;
    std::int64_t time_ns = 0;  ///< when the host read the bytes: ns since 1970 UTC
};

std::array<char, FrameHeader::kBytes + OutputHeader::kBytes> encode_output_header(
    const OutputHeader& header, std::uint32_t data_bytes);

struct OutputView {
    OutputHeader header;
    std::string_view data;
};

/// Errc: invalid_input
Result<OutputView> decode_output(std::string_view payload);

}  // namespace dtrun
