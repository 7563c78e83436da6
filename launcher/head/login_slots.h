#pragma once

#include "base/loop/asio.h"
#include "base/loop/deadline.h"
#include "base/numbered.h"
#include "launcher/head/host_starter.h"

#include <chrono>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <utility>

namespace dtrun::head {

/// What somebody who waited for a log-in is to do.
enum class LoginTurn {
    own,    ///< a slot is his
    given,  ///< a relay logs in for him
    over    ///< no hosts are started any more
};

/// How many log-ins go on at once. Who has waited longest is next.
///
/// Thread: the io_context's.
class LoginSlots {
public:
    LoginSlots(asio::any_io_executor executor, unsigned slots)
        : executor_(std::move(executor)), free_(slots), may_lend_(kLentForEach * slots) {}
    LoginSlots(const LoginSlots&) = delete;
    LoginSlots& operator=(const LoginSlots&) = delete;

    /// Waits for a slot. \param relay  that may log in instead, should it be free first
    asio::awaitable<LoginTurn> take(const StartEvents& events, std::optional<HostId> relay = {}) {
        if (events.is_starting() && free_ > 0) {
            --free_;
            co_return LoginTurn::own;
        }
        Turn turn(*this, relay);
        while (!turn.is && events.is_starting()) co_await turn.timer.async_wait(use_tuple);
        if (events.is_starting()) co_return *turn.is;
        if (turn.is == LoginTurn::own) give_back();
        co_return LoginTurn::over;
    }
    void give_back() {
        if (waiting_.empty())
            ++free_;
        else
            waiting_.front()->comes(LoginTurn::own);  // it is theirs, whoever else comes
    }
    /// One more may log in beside those who have slots, unless so many do that they would be in each other's way.
    bool lend() {
        if (may_lend_ == 0) return false;
        --may_lend_;
        give_back();
        return true;
    }
    void end_loan() { ++may_lend_; }
    /// \return whether somebody waits who may be logged in to by this relay, and now is
    bool hand_over(HostId relay) {
        const auto line = behind_.find(relay);
        if (line == behind_.end() || line->second.empty()) return false;
        line->second.front()->comes(LoginTurn::given);
        return true;
    }
    /// Those who wait look again whether hosts are still started.
    void look() {
        for (Turn* const turn : waiting_) turn->timer.cancel();
    }

    const asio::any_io_executor& executor() const { return executor_; }

private:
    static constexpr unsigned kLentForEach = 8;  ///< slot

    /// Somebody's place in the lines.
    struct Turn {
        Turn(LoginSlots& of, std::optional<HostId> by)
            : slots(of), relay(by), timer(of.executor_, Timer::time_point::max()) {
            place = slots.waiting_.insert(slots.waiting_.end(), this);
            if (relay) behind = slots.behind_[*relay].insert(slots.behind_[*relay].end(), this);
        }
        ~Turn() { leave(); }
        Turn(const Turn&) = delete;
        Turn& operator=(const Turn&) = delete;

        void comes(LoginTurn what) {
            leave();
            is = what;
            timer.cancel();
        }
        void leave() {
            if (is) return;  // it has
            slots.waiting_.erase(place);
            if (relay) slots.behind_[*relay].erase(behind);
        }

        LoginSlots& slots;
        std::optional<HostId> relay;
        std::list<Turn*>::iterator place, behind;
        Timer timer;
        std::optional<LoginTurn> is;
    };

    asio::any_io_executor executor_;
    unsigned free_;
    unsigned may_lend_;
    std::list<Turn*> waiting_;
    std::map<HostId, std::list<Turn*>> behind_;  ///< of these, those behind a relay
};

/// A slot that was taken; gives it back. While nobody answers, which costs nothing here, somebody else may use it: else
/// hundreds of hosts that swallow packets would keep all others waiting.
class LoginSlot {
public:
    explicit LoginSlot(LoginSlots& slots) : slots_(slots), patience_(slots.executor()) {}
    ~LoginSlot() { is_lent_ ? slots_.end_loan() : slots_.give_back(); }
    LoginSlot(const LoginSlot&) = delete;
    LoginSlot& operator=(const LoginSlot&) = delete;

    /// \param knocks  waits for the host's first answer, and does nothing else
    void use(bool knocks) {
        patience_.cancel();
        is_knocking_ = knocks;
        if (knocks && !is_lent_) lend_later();
    }

private:
    static constexpr std::chrono::seconds kPatience{1};  ///< hosts that are well have answered then

    void lend_later() {
        patience_.expires_at(after(kPatience));
        patience_.async_wait([self = std::weak_ptr(self_)](boost::system::error_code error) {
            const auto slot = self.lock();
            // This may have been under way when the host was to be knocked at anew.
            if (error || !slot || !(*slot)->is_knocking_ || (*slot)->is_lent_) return;
            (*slot)->is_lent_ = (*slot)->slots_.lend();
            if (!(*slot)->is_lent_) (*slot)->lend_later();
        });
    }

    LoginSlots& slots_;
    Timer patience_;
    bool is_knocking_ = false;
    bool is_lent_ = false;
    std::shared_ptr<LoginSlot*> self_ = std::make_shared<LoginSlot*>(this);
};

}  // namespace dtrun::head
