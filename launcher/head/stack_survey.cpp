#include "launcher/head/stack_survey.h"

#include "rendezvous/wire/message.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace dtrun::head {
namespace {

/// For answers to come once agents stop looking.
constexpr std::chrono::milliseconds kOnTheWay{500};

}  // namespace

asio::awaitable<Survey> StackSurvey::ask(Look look) {
    Question question(executor_);
    look.number = ++last_number_;
    const Bytes frame = encode(look);
    for (const HostId host : hosts_.hosts()) {
        if (hosts_[host].session == nullptr || hosts_[host].done) continue;
        question.missing.insert(host);
        hosts_.send(host, frame);
    }
    if (question.missing.empty()) co_return std::move(question.survey);
    questions_[look.number] = &question;
    question.over.expires_after(std::chrono::milliseconds(look.limit_ms) + kOnTheWay);
    co_await question.over.async_wait(use_tuple);
    questions_.erase(look.number);
    std::ranges::copy(question.missing, std::back_inserter(question.survey.silent));
    co_return std::move(question.survey);
}

void StackSurvey::answered(HostId host, Stacks stacks) {
    const auto found = questions_.find(stacks.number);
    if (found == questions_.end()) return;
    Question& question = *found->second;
    if (question.missing.erase(host) == 0) return;
    for (ProcessStacks& process : stacks.processes) question.survey.stacks.add(std::move(process));
    question.survey.signalled += stacks.signalled;
    if (question.missing.empty()) question.over.cancel();
}

void StackSurvey::host_gone(HostId host) {
    for (const auto& [number, question] : questions_) {
        if (question->missing.erase(host) == 0) continue;
        question->survey.silent.push_back(host);
        if (question->missing.empty()) question->over.cancel();
    }
}

}  // namespace dtrun::head
