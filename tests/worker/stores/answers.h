#pragma once

#include "worker/stores/job_store.h"

#include <map>
#include <utility>

namespace dtrun::stores {

/// A store that answers when the test says so.
class Answers final : public JobStore {
public:
    using JobStore::Ticket;
    void answer(Ticket ticket, Status status = Status::ok) {
        const auto found = waiting.extract(ticket);
        found.mapped()({status, {}});
    }

    std::map<Ticket, Answer> waiting;

private:
    Ticket start(const StoreRequest&, Answer answer) override {
        waiting[++last_] = std::move(answer);
        return last_;
    }
    void forget(Ticket ticket) override { waiting.erase(ticket); }

    Ticket last_ = 0;
};

}  // namespace dtrun::stores
