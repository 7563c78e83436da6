#pragma once

#include "base/loop/asio.h"
#include "base/numbered.h"
#include "launcher/head/head.h"
#include "launcher/head/login_starter.h"
#include "launcher/output/output.h"
#include "launcher/watch/event.h"
#include "tests/loopback/fake_ranks.h"
#include "tests/support/virtual_time.h"
#include "worker/agent/agent.h"

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace dtrun::loopback {

using std::chrono::milliseconds;

/// What happens when the head logs in to a host.
enum class Login {
    works,
    refused,
    hangs,
    says_nothing,
    dies_with_config,
    cannot_connect,
    speaks_before_join,  ///< its agent sends a frame that is no join first
};

/// Which packets of a host are meant.
enum class Way { both, to_host, from_host };

/// What a host of a simulation does. Times count from the start of the job.
struct HostScript {
    Login login = Login::works;
    bool is_here = false;  ///< it is the machine of the head
    milliseconds login_takes{3};
    milliseconds sweep_takes{3};   ///< a log-in that looks for what an agent has left
    std::optional<HostId> also{};  ///< it is the machine of that host, under another name
    /// Until when log-ins fail, and how.
    std::optional<std::pair<milliseconds, Errc>> not_ready{};
    std::string behind{};                        ///< the machine that leads to it
    std::optional<milliseconds> listed{};        ///< the job does not have it before that
    std::optional<milliseconds> delisted{};      ///< the job may not use it any more
    std::optional<milliseconds> relisted{};      ///< and then it may again
    std::optional<milliseconds> loses_power{};   ///< nothing of it runs, or answers, any more
    std::optional<milliseconds> gets_power{};    ///< it can be logged in to again
    std::optional<milliseconds> agent_killed{};  ///< its guard ends what it leaves
    std::optional<milliseconds> cut_off{};       ///< its connections break; it lives on
    /// From when to when its health check fails, if the job has one.
    std::optional<std::pair<milliseconds, milliseconds>> unhealthy{};
    milliseconds check_takes{1};
    /// From when to when its network delivers nothing, or nothing one way.
    std::optional<std::pair<milliseconds, milliseconds>> stalled{};
    Way stalled_way = Way::both;
    std::string warns{};            ///< what its user is told of it while it gets ready
    std::string machine{};          ///< equal for two hosts that are one machine
    milliseconds slow{};            ///< what its network takes longer than others, each way
    Login by_relay = Login::works;  ///< what happens when a relay logs in to it
    milliseconds by_relay_takes{3};
    bool has_key = true;  ///< as a relay it can log in to others
};

/// What happens to a host at a moment; see HostScript for each.
enum class Mishap {
    loses_power,
    gets_power,
    agent_killed,
    cut_off,
    stalls,
    delivers,
    listed,
    delisted
};

/// A job of a simulation, and everything that happens to it.
struct Script {
    std::vector<int> ranks_on_host{2, 2};
    /// By rank; those that are not named do RankScript{}.
    std::map<std::uint32_t, RankScript> ranks{};
    /// By generation and rank; these take precedence over `ranks`.
    std::map<std::pair<std::uint64_t, std::uint32_t>, RankScript> attempts{};
    std::map<HostId, HostScript> hosts{};
    /// Somebody kills the process in this place of this host.
    struct Kill {
        milliseconds when{};
        HostId host{};
        SlotIndex place{};
    };
    std::vector<Kill> kills{};
    std::vector<Kill> asks{};  ///< a collective of this process fails, and no other's
    struct Happening {
        milliseconds when{};
        HostId host{};
        Mishap what{};
        Way way = Way::both;  ///< that stalls
        int slots = 0;        ///< that are listed
    };
    std::vector<Happening> happenings{};  ///< besides what `hosts` says
    std::vector<milliseconds> looks{};    ///< when all processes are written down
    /// A job that lasts: each so often somebody kills a process of a host, and a while later the memory of all of this is
    /// written down. So that it tells of dtrun's, nothing else is that there would be more of with time.
    struct Lasting {
        milliseconds change_every{}, weighed_after{};
        int changes = 0;
    };
    std::optional<Lasting> lasting{};
    std::vector<std::pair<milliseconds, int>> signals{};  ///< that dtrun is sent, and when
    /// When everything stands still, and how long, as after Ctrl-Z.
    std::optional<std::pair<milliseconds, milliseconds>> stopped{};
    /// From when to when nobody reads dtrun's output.
    std::optional<std::pair<milliseconds, milliseconds>> reader_pauses{};
    std::string program = "/bin/true";
    /// How long a host looks for where its ranks are, which then all wait for rank 1; nothing: it cannot tell.
    std::optional<milliseconds> look_takes{};
    std::function<void(plan::Options&)> options = [](plan::Options&) {};
};

/// What a job has come to.
struct Ending {
    int code = -1;
    std::string shown;       ///< dtrun's own messages
    std::size_t output = 0;  ///< bytes of ranks that were shown
    milliseconds took{};
    std::size_t left = 0;                ///< ranks that still run on hosts that are there
    std::size_t logins = 0;              ///< by the head
    std::size_t by_relays = 0;           ///< log-ins that relays have begun
    std::size_t logins_max = 0;          ///< that went on at the same time
    std::size_t sweeps = 0;              ///< hosts on which dtrun looked for what was left
    std::vector<std::string> started{};  ///< each generation as "1: 0011", its hosts by rank
    std::vector<std::string> met{};      ///< likewise, of elastic ranks that have come to it
    std::vector<watch::Event> events{};  ///< that dtrun has told of
    /// How many there were when who waits for the job's start was told; nothing: it did not start.
    std::optional<std::size_t> events_before_start{};
    boost::json::object view{};      ///< of the job, when it was over
    std::vector<std::string> log{};  ///< what every host has seen, for comparing two runs
    /// A process, as it has ended or as it was seen.
    struct Seen {
        milliseconds when{};
        HostId host{};
        FakeRanks::Process process{};
        int code = 0, signal = 0, sent_signal = 0;  ///< of its end
        bool is_well() const { return code == 0 && signal == 0 && sent_signal == 0; }
    };
    std::vector<Seen> ends{};
    std::vector<std::vector<Seen>> looks{};  ///< all that ran, at each look
    std::vector<std::size_t> heap{};         ///< bytes, after each change of a job that lasts
    int changes = 0;                         ///< of that, after which all ranks ran in one world
    milliseconds last_start{};               ///< of a process
    int given_back = 0;                      ///< how often freed memory went back to the system
    milliseconds last_place{};               ///< when an elastic rank was last given a place
    std::size_t saves_cut_short = 0;         ///< processes that were ended while they saved
    /// Of what the head, and the agent of the first host, are receivers.
    std::set<FrameType> head_receives{}, agent_receives{};
};

/// Runs a real Head and a real Agent for each host in this process, over socket pairs, in virtual time.
/// Delivery times, within a few milliseconds, are drawn from the seed: the same seed gives the same
/// run.
/// \throws std::runtime_error when the job hangs
Ending simulate(const Script& script, std::uint32_t seed);

}  // namespace dtrun::loopback
