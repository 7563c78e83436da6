#pragma once

#include "base/numbered.h"
#include "rendezvous/wire/change.h"
#include "rendezvous/wire/message.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Messages between ranks, their agents and the root of the tree, besides requests of the store
// (rendezvous/wire/request.h).

namespace dtrun {

struct Refuse {
    std::string reason;
    bool later = false;  ///< the sender may try the same again after a while

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("reason", m.reason), f("later", m.later);
    }
};

/// A rank's first words to its agent, over the socket that DTRUN_SOCKET names.
struct Hello {
    std::uint16_t protocol = kProtocolVersion;
    Rank rank = kNoRank;           ///< kNoRank: a helper of some rank, which only uses the store
    std::uint64_t generation = 0;  ///< generation in which it was started; 0: the current one
    std::int64_t pid = 0;
    bool elastic = false;  ///< it can go on in another generation, when it asks with `rejoin`
    bool board = false;    ///< it knows the frame `board`; other builds know the key as `page`

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("protocol", m.protocol), f("rank", m.rank), f("generation", m.generation);
        f("pid", m.pid), f("elastic", m.elastic), f("page", m.board);
    }
};

/// A process that can go on in another generation asks for its place there.
struct Rejoin {
    std::uint64_t generation = 0;  ///< that it leaves

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation);
    }
};

/// With the first byte of this frame come two descriptors: of a ChangeBoard, and an eventfd that counts
/// how often it was written.
struct BoardOpened {
    std::uint32_t bytes = 0;  ///< of the board

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("bytes", m.bytes);
    }
};

/// A part of a program that is not to take longer than it says.
struct Section {
    enum class Kind : std::uint8_t {
        begin = 1,
        end = 2,
        beat = 3,  ///< all sections that the process is in have their whole time again
    };
    Kind kind = Kind::beat;
    std::string name;  ///< at most kNameBytesMax
    std::uint64_t limit_ms = 0;

    static constexpr std::size_t kNameBytesMax = 256;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("kind", m.kind), f("name", m.name), f("limit_ms", m.limit_ms);
    }
};

/// A rank waits for something longer than it should, as its library has found out.
struct Stall {
    std::string what;  ///< at most kWhatBytesMax; who waits for the same says the same
    std::uint64_t waited_ms = 0;
    bool over = false;  ///< it does not wait for that any more

    static constexpr std::size_t kWhatBytesMax = 1'024;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("what", m.what), f("waited_ms", m.waited_ms), f("over", m.over);
    }
};

/// Where the root of the job's tree is asked over TCP, and by which proof: a StoreKey.
struct StorePort {
    std::string address{};  ///< numeric; empty: nowhere
    std::uint16_t port = 0;
    std::string id{};      ///< 16 bytes
    std::string secret{};  ///< 32 bytes

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("address", m.address), f("port", m.port), f("id", m.id), f("secret", m.secret);
    }
};

/// The answer to hello: the job and what the rank needs to know of its place.
struct Welcome {
    std::string job;  ///< hexadecimal id
    std::uint64_t generation = 0;
    Rank rank = kNoRank;
    std::uint32_t world_size = 0;
    std::uint32_t local_rank = 0;
    std::uint32_t local_size = 0;
    std::uint32_t cross_rank = 0;
    std::uint32_t cross_size = 0;
    std::uint32_t node_rank = 0;
    std::uint32_t node_count = 0;
    std::string host_name;
    /// Where the root of the job's tree answers, too, which runs on this machine: "@name". Empty: nowhere.
    std::string store_socket{};
    StorePort store_port{};  ///< the same, for a root that runs on another machine
    bool stalls = false;     ///< the agent knows what a `stall` is

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("job", m.job), f("generation", m.generation), f("rank", m.rank);
        f("world_size", m.world_size), f("local_rank", m.local_rank), f("local_size", m.local_size);
        f("cross_rank", m.cross_rank), f("cross_size", m.cross_size), f("node_rank", m.node_rank);
        f("node_count", m.node_count), f("host_name", m.host_name);
        f("store_socket", m.store_socket), f("store_port", m.store_port);
        f("stalls", m.stalls);
    }
};

/// A store's client has ended its connection: its pending requests are dropped.
struct Gone {
    std::uint64_t client = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("client", m.client);
    }
};

struct FenceEntry {
    Rank rank{};
    std::string bytes;

    bool operator==(const FenceEntry&) const = default;
    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("rank", m.rank), f("bytes", m.bytes);
    }
};

