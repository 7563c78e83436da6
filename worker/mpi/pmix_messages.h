#pragma once

#include "base/result.h"
#include "rendezvous/wire/msgpack.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::mpi {

// What an agent and its dtrun-pmix tell each other over a socket between them, and in PmixPart and
// behind it, what agents tell each other by mail. Each as a MessagePack map from field name to value.

enum class PmixKind : std::uint8_t {
    // agent -> dtrun-pmix
    job = 1,
    answer = 2,
    found = 3,
    want = 4,
    // dtrun-pmix -> agent
    loaded = 16,
    failed = 17,
    serving = 18,
    connected = 19,
    finalized = 20,
    aborted = 21,
    fence = 22,
    modex = 23,
    data = 24,
    publish = 25,
    lookup = 26,
    unpublish = 27,
    spawn = 28,
    // agent -> agent
    part = 32,
    whole = 33,
    ask = 34,
    told = 35,
};

/// The ranks that will connect, and all others.
struct PmixJob {
    std::string nspace;
    std::vector<std::string> node_names;       ///< by node_rank
    std::vector<std::uint32_t> node_of_rank;   ///< by rank
    std::uint32_t node_rank = 0;               ///< of this host
    std::vector<std::uint32_t> program_ranks;  ///< MpiWorld's

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("nspace", m.nspace), f("node_names", m.node_names), f("node_of_rank", m.node_of_rank);
        f("node_rank", m.node_rank), f("program_ranks", m.program_ranks);
    }
    static constexpr PmixKind kKind = PmixKind::job;
};

/// The answer to finalized, aborted, fence, modex, publish and unpublish.
struct PmixAnswer {
    std::uint64_t id = 0;
    std::int32_t status = 0;  ///< pmix::Status
    std::string bytes;        ///< to fence and modex

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("id", m.id), f("status", m.status), f("bytes", m.bytes);
    }
    static constexpr PmixKind kKind = PmixKind::answer;
};

/// A published value. Also how it is kept in the job's store.
struct PmixItem {
    std::string key;
    std::uint32_t rank = 0;    ///< who has published it
    std::uint16_t type = 0;    ///< pmix::DataType: a string, a byte object, a bool or an integer
    std::uint64_t number = 0;  ///< of a bool or an integer: sign-extended
    std::string bytes;         ///< of the others
    bool once = false;         ///< gone once it has been looked up

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("key", m.key), f("rank", m.rank), f("type", m.type), f("number", m.number);
        f("bytes", m.bytes), f("once", m.once);
    }
};

/// The answer to lookup.
struct PmixFound {
    std::uint64_t id = 0;
    std::int32_t status = 0;
    std::vector<PmixItem> items;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("id", m.id), f("status", m.status), f("items", m.items);
    }
    static constexpr PmixKind kKind = PmixKind::found;
};

/// Asks for what a rank of this host has put; answered once the rank has put it.
struct PmixWant {
    std::uint64_t id = 0;  ///< the agent's
    std::uint32_t rank = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("id", m.id), f("rank", m.rank);
    }
    static constexpr PmixKind kKind = PmixKind::want;
};

struct PmixLoaded {
    std::string version;  ///< of libpmix, e.g. "4.2.2"
    std::string path;     ///< of its file

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("version", m.version), f("path", m.path);
    }
    static constexpr PmixKind kKind = PmixKind::loaded;
};

/// dtrun-pmix cannot serve, and ends.
struct PmixFailed {
    std::uint8_t code = 0;  ///< Errc
    std::string why;        ///< for the user

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("code", m.code), f("why", m.why);
    }
    static constexpr PmixKind kKind = PmixKind::failed;
};

struct PmixServing {
    std::uint16_t port = 0;  ///< on 127.0.0.1

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("port", m.port);
    }
    static constexpr PmixKind kKind = PmixKind::serving;
};

struct PmixConnected {
    std::uint32_t rank = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("rank", m.rank);
    }
    static constexpr PmixKind kKind = PmixKind::connected;
};

/// The rank waits for the answer, so that nobody learns of its end before this.
struct PmixFinalized {
    std::uint64_t id = 0;
    std::uint32_t rank = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("id", m.id), f("rank", m.rank);
    }
    static constexpr PmixKind kKind = PmixKind::finalized;
};

/// A rank has called PMIx_Abort, and waits like one that sends PmixFinalized.
struct PmixAborted {
    std::uint64_t id = 0;
    std::uint32_t rank = 0;
    std::int32_t status = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("id", m.id), f("rank", m.rank), f("status", m.status);
    }
    static constexpr PmixKind kKind = PmixKind::aborted;
};

enum class PmixCollective : std::uint8_t { fence, connect, disconnect };

