#pragma once

#include "base/loop/asio.h"
#include "base/result.h"

#include <chrono>
#include <compare>
#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
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
    bool fetches = false;    ///< it can fetch the agent from another host
    bool carries = false;    ///< the same, by kCarrier, and pass it on while it comes
    std::string home;        ///< equal for hosts that have one home; empty: not known
    bool unreached = false;  ///< it could not connect to the one from which it was to fetch it
};
/// Reads what stands behind kAgentWanted: "<machine> gzip|plain[,tcp][,python][,unreached] [<home>]".
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
    /// \param hosts  of the job: if it has several, those that have got the agent hand it on to others
    explicit AgentCopies(std::size_t hosts = 1);

    /// \return the copy, which stays as long as this. Errc: internal (no agent for its CPU), denied
    Result<const AgentCopy*> get(const HostWants& wants);

    static constexpr unsigned kOwnMax = 2;     ///< copies that this machine sends at once
    static constexpr unsigned kTakersMax = 2;  ///< of a host that hands on, at once
    static constexpr unsigned kDepthMax = 32;  ///< hosts through which passed on bytes come
    /// How long the first host waits for another one to ask, which tells whether they have one home.
    static constexpr std::chrono::milliseconds kSecondLimit{100};

private:
    friend class HomeTurn;
    friend class CopySlot;
    struct Giver {
        HostWants wants;
        std::string address;
        int port = 0;
        unsigned depth = 0;  ///< hosts through which its bytes come; 0: it has them all
        std::size_t number = 0;
        unsigned takers = 0;
        unsigned failures = 0;
    };
    /// Who gives to fewer goes first, and of such who is nearer to this machine.
    struct GivesSooner {
        bool operator()(const Giver* one, const Giver* other) const;
    };
    using Givers = std::set<Giver*, GivesSooner>;
    static constexpr unsigned kGiverFailuresMax = 2;  ///< of hosts that were to fetch from it
    static constexpr unsigned kFailuresMax = 4;       ///< of all hosts, more than successes
    Giver* find_giver(const HostWants& wants, bool carries);
    Giver& add_giver(const HostWants& wants, std::string address, int port, unsigned depth);
    /// The only way to change one.
    void change(Giver& giver, const std::function<void(Giver&)>& does);
    bool hands_on() const { return !word_.empty() && failures_ <= successes_ + kFailuresMax; }
    void slot_is_free();
    asio::awaitable<void> wait_for_second();

    struct Home {
        explicit Home(const asio::any_io_executor& executor)
            : changed(executor, Timer::time_point::max()) {}
        bool copying = false;  ///< a host of it gets a copy, or unpacks the package
        bool stored = false;   ///< the agent is there
        Timer changed;         ///< cancelled when one of these changes
    };
    std::map<HostWants, AgentCopy> copies_;
    std::map<std::string, Home> homes_;  ///< by their names and the machine
    unsigned asked_ = 0;                 ///< hosts that have named their homes
    std::unique_ptr<Timer> second_;      ///< cancelled when another one has
    std::string word_;         ///< by which givers know hosts of the job; empty: nobody hands on
    std::list<Giver> givers_;  ///< stay where they are
    std::map<HostWants, Givers> ready_;  ///< those of `givers_` that may give to one more
    unsigned own_ = 0;                   ///< copies that this machine sends
    unsigned successes_ = 0;             ///< of hosts that were to fetch it
    unsigned failures_ = 0;              ///< of such, from hosts that had it
    std::unique_ptr<Timer> slot_free_;   ///< cancelled when somebody can give
};

/// A host's part in the copies of its home. If the host that gets the copy fails, another one gets it.
class HomeTurn {
public:
    HomeTurn() = default;
    ~HomeTurn();
    HomeTurn(const HomeTurn&) = delete;
    HomeTurn& operator=(const HomeTurn&) = delete;

    /// Waits while another host of the same home gets the agent, and the first one of all a moment for another one.
    /// \param copies  outlive this
    /// \param waits   is called if it has to wait
    /// \return whether this host is to get it; else it is there. Each host of an unknown home gets it
    asio::awaitable<bool> wait(AgentCopies& copies, const AgentRequest& request,
                               std::function<void()> waits);
    /// The host has stored the agent that it has got.
    void stored();
    /// Waits, where another host has stored the agent, until that one has unpacked the package, or failed.
    /// \param waits  is called if it has to wait
    asio::awaitable<void> all_of_it(std::function<void()> waits);

private:
    AgentCopies::Home* home_ = nullptr;    ///< whose turn this is
    AgentCopies::Home* shared_ = nullptr;  ///< in which another host has stored the agent
};

/// From whom a host gets its copy, and to whom it gives it.
class CopySlot {
public:
    CopySlot() = default;
    ~CopySlot();
    CopySlot(const CopySlot&) = delete;
    CopySlot& operator=(const CopySlot&) = delete;

    /// The host asks. One that asks again could not fetch it, and gets it from here, or, if only what its giver was
    /// receiving itself has ended, from another one.
    /// \param copies    outlive this
    /// \param patience  how long a copy may stand still
    void ask(AgentCopies& copies, const AgentRequest& request, std::chrono::milliseconds patience);
    /// What the host is to run first, kCarrier, as it stands behind an announcement: " <word> <seconds> <its bytes>", the
    /// line's end, and it. It listens before it knows its giver, so that all hosts find theirs at once. Empty: it does
    /// without, as the first one of all does while no host of another home has asked: for one home that would be in vain.
    std::string program() const;
    /// The host listens, as kCarrier does before it receives anything, for what it will pass on.
    /// \param address  numeric; one at which other hosts find themselves, as 127.0.0.1, counts for nothing
    /// \param port     0: it cannot
    void listens(std::string address, int port);
    /// Waits until this machine, or a host that hands on, can give it. One that cannot fetch does not wait.
    /// \param waits  is called if it has to wait
    asio::awaitable<void> wait(std::function<void()> waits);
    /// From whom it comes, for kCarrier: "<port> <address>", or nothing, and the line's end. For others what goes behind
    /// an announcement: " <word> <seconds> 0[ <port> <address>]", or nothing, and the line's end.
    const std::string& words() const { return words_; }
    /// Whether it comes from another host, once wait() has been.
    bool is_from_host() const { return giver_ != nullptr; }
    /// The host hands on what it has stored. \param address  as above
    void hands_on(std::string address, int port);
    /// The host has got it.
    void done();

private:
    void leave();
    void add_giver(unsigned depth);

    static constexpr unsigned kTriesMax = 3;  ///< to fetch it

    AgentCopies* copies_ = nullptr;
    AgentRequest request_;
    long limit_s_ = 1;      ///< it is to have time to ask again
    bool carries_ = false;  ///< by kCarrier, this time
    bool may_fetch_ = true;
    bool is_held_ = false;                   ///< something is taken
    AgentCopies::Giver* giver_ = nullptr;    ///< from which it is to come
    AgentCopies::Giver* own_ = nullptr;      ///< which this host is, while it has not got all
    std::pair<std::string, int> own_place_;  ///< address and port of that; empty: there is none
    unsigned failures_ = 0;
    std::string words_ = "\n";
};

}  // namespace dtrun::transport
