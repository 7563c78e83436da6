#pragma once

#include "base/loop/asio.h"
#include "base/loop/deadline.h"
#include "base/numbered.h"
#include "launcher/head/hosts.h"
#include "rendezvous/wire/message.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace dtrun::head {

/// Asks all agents the same, and waits for their answers. Both messages have a `number`.
///
/// Thread: the loop's. Lifetime: `hosts` outlives it; ask() must have ended before destruction.
template <class Question, class Reply>
class AgentSurvey {
public:
    AgentSurvey(asio::any_io_executor executor, Hosts& hosts)
        : executor_(std::move(executor)), hosts_(hosts) {}

    /// Returns when all connected hosts have answered, or at the limit.
    /// \param question  its number is set here
    /// \param take      called with each answer as it comes
    /// \return hosts that have not answered in time
    asio::awaitable<std::vector<HostId>> ask(Question question, std::chrono::milliseconds limit,
                                             std::function<void(Reply)> take) {
        Asked asked(executor_, std::move(take));
        question.number = ++last_number_;
        const Bytes frame = encode(question);
        for (const HostId host : hosts_.hosts()) {
            if (hosts_[host].session == nullptr || hosts_[host].done) continue;
            asked.missing.insert(host);
            hosts_.send(host, frame);
        }
        if (asked.missing.empty()) co_return std::vector<HostId>{};
        questions_[question.number] = &asked;
        asked.over.expires_after(limit);
        co_await asked.over.async_wait(use_tuple);
        questions_.erase(question.number);
        std::vector<HostId> silent = std::move(asked.silent);
        silent.insert(silent.end(), asked.missing.begin(), asked.missing.end());
        co_return silent;
    }

    void answered(HostId host, Reply reply) {
        const auto found = questions_.find(reply.number);
        if (found == questions_.end() || found->second->missing.erase(host) == 0) return;
        found->second->take(std::move(reply));
        if (found->second->missing.empty()) found->second->over.cancel();
    }

    void host_gone(HostId host) {
        for (const auto& [number, asked] : questions_) {
            if (asked->missing.erase(host) == 0) continue;
            asked->silent.push_back(host);
            if (asked->missing.empty()) asked->over.cancel();
        }
    }

private:
    struct Asked {
        Asked(const asio::any_io_executor& executor, std::function<void(Reply)> take_)
            : take(std::move(take_)), over(executor) {}
        std::function<void(Reply)> take;
        std::set<HostId> missing{};
        std::vector<HostId> silent{};
        Timer over;
    };

    asio::any_io_executor executor_;
    Hosts& hosts_;
    std::map<std::uint32_t, Asked*> questions_;
    std::uint32_t last_number_ = 0;
};

}  // namespace dtrun::head
