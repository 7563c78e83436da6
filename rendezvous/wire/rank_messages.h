#pragma once

#include "base/numbered.h"
#include "rendezvous/wire/change.h"
#include "rendezvous/wire/message.h"

#include <cstdint>
#include <string>
#include <vector>

// Messages about the ranks of one host: their places, start, progress and end.

namespace dtrun {

/// One rank's place; the words are those of DESIGN and of Horovod.
struct RankSlot {
    Rank rank{};
    std::uint32_t local_rank = 0;
    std::uint32_t cross_rank = 0;
    std::uint32_t cross_size = 0;
    std::uint32_t slot = 0;  ///< id of the slot on its host
    SlotIndex place{};

    bool operator==(const RankSlot&) const = default;
    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("rank", m.rank), f("local_rank", m.local_rank), f("cross_rank", m.cross_rank);
        f("cross_size", m.cross_size), f("slot", m.slot), f("place", m.place);
    }
};

/// One host that has ranks, for contracts that name all of them.
struct NodePlace {
    std::string address;     ///< numeric
    std::uint16_t port = 0;  ///< first of its free ports, one for each rank
    std::uint32_t ranks = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("address", m.address), f("port", m.port), f("ranks", m.ranks);
    }
};

/// One block of the list that maps ranks to hosts: the next `ranks` ranks are on host `first_node`,
/// as many on the host after it, and so on for `nodes` hosts. After the last block the list
/// starts over until every rank has its host. PMI uses the same form.
struct RankBlock {
    std::uint32_t first_node = 0;  ///< node_rank
    std::uint32_t nodes = 0;
    std::uint32_t ranks = 0;  ///< on each host

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
    std::vector<RankSlot> ranks;          ///< this host's, in order of local_rank
    std::uint32_t ranks_below = 0;        ///< number of ranks of this host and of all behind it
    std::vector<std::string> peers;       ///< only for rank 0's host: addresses of the job's hosts
    std::vector<NodePlace> nodes;         ///< by node_rank; only where a contract needs them
    std::vector<std::string> node_names;  ///< by node_rank
    /// The same in Slurm's notation, from a head, whose agents understand it; then `node_names` is empty.
    std::string nodelist;
    std::vector<RankBlock> rank_map;  ///< the hosts of all ranks
    /// Of `ranks`, the places that have processes already, which go on with other numbers, or were started
    /// by `prepare`. All others are to be started.
    std::vector<SlotIndex> kept;
    /// How many places this host of an elastic job has had so far; 0: as many as its agent was told at first.
    std::uint32_t places = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation), f("world_size", m.world_size), f("node_rank", m.node_rank);
        f("node_names", m.node_names), f("nodelist", m.nodelist), f("rank_map", m.rank_map);
        f("ranks_below", m.ranks_below);
        f("node_count", m.node_count), f("master_address", m.master_address);
        f("master_port", m.master_port), f("ranks", m.ranks), f("peers", m.peers);
        f("nodes", m.nodes), f("kept", m.kept), f("places", m.places);
    }
};

/// Ranks of a generation that has not begun yet.
struct Prepare {
    Assign world;  ///< `ranks` are those of this host that are to be started

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("world", m.world);
    }
};

/// How far a process has come that can live through several generations.
enum class RejoinState : std::uint8_t {
    supports_rejoin,  ///< it has said that it can
    held_at_start,    ///< it was started for a generation that has not begun, and waits for that
    rendezvoused,     ///< it has met the others of its generation
    wants_rank,       ///< it asks for its place in the next generation
};

struct RejoinStatus {
    SlotIndex place{};
    RejoinState state{};

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("place", m.place), f("state", m.state);
    }
};

/// Hosts change. May be sent again for the same generation, when more is known.
struct Notify {
    std::uint64_t generation = 0;  ///< that is coming
    ChangeReason reason = ChangeReason::joined;
    std::uint32_t deadline_ms = 0;  ///< how long ranks may go on; 0: as long as they want
    std::uint64_t stop_step = 0;    ///< at which all ranks are to leave; 0: none was agreed
    std::int32_t signal = 0;        ///< to be sent to every rank now; 0: none

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation), f("reason", m.reason), f("deadline_ms", m.deadline_ms);
        f("stop_step", m.stop_step), f("signal", m.signal);
    }
};

struct QueryCommit {
    std::uint64_t number = 0;  ///< each call has its own

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("number", m.number);
    }
};

struct ReadyToCommit {
    std::uint64_t number = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("number", m.number);
    }
};

struct EndRanks {
    std::vector<SlotIndex> places;
    std::int32_t signal = 15;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("places", m.places), f("signal", m.signal);
    }
};

struct RankPid {
    Rank rank{};
    SlotIndex place{};
    std::int64_t pid = 0;
    std::string binding{};      ///< its processors, for people, as they are; empty: nobody asked
    std::uint32_t threads = 0;  ///< OMP_NUM_THREADS that it got from dtrun; 0: none

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("rank", m.rank), f("place", m.place), f("pid", m.pid);
        f("binding", m.binding), f("threads", m.threads);
    }
};