/// Arrivals at one fence: one rank's, or the sum of all below a relay.
struct Fence {
    std::uint64_t generation = 0;
    std::string name;  ///< at most kNameBytesMax
    /// How often every rank has been at a fence of this name before. A rank may have several connections
    /// to its agent, and each counts for itself: the agent puts the rank's own round in its place.
    std::uint64_t round = 0;
    std::uint32_t ranks = 1;          ///< how many have arrived
    std::vector<FenceEntry> entries;  ///< at most one for each rank, if it brought bytes

    static constexpr std::size_t kNameBytesMax = 1'024;
    /// How names begin that belong to agents, and at which no rank may be.
    static constexpr std::string_view kOfAgents = "dtrun/pmi";
    /// Limit of all ranks' entries together, as MessagePack.
    static constexpr std::size_t kBytesMax = 12u << 20;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation), f("name", m.name), f("round", m.round), f("ranks", m.ranks);
        f("entries", m.entries);
    }
};

/// A rank's deadline at a fence has passed. The rank then waits for `fenced`, the outcome for all
/// ranks. Without a name, and from an agent only: every fence fails, now and to come.
struct Unfence {
    std::uint64_t generation = 0;
    std::string name;
    std::uint64_t round = 0;
    std::string why;
    /// Without a name: fences fail only until this rank, which has closed its worker, is back.
    Rank away = kNoRank;
    bool is_back = false;

    static constexpr std::size_t kReasonBytesMax = 4'096;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation), f("name", m.name), f("round", m.round), f("why", m.why);
        f("away", m.away), f("is_back", m.is_back);
    }
};

/// The end of a fence, the same for every rank.
struct Fenced {
    std::uint64_t generation = 0;
    std::string name;
    std::uint64_t round = 0;
    bool complete = false;
    std::string why;                  ///< why it failed; empty if complete
    std::vector<FenceEntry> entries;  ///< by rank
    bool invalid = false;  ///< it was wrong to come there, which is nobody else's failure

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("generation", m.generation), f("name", m.name), f("round", m.round);
        f("complete", m.complete), f("why", m.why), f("entries", m.entries);
        f("invalid", m.invalid);
    }
};

/// A rank of another launcher's run arrives at a fence of that run, or gives it up. The answer is a
/// `fenced` of generation 0.
struct GroupFence {
    std::uint64_t client = 0;  ///< random id as in `enter`, the same after a reconnect
    std::string group;         ///< what the launcher calls the run; may be empty
    std::string name;          ///< at most Fence::kNameBytesMax
    std::uint64_t round = 0;   ///< how often the rank has been at a fence of this name before
    Rank rank{};
    std::uint32_t ranks = 0;          ///< size of the group
    std::vector<FenceEntry> entries;  ///< the rank's bytes; at most one entry
    std::string why;                  ///< not empty: the rank gives up, and the fence fails

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("client", m.client), f("group", m.group), f("name", m.name), f("round", m.round);
        f("rank", m.rank), f("ranks", m.ranks), f("entries", m.entries), f("why", m.why);
    }
};

struct RankProgress {
    Rank rank = kNoRank;
    std::uint64_t step = 0;  ///< counter of the program; grows

    bool operator==(const RankProgress&) const = default;
    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("rank", m.rank), f("step", m.step);
    }
};

/// Something that ranks may want to know.
struct RankEvent {
    enum class Kind : std::uint8_t {
        membership = 1,  ///< a new generation is coming: this one's ranks will be ended
        shutdown = 2,    ///< the job is being ended: SIGTERM comes now, SIGKILL after `grace_ms`
    };
    Kind kind = Kind::membership;
    std::uint64_t generation = 0;  ///< the coming generation, or the one that ends
    std::uint32_t grace_ms = 0;
    std::string why;
    ChangeReason reason{};  ///< of a `membership`

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("kind", m.kind), f("generation", m.generation), f("grace_ms", m.grace_ms);
        f("why", m.why), f("reason", m.reason);
    }
};

/// Sent every kHeartbeatInterval (rendezvous/wire/heartbeat.h), whatever else is sent; any frame is a sign of life.
struct Heartbeat {
    std::uint32_t reporting = 0;  ///< how many ranks below the sender count steps
    RankProgress slowest;         ///< the slowest of these ranks
    std::uint64_t fastest_step = 0;
    /// From agents: the sender may not get a processor for seconds, so silence is no loss while its
    /// machine acknowledges packets.
    bool busy = false;
    /// From a daemon: the silence after which it counts a peer as lost, and peers are to count it
    /// as lost. 0: kHeartbeatTimeout.
    std::uint32_t timeout_ms = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("reporting", m.reporting), f("slowest", m.slowest), f("fastest_step", m.fastest_step);
        f("busy", m.busy), f("timeout_ms", m.timeout_ms);
    }
};

struct RelayLost {
    HostId host{};
    std::string why;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("host", m.host), f("why", m.why);
    }
};

}  // namespace dtrun
