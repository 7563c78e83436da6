#pragma once

#include <cstdint>
#include <string>
#include <vector>

// Messages of warm agents: between a job and the holder of log-ins, over a Unix socket, and between the holder and
// the keeper on each host, on the keeper's standard streams.

namespace dtrun {

/// What happens on a stream.
enum class WarmEvent : std::uint8_t {
    open,        ///< holder -> keeper: start an agent
    input,       ///< towards the agent: `bytes` of its standard input
    input_end,   ///< towards the agent: its lifeline ends; without a stream the keeper ends
    output,      ///< from the agent: `bytes` of its standard output
    errors,      ///< from the agent: of its standard error
    output_end,  ///< from the agent: nothing more will come of either
    exited,      ///< from the agent, last: how its program has ended, in words
    alive,       ///< both ways between holder and keeper
};

/// The standard streams of one agent, which belong to one job.
struct WarmStream {
    std::uint32_t stream =
        0;  ///< never used again by a holder; 0: none, or the only one of the connection
    WarmEvent event = WarmEvent::alive;
    std::string bytes;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("stream", m.stream), f("event", m.event), f("bytes", m.bytes);
    }
};

/// What is wanted of a holder.
enum class WarmWish : std::uint8_t {
    list,     ///< what it holds
    take,     ///< an agent on the host of `key`; the connection then carries WarmStream
    keep,     ///< that it holds the hosts of `hosts`, which are keys, for `keep_ms` from now on
    release,  ///< that it logs out of `hosts`, which are names; none: of all
};

/// Command -> holder, its first frame.
struct WarmRequest {
    WarmWish wish = WarmWish::list;
    std::string key;                 ///< of take
    std::vector<std::string> hosts;  ///< of keep and release
    std::uint32_t keep_ms = 0;       ///< of keep and take; 0: as it is

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("wish", m.wish), f("key", m.key), f("hosts", m.hosts), f("keep_ms", m.keep_ms);
    }
};

enum class HeldState : std::uint8_t {
    logging_in,
    ready,
    leaving,  ///< it was released, and jobs still run there
    gone      ///< it could not be reached, or has been lost
};

/// A host as its holder knows it.
struct HeldStatus {
    std::string host;  ///< as the user calls it
    std::string key;   ///< warm_key()
    HeldState state = HeldState::logging_in;
    std::uint32_t jobs = 0;     ///< that have an agent there now
    std::uint32_t taken = 0;    ///< agents so far
    std::uint32_t left_ms = 0;  ///< until it is left, where no job has an agent there
    std::string why;            ///< it is gone

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("host", m.host), f("key", m.key), f("state", m.state), f("jobs", m.jobs);
        f("taken", m.taken), f("left_ms", m.left_ms), f("why", m.why);
    }
};

/// Holder -> command.
struct WarmAnswer {
    bool waits = false;  ///< another answer follows when the log-in has ended
    bool taken = false;  ///< of take: an agent runs, whose WarmStream follows
    std::string
        seen_as;  ///< of take: this machine's address as the host sees it, numeric; empty: not known
    std::vector<HeldStatus> hosts;  ///< of list, keep and release

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("waits", m.waits), f("taken", m.taken), f("seen_as", m.seen_as), f("hosts", m.hosts);
    }
};

}  // namespace dtrun