/// All of this host's ranks that take part have come.
struct PmixFence {
    std::uint64_t id = 0;
    PmixCollective collective{};
    std::vector<std::uint32_t> ranks;  ///< who takes part; empty: all
    std::string bytes;
    bool lost = false;  ///< one of them has ended instead

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("id", m.id), f("collective", m.collective), f("ranks", m.ranks), f("bytes", m.bytes);
        f("lost", m.lost);
    }
    static constexpr PmixKind kKind = PmixKind::fence;
};

/// Asks for what a rank of another host has put.
struct PmixModex {
    std::uint64_t id = 0;
    std::uint32_t rank = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("id", m.id), f("rank", m.rank);
    }
    static constexpr PmixKind kKind = PmixKind::modex;
};

/// The answer to want.
struct PmixData {
    std::uint64_t id = 0;
    std::int32_t status = 0;
    std::string bytes;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("id", m.id), f("status", m.status), f("bytes", m.bytes);
    }
    static constexpr PmixKind kKind = PmixKind::data;
};

struct PmixPublish {
    std::uint64_t id = 0;
    std::vector<PmixItem> items;  ///< all of one rank

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("id", m.id), f("items", m.items);
    }
    static constexpr PmixKind kKind = PmixKind::publish;
};

struct PmixLookup {
    std::uint64_t id = 0;
    std::vector<std::string> keys;
    std::uint64_t timeout_ms = 0;  ///< to wait until all are there; 0: answer at once

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("id", m.id), f("keys", m.keys), f("timeout_ms", m.timeout_ms);
    }
    static constexpr PmixKind kKind = PmixKind::lookup;
};

struct PmixUnpublish {
    std::uint64_t id = 0;
    std::uint32_t rank = 0;
    std::vector<std::string> keys;  ///< empty: all that the rank has published

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("id", m.id), f("rank", m.rank), f("keys", m.keys);
    }
    static constexpr PmixKind kKind = PmixKind::unpublish;
};

/// A rank wanted to start more ranks, and was refused.
struct PmixSpawn {
    std::uint32_t rank = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("rank", m.rank);
    }
    static constexpr PmixKind kKind = PmixKind::spawn;
};

/// A host's part of a fence in which some ranks take part, to the first host that has one of them.
struct PmixPart {
    PmixCollective collective{};
    std::vector<std::uint32_t> ranks;
    std::uint64_t round = 0;  ///< how often these ranks have met before
    std::uint32_t node_rank = 0;
    std::string bytes;
    bool lost = false;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("collective", m.collective), f("ranks", m.ranks), f("round", m.round);
        f("node_rank", m.node_rank), f("bytes", m.bytes), f("lost", m.lost);
    }
    static constexpr PmixKind kKind = PmixKind::part;
};

/// All parts of such a fence, sent back from that host.
struct PmixWhole {
    PmixCollective collective{};
    std::vector<std::uint32_t> ranks;
    std::uint64_t round = 0;
    std::string bytes;
    bool lost = false;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("collective", m.collective), f("ranks", m.ranks), f("round", m.round),
            f("bytes", m.bytes);
        f("lost", m.lost);
    }
    static constexpr PmixKind kKind = PmixKind::whole;
};

/// PmixModex, to the host of that rank.
struct PmixAsk {
    std::uint64_t id = 0;
    std::uint32_t node_rank = 0;  ///< who asks
    std::uint32_t rank = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("id", m.id), f("node_rank", m.node_rank), f("rank", m.rank);
    }
    static constexpr PmixKind kKind = PmixKind::ask;
};

/// PmixData, back from there.
struct PmixTold {
    std::uint64_t id = 0;
    std::int32_t status = 0;
    std::string bytes;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("id", m.id), f("status", m.status), f("bytes", m.bytes);
    }
    static constexpr PmixKind kKind = PmixKind::told;
};

/// A whole frame: length, kind, payload.
template <class Message>
Bytes pmix_encode(const Message& message);

/// Of a frame's payload. Errc: invalid_input
template <class Message>
Result<Message> pmix_decode(std::string_view payload);

/// An item as it is kept in the store.
Bytes pmix_encode_item(const PmixItem& item);
Result<PmixItem> pmix_decode_item(std::string_view bytes);  ///< Errc: invalid_input

struct PmixFrame {
    PmixKind kind{};
    std::string payload;
};

/// Cuts a stream of bytes into frames.
class PmixFrames {
public:
    void feed(std::string_view bytes) { bytes_ += bytes; }
    /// The next complete frame. Errc: invalid_input (a length that cannot be)
    Result<std::optional<PmixFrame>> next();

private:
    std::string bytes_;
    std::size_t taken_ = 0;
};

}  // namespace dtrun::mpi
