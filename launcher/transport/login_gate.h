#pragma once

#include "base/loop/asio.h"
#include "base/numbered.h"
#include "launcher/transport/channel.h"

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace dtrun::transport {

class LoginPass;

/// What somebody who has waited at the gate is to do.
enum class LoginTurn {
    own,    ///< log in
    given,  ///< a relay logs in for him
    over    ///< no hosts are logged in to any more
};

/// How many log-ins go on at once, from here and through each machine that leads to others. Who has waited longest is next.
///
/// A log-in that only waits for its host, which costs nothing here, makes room for others, up to kLentForEach for each place:
/// else hundreds of hosts that swallow packets would keep all others waiting. It counts again once its host has answered.
/// So does one that is let in and waits for its copy of the agent from another host, until it has that.
///
/// Thread: the executor's. Lifetime: outlives its passes.
class LoginGate {
public:
    static constexpr unsigned kLoginsMax = 128;  ///< at once: more only make each slower
    /// Through one jump host: sshd refuses some where there are more than 10 (MaxStartups).
    static constexpr unsigned kLoginsBehindMax = 8;
    static constexpr int kLentForEach = 8;

    /// \param is_open  whether hosts are logged in to at all; empty: always
    LoginGate(asio::any_io_executor executor, unsigned logins_at_once,
              std::function<bool()> is_open = {});
    LoginGate(const LoginGate&) = delete;
    LoginGate& operator=(const LoginGate&) = delete;

    /// \return whether somebody waits who may be logged in to by this relay, and now is
    bool hand_over(HostId relay);
    /// Those who wait look again whether the gate is open.
    void look();

private:
    friend class LoginPass;
    class Place;

    /// Those who log in, and those who wait for that.
    struct Line {
        explicit Line(unsigned places)
            : free(static_cast<int>(places)), may_lend(kLentForEach * free) {}
        void give_back();

        int free;      ///< below 0: hosts have answered whose places others have
        int may_lend;  ///< places
        std::list<Place*> waiting{};
        std::map<HostId, std::list<Place*>>
            behind{};  ///< of these, those whom a relay may log in to
    };

    Line& behind(const std::string& route);

    asio::any_io_executor executor_;
    std::function<bool()> is_open_;
    Line all_;
    std::map<std::string, Line> behind_;  ///< by what leads to the hosts
};

/// Somebody's place in a line, from his waiting for it on; he gives it back.
class LoginGate::Place {
public:
    Place(Line& line, Timer& news, std::optional<HostId> relay);
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    void come(LoginTurn what);
    const std::optional<LoginTurn>& turn() const { return turn_; }
    /// Somebody else may have it meanwhile, unless so many do that they would be in each other's way.
    void lend();
    void end_loan();
    void look() { news_.cancel(); }

private:
    void leave();

    Line& line_;
    Timer& news_;  ///< cancelled when the turn has come
    std::optional<HostId> relay_;
    std::list<Place*>::iterator at_, behind_at_;
    std::optional<LoginTurn> turn_;
    bool is_lent_ = false;
};

/// Somebody's way through the gate, and out of it when he has logged in, or not.
class LoginPass {
public:
    explicit LoginPass(LoginGate& gate);
    LoginPass(const LoginPass&) = delete;
    LoginPass& operator=(const LoginPass&) = delete;

    /// Waits for the turn. Where a relay was to log in and has not, again.
    /// \param route  what leads to the host; empty: nothing
    /// \param relay  that may log in instead, should it be free first; only without a route
    asio::awaitable<LoginTurn> wait(std::string route, std::optional<HostId> relay = {});

    /// \param phase  what the log-in does now
    void now(std::string_view phase);
    /// It waits for the host's first packet.
    void knocks();
    /// The log-in is done by this program, which tells nothing: it waits for its host as long as it does nothing.
    void watch(std::shared_ptr<const Channel> carrier);

private:
    void works();
    void rests();
    void look_later();
    void look();

    LoginGate& gate_;
    Timer news_;
    std::optional<LoginGate::Place> behind_, place_;
    Timer patience_;
    Clock::duration patience_time_{};
    std::function<bool()> only_waits_;     ///< empty: it works
    std::optional<Deadline> waits_since_;  ///< without having worked
    std::shared_ptr<LoginPass*> self_ = std::make_shared<LoginPass*>(this);
};

}  // namespace dtrun::transport
