#pragma once

#include "base/loop/asio.h"
#include "base/result.h"

#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace dtrun::transport {

/// What kind of agent a host lacks.
struct HostWants {
    std::string machine;  ///< as `uname -m` says
    bool gzip = false;    ///< it can unpack that

    friend auto operator<=>(const HostWants&, const HostWants&) = default;
};

/// What a host says that lacks the agent.
struct AgentRequest {
    HostWants wants;
    std::string home;  ///< equal for hosts that have one home; empty: not known
};
/// Reads what stands behind kAgentWanted: "<machine> gzip|plain [<home>]".
AgentRequest parse_request(std::string_view said);

/// The agent for a kind of machine, ready to be sent.
struct AgentCopy {
    std::string bytes;  ///< of the agent, packed or not, and behind them those of its package
    std::string build_id;
    /// "<build id> <bytes> <SHA-256> <bytes of the agent> gzip|plain", goes first.
    std::string announcement;
};

/// The agents that hosts have asked for. Each is read, packed and hashed once, however many hosts lack it, and hosts
/// that have one home get one copy.
///
/// Thread: the io_context's.
class AgentCopies {
public:
    /// \return the copy, which stays as long as this. Errc: internal (no agent for its CPU), denied
    Result<const AgentCopy*> get(const HostWants& wants);

private:
    friend class HomeTurn;
    struct Home {
        explicit Home(const asio::any_io_executor& executor)
            : changed(executor, Timer::time_point::max()) {}
        bool copying = false;  ///< a host of it gets a copy
        bool stored = false;   ///< one runs the agent that it has got
        Timer changed;         ///< cancelled when that host is done
    };
    std::map<HostWants, AgentCopy> copies_;
    std::map<std::string, Home> homes_;  ///< by their names and the machine
};

/// A host's part in the copies of its home. If the host that gets the copy fails, another one gets it.
class HomeTurn {
public:
    HomeTurn() = default;
    ~HomeTurn();
    HomeTurn(const HomeTurn&) = delete;
    HomeTurn& operator=(const HomeTurn&) = delete;

    /// Waits while another host of the same home gets the agent.
    /// \param copies  outlive this
    /// \param waits   is called if it has to wait
    /// \return whether this host is to get it; else it is there. Each host of an unknown home gets it
    asio::awaitable<bool> wait(AgentCopies& copies, AgentRequest request,
                               std::function<void()> waits);
    /// The host runs the agent that it has got.
    void stored();

private:
    AgentCopies::Home* home_ = nullptr;  ///< whose turn this is
};

}  // namespace dtrun::transport
