#include "launcher/transport/login_gate.h"

#include "base/loop/deadline.h"
#include "launcher/transport/agent_starter.h"
#include "launcher/transport/ssh_login.h"

#include <chrono>

namespace dtrun::transport {
namespace {

/// From the first packet to a host until it is taken for one that swallows packets. All that are well have answered then.
constexpr std::chrono::milliseconds kAnswerPatience{300};
/// A program that has done nothing between two looks is taken to wait for a host. That may compute meanwhile, or ask others.
constexpr std::chrono::milliseconds kIdlePatience{500};
/// One who has only waited for so long makes room behind a jump host, too. Sooner it may be that one, or what its sshd asks,
/// that is slow; and sshd refuses some where more than ten are not yet let in.
constexpr std::chrono::seconds kPatienceBehind{5};

}  // namespace

LoginGate::LoginGate(asio::any_io_executor executor, unsigned logins_at_once,
                     std::function<bool()> is_open)
    : executor_(std::move(executor)), is_open_(std::move(is_open)), all_(logins_at_once) {
    if (!is_open_) is_open_ = [] { return true; };
}

bool LoginGate::hand_over(HostId relay) {
    const auto line = all_.behind.find(relay);
    if (line == all_.behind.end() || line->second.empty()) return false;
    line->second.front()->come(LoginTurn::given);
    return true;
}

void LoginGate::look() {
    for (Place* const place : all_.waiting) place->look();
    for (auto& [route, line] : behind_)
        for (Place* const place : line.waiting) place->look();
}

LoginGate::Line& LoginGate::behind(const std::string& route) {
    return behind_.try_emplace(route, kLoginsBehindMax).first->second;
}

void LoginGate::Line::give_back() {
    ++free;
    if (free > 0 && !waiting.empty()) waiting.front()->come(LoginTurn::own);
}

LoginGate::Place::Place(Line& line, Timer& news, std::optional<HostId> relay)
    : line_(line), news_(news), relay_(relay) {
    at_ = line_.waiting.insert(line_.waiting.end(), this);
    if (relay_) {
        auto& behind = line_.behind[*relay_];
        behind_at_ = behind.insert(behind.end(), this);
    }
    if (line_.free > 0) come(LoginTurn::own);
}

LoginGate::Place::~Place() {
    if (!turn_) leave();
    if (turn_ != LoginTurn::own) return;
    if (is_lent_)
        ++line_.may_lend;
    else
        line_.give_back();
}

void LoginGate::Place::come(LoginTurn what) {
    leave();
    turn_ = what;
    if (what == LoginTurn::own) --line_.free;
    news_.cancel();
}

void LoginGate::Place::leave() {
    line_.waiting.erase(at_);
    if (relay_) line_.behind[*relay_].erase(behind_at_);
}

void LoginGate::Place::lend() {
    if (is_lent_ || line_.may_lend == 0) return;
    is_lent_ = true;
    --line_.may_lend;
    line_.give_back();
}

void LoginGate::Place::end_loan() {
    if (!is_lent_) return;
    is_lent_ = false;
    ++line_.may_lend;
    --line_.free;
}

LoginPass::LoginPass(LoginGate& gate)
    : gate_(gate), news_(gate.executor_, Timer::time_point::max()), patience_(gate.executor_) {}

asio::awaitable<LoginTurn> LoginPass::wait(std::string route, std::optional<HostId> relay) {
    if (!route.empty()) behind_.emplace(gate_.behind(route), news_, std::nullopt);
    while (behind_ && !behind_->turn() && gate_.is_open_()) co_await news_.async_wait(use_tuple);
    if (!gate_.is_open_()) co_return LoginTurn::over;
    place_.emplace(gate_.all_, news_, relay);
    while (!place_->turn() && gate_.is_open_()) co_await news_.async_wait(use_tuple);
    co_return gate_.is_open_() ? *place_->turn() : LoginTurn::over;
}

void LoginPass::now(std::string_view phase) {
    if (is_knocking(phase)) return knocks();
    works();
    if (is_left_to_hosts(phase)) rests();
}

/// It is let in, so it also makes room behind a jump host at once.
void LoginPass::rests() {
    if (place_) place_->lend();
    if (behind_) behind_->lend();
}

void LoginPass::knocks() {
    works();
    only_waits_ = [] { return true; };
    patience_time_ = kAnswerPatience;
    look_later();
}

void LoginPass::watch(std::shared_ptr<const Channel> carrier) {
    works();
    if (!carrier->is_carried()) return;
    only_waits_ = [carrier, before = carrier->busy_time()]() mutable {
        const auto now = carrier->busy_time();
        return now && std::exchange(before, now) == now;
    };
    patience_time_ = kIdlePatience;
    look_later();
}

void LoginPass::works() {
    only_waits_ = nullptr;
    waits_since_.reset();
    patience_.cancel();
    if (place_) place_->end_loan();
    if (behind_) behind_->end_loan();
}

void LoginPass::look_later() {
    patience_.expires_at(after(patience_time_));
    patience_.async_wait([self = std::weak_ptr(self_)](boost::system::error_code error) {
        const auto pass = self.lock();
        // The time may have come when the log-in had just gone on.
        if (!error && pass && (*pass)->only_waits_ && Clock::now() >= (*pass)->patience_.expiry())
            (*pass)->look();
    });
}

void LoginPass::look() {
    const Deadline now = Clock::now();
    if (!only_waits_()) {
        waits_since_.reset();
        if (place_) place_->end_loan();
        if (behind_) behind_->end_loan();
    } else {
        if (!waits_since_) waits_since_ = now - patience_time_;
        if (place_) place_->lend();
        if (behind_ && now >= *waits_since_ + kPatienceBehind) behind_->lend();
    }
    look_later();
}

}  // namespace dtrun::transport
