#include "launcher/head/lookout.h"

#include "launcher/head/stacks_text.h"
#include "launcher/plan/exit_code.h"
#include "rendezvous/wire/message.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <limits>
#include <utility>

namespace dtrun::head {
namespace {

/// How long a job that hangs is kept for its stacks.
constexpr std::uint32_t kReportLimitMs = 3'000;
constexpr std::size_t kReportLinesMax = 40;

Answer on_error(std::string text) {
    Answer answer;
    answer.text = std::move(text);
    answer.stream = Stream::err;
    return answer;
}

}  // namespace

Lookout::Lookout(asio::any_io_executor executor, const plan::JobSpec& spec, Hosts& hosts,
                 output::StdinPump& input)
    : executor_(executor),
      spec_(spec),
      hosts_(hosts),
      input_(input),
      survey_(executor, hosts),
      tasks_(executor) {}

asio::awaitable<void> Lookout::join() {
    tasks_.stop();
    co_await tasks_.join();
}

void Lookout::asked(control::CallerId caller, const Ask& ask) {
    switch (ask.wish) {
        case Wish::stacks:
            return tasks_.spawn(answer_stacks(caller, ask));
        case Wish::attach:
            return attach(caller, ask);
    }
    refuse(caller, "this dtrun does not know what is asked");
}

void Lookout::refuse(control::CallerId caller, const std::string& why) {
    Answer answer = on_error("dtrun: " + why + "\n");
    answer.last = true;
    answer.code = plan::kExitUsage;
    server_->answer(caller, answer);
}

asio::awaitable<std::vector<std::string>> Lookout::stacks_for_report() {
    Look look;
    look.limit_ms = kReportLimitMs;
    look.only_by_tools = true;
    const Survey survey = co_await survey_.ask(look);
    const auto host_of = [this](Rank rank) { return hosts_.name_of_host(rank); };
    co_return stacks_text(survey.processes, host_of, kReportLinesMax);
}

asio::awaitable<void> Lookout::answer_stacks(control::CallerId caller, Ask ask) {
    Look look;
    look.limit_ms = ask.limit_ms;
    look.signal = ask.signal;
    const Survey survey = co_await survey_.ask(look);
    const auto host_of = [this](Rank rank) { return hosts_.name_of_host(rank); };
    std::string text;
    for (const std::string& line : stacks_text(survey.processes, host_of, SIZE_MAX))
        text += line + "\n";
    Answer answer;
    answer.text =
        ask.signal == 0
            ? std::move(text)
            : fmt::format("{} ranks catch the signal; what they print is in the job's output\n",
                          survey.signalled);
    server_->answer(caller, answer);
    Answer end = on_error(summary(survey));
    end.last = true;
    end.code = survey.silent.empty() ? 0 : 1;
    server_->answer(caller, end);
}

/// Which hosts have not answered.
std::string Lookout::summary(const Survey& survey) const {
    std::vector<std::string> names;
    for (const HostId host : survey.silent) names.push_back(hosts_.name(host));
    if (names.empty()) return {};
    return fmt::format("dtrun: no answer in time: {} (--timeout)\n", fmt::join(names, ", "));
}

bool Lookout::takes_input(plan::PlannedRank rank) const {
    using Kind = plan::StdinTarget::Kind;
    const plan::StdinTarget& target = spec_.options.stdin_target;
    const Rank number = hosts_.numbers().of(rank);
    return target.kind == Kind::all ||
           (target.kind == Kind::rank && std::cmp_equal(std::to_underlying(number), target.rank));
}

void Lookout::attach(control::CallerId caller, const Ask& ask) {
    const auto rank = hosts_.numbers().place_of(ask.rank);
    if (!rank) return refuse(caller, fmt::format("the job has no rank {} here", ask.rank));
    watchers_[caller].rank = *rank;
    Answer first;
    first.raw_terminal =
        spec_.options.pty && std::cmp_equal(*spec_.options.pty, std::to_underlying(ask.rank));
    if (!takes_input(*rank) || input_.ended())
        first =
            on_error(fmt::format("dtrun: rank {} takes no input ({}); this is its output\n",
                                 ask.rank, takes_input(*rank) ? "its end was read" : "--stdin"));
    server_->answer(caller, first);
    if (first.raw_terminal && ask.has_terminal) resized(caller, ask.size);
}

void Lookout::show(plan::PlannedRank rank, const OutputView& output) {
    for (auto& [caller, watcher] : watchers_) {
        if (watcher.rank != rank) continue;
        // The job does not wait for who watches.
        if (!server_->has_room(caller)) {
            watcher.dropped_bytes += output.data.size();
            continue;
        }
        if (const auto dropped = std::exchange(watcher.dropped_bytes, 0); dropped > 0)
            server_->answer(caller, on_error(fmt::format("dtrun: {} bytes are left out here, as "
                                                         "they were not read\n",
                                                         dropped)));
        Answer answer;
        answer.text = output.data;
        answer.stream = output.header.stream;
        server_->answer(caller, answer);
    }
}

void Lookout::output_ended(plan::PlannedRank rank, Stream stream) {
    if (stream != Stream::out) return;
    for (auto& [caller, watcher] : watchers_) {
        if (watcher.rank != rank) continue;
        watcher.has_ended = true;
        finish_if_ended(caller, watcher);
    }
}

void Lookout::rank_ended(plan::PlannedRank rank, const Exited& exited) {
    for (auto& [caller, watcher] : watchers_) {
        if (watcher.rank != rank) continue;
        watcher.code = exited.signal != 0 ? plan::kExitSignalBase + exited.signal : exited.code;
        finish_if_ended(caller, watcher);
    }
}

void Lookout::finish_if_ended(control::CallerId caller, const Watcher& watcher) {
    if (!watcher.has_ended || !watcher.code) return;
    Answer end;
    end.last = true;
    end.code = static_cast<std::uint8_t>(*watcher.code);
    server_->answer(caller, end);
}

/// A piece at a time: the next one comes when this one is answered.
void Lookout::typed(control::CallerId caller, std::string_view bytes) {
    const auto found = watchers_.find(caller);
    if (found == watchers_.end()) return;
    if (takes_input(found->second.rank)) input_.inject(bytes);
    found->second.waits_for_room = true;
    input_taken();
}

void Lookout::input_taken() {
    if (watchers_.empty() || !input_.has_room()) return;
    for (auto& [caller, watcher] : watchers_) {
        if (!std::exchange(watcher.waits_for_room, false)) continue;
        Answer answer;
        answer.takes_more = true;
        server_->answer(caller, answer);
    }
}

void Lookout::resized(control::CallerId caller, const TerminalSize& size) {
    const auto found = watchers_.find(caller);
    if (found == watchers_.end() || !spec_.options.pty) return;
    const auto place = hosts_.numbers().place_of(static_cast<Rank>(*spec_.options.pty));
    if (place != found->second.rank) return;
    const RankPlace& where = spec_.placement.ranks[std::to_underlying(*place)];
    hosts_.send(plan::host_of(where), encode(Resize{size}));
}

void Lookout::left(control::CallerId caller) {
    watchers_.erase(caller);
}

}  // namespace dtrun::head
