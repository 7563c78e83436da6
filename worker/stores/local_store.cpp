#include "worker/stores/local_store.h"

#include <algorithm>

namespace dtrun::stores {

LocalStore::LocalStore(asio::any_io_executor executor, Store::Limits limits)
    : store_(
          [this](Store::Token token, const StoreReply& reply) {
              const auto waiting = waiting_.extract(token.second);
              if (waiting.empty()) return;
              answered_.push_back({token.second, std::move(waiting.mapped()), reply});
          },
          nullptr, limits),
      timer_(executor) {}

JobStore::Ticket LocalStore::start(const StoreRequest& request, Answer answer) {
    const Ticket ticket = ++last_ticket_;
    auto reply = store_.ask({1, ticket}, request, Clock::now());
    if (reply)
        answered_.push_back({ticket, std::move(answer), std::move(*reply)});
    else
        waiting_.emplace(ticket, std::move(answer));
    look();
    deliver_later();
    return ticket;
}

void LocalStore::forget(Ticket ticket) {
    if (waiting_.erase(ticket) > 0) return store_.forget({1, ticket});
    const auto answered = std::ranges::find(answered_, ticket, &Answered::ticket);
    if (answered != answered_.end()) answered->answer = nullptr;
}

/// Who asks is not answered before the call is over.
void LocalStore::deliver_later() {
    if (answered_.empty() || std::exchange(delivering_, true)) return;
    asio::post(timer_.get_executor(), [this, alive = std::weak_ptr(alive_)] {
        if (!alive.expired()) deliver();
    });
}

/// Also what is answered meanwhile, as who is answered may ask again.
void LocalStore::deliver() {
    delivering_ = true;
    while (!answered_.empty()) {
        const Answered next = std::move(answered_.front());
        answered_.pop_front();
        if (next.answer) next.answer(next.reply);
    }
    delivering_ = false;
}

void LocalStore::look() {
    const Deadline next = store_.next_deadline();
    if (next >= timer_at_) return;
    timer_at_ = next;
    timer_.expires_at(next);
    timer_.async_wait([this, alive = std::weak_ptr(alive_)](boost::system::error_code error) {
        if (error || alive.expired()) return;
        timer_at_ = Deadline::max();
        store_.expire(Clock::now());
        look();
        deliver_later();
    });
}

}  // namespace dtrun::stores
