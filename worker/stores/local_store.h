#pragma once

#include "base/loop/asio.h"
#include "worker/stores/job_store.h"

#include <deque>
#include <memory>
#include <unordered_map>
#include <utility>

namespace dtrun::stores {

/// A store in this process.
///
/// Thread: the executor's.
class LocalStore final : public JobStore {
public:
    explicit LocalStore(asio::any_io_executor executor, Store::Limits limits = {});

    const Store& store() const { return store_; }

private:
    Ticket start(const StoreRequest& request, Answer answer) override;
    void forget(Ticket ticket) override;
    void deliver_later();
    void deliver();
    void look();

    Store store_;
    std::unordered_map<Ticket, Answer> waiting_;
    struct Answered {
        Ticket ticket = 0;
        Answer answer;  ///< empty: forgotten meanwhile
        StoreReply reply;
    };
    std::deque<Answered> answered_;
    bool delivering_ = false;  ///< now or soon
    Ticket last_ticket_ = 0;
    Timer timer_;
    Deadline timer_at_ = Deadline::max();
    std::shared_ptr<char> alive_ = std::make_shared<char>();  ///< for what is queued when we die
};

}  // namespace dtrun::stores