struct Started {
    std::uint64_t generation = 0;
    std::vector<RankPid> ranks;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation), f("ranks", m.ranks);
    }
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
    Rank rank{};
    SlotIndex place{};
    std::int64_t pid = 0;          ///< 0: it could not be started, see `error`
    std::int32_t code = 0;         ///< exit status, when `signal` is 0; or what MPI_Abort was told
    std::int32_t signal = 0;       ///< the signal that ended it; 0: none
    std::int32_t sent_signal = 0;  ///< the last signal that dtrun sent to end it; 0: none
    bool out_of_memory = false;    ///< the kernel's OOM killer was at work
    bool core_dumped = false;
    bool hung =
        false;  ///< its agent has killed it for a section that took too long (--on-hang kill)
    std::int64_t ran_ns = 0;  ///< from its start to its end
    /// The most that was resident of it, or of one of its children for which it has waited, and at least what its
    /// agent has. 0: not known
    std::uint64_t memory_max_bytes = 0;
    std::string error;      ///< why it could not be started
    std::string traceback;  ///< text of TORCHELASTIC_ERROR_FILE, at most 1 MiB
    MpiUse mpi = MpiUse::none;

    /// There was no process to be ended, as `end_ranks` asked for.
    bool was_none() const { return pid == 0 && sent_signal != 0; }

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation), f("rank", m.rank), f("place", m.place), f("pid", m.pid);
        f("code", m.code);
        f("signal", m.signal), f("sent_signal", m.sent_signal), f("out_of_memory", m.out_of_memory);
        f("core_dumped", m.core_dumped), f("hung", m.hung), f("ran_ns", m.ran_ns);
        f("memory_max_bytes", m.memory_max_bytes);
        f("error", m.error);
        f("traceback", m.traceback), f("mpi", m.mpi);
    }
};

struct SignalRanks {
    std::int32_t signal = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("signal", m.signal);
    }
};

/// Ends everything on the host: `signal` now, KILL after `grace_ms`, then `done`.
struct Stop {
    std::int32_t signal = 15;
    std::uint32_t grace_ms = 0;
    std::string why;            ///< from a daemon: what ended the job; empty: it has succeeded
    bool by_scheduler = false;  ///< a scheduler ends the job, and may signal every process itself
    MemberId because_of{};      ///< from a daemon: the member whose rank has failed; 0: none

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("signal", m.signal), f("grace_ms", m.grace_ms), f("why", m.why);
        f("by_scheduler", m.by_scheduler), f("because_of", m.because_of);
    }
};

struct Done {
    std::uint32_t orphans = 0;  ///< processes that the ranks had left behind and that were ended

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("orphans", m.orphans);
    }
};

/// Ends the ranks, but not the agent: another generation follows.
struct Pause {
    std::uint64_t generation = 0;  ///< the coming generation
    std::int32_t signal = 15;
    std::uint32_t grace_ms = 0;
    std::string why;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation), f("signal", m.signal), f("grace_ms", m.grace_ms);
        f("why", m.why);
    }
};

struct Paused {
    std::uint64_t generation = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation);
    }
};

/// Ends the ranks' connections to a host that is lost.
struct ResetConnections {
    std::uint64_t generation = 0;        ///< whose ranks have these connections
    std::vector<std::string> addresses;  ///< of the host; numeric
    /// All connections over which the frameworks of ranks talk to each other, as far as they are known: a rank
    /// is lost, and those that wait for others would learn of it from nobody.
    bool world = false;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation), f("addresses", m.addresses), f("world", m.world);
    }
};

struct ResetStatus {
    std::uint64_t generation = 0;
    std::uint32_t connections = 0;
    std::string problem;  ///< why ranks' connections cannot be ended; empty: they can

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation), f("connections", m.connections), f("problem", m.problem);
    }
};

/// How a waiting rank's MPI library talks to its launcher. Who asks for PMIx never meets who asks for
/// PMI.
enum class MpiWait : std::uint8_t {
    none,         ///< it is no MPI library that waits
    pmix_client,  ///< PMIx, perhaps not in a fence of all ranks yet
    pmix,         ///< PMIx, in a fence of all ranks
    pmi1,
    pmi2,
};

/// A rank that waits: in a store which its agent serves, or for what it has said itself by a Stall.
struct RankWait {
    Rank rank = kNoRank;    ///< kNoRank: not known
    std::int64_t pid = 0;   ///< on the host of `address`; 0: not known
    std::string address;    ///< numeric; empty: the agent's own host
    std::string what;       ///< what it waits for, for messages
    bool starting = false;  ///< it waits in a framework's start, where all ranks meet
    bool hopeless = false;  ///< it waits for a rank that the job does not have
    MpiWait mpi = MpiWait::none;
    std::uint32_t waited_ms = 0;
    bool stalled = false;  ///< however short: nothing comes of it by itself
    bool told = false;     ///< the user has been told of it, by the rank itself

    bool operator==(const RankWait&) const = default;
    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("rank", m.rank), f("pid", m.pid), f("address", m.address), f("what", m.what);
        f("starting", m.starting), f("hopeless", m.hopeless), f("mpi", m.mpi);
        f("waited_ms", m.waited_ms), f("stalled", m.stalled), f("told", m.told);
    }
};

/// All clients that wait; replaces the last such message.
struct Waits {
    std::uint64_t generation = 0;
    std::vector<RankWait> waits;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation), f("waits", m.waits);
    }
};

/// News of one host's ranks and MPI.
struct MpiStatus {
    std::uint64_t generation = 0;
    Rank rank = kNoRank;    ///< the first on this host that has called MPI_Init
    std::string problem{};  ///< why it cannot use MPI; empty: it can
    std::string note{};     ///< warning for the user; the rank goes on
    bool aborted = false;   ///< it has called MPI_Abort, and still runs
    bool spawns = false;    ///< `note` says that it was refused MPI_Comm_spawn

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation), f("rank", m.rank), f("problem", m.problem);
        f("note", m.note), f("aborted", m.aborted), f("spawns", m.spawns);
    }
};

}  // namespace dtrun
