#include "launcher/watch/event_commands.h"

#include "base/environment.h"
#include "base/log.h"
#include "base/strings.h"
#include "base/text_layout.h"

#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <utility>

namespace dtrun::watch {
namespace {

constexpr std::size_t kCallsMax = 10'000;  // that wait; a job of many ranks has many events
constexpr std::chrono::milliseconds kEndLimit{1'000};  // from SIGKILL to its exit

std::vector<std::string> environment_for(const std::string& event, const std::string& job) {
    std::vector<std::string> env = own_environment();
    env.push_back("DTRUN_EVENT=" + event);
    env.push_back("DTRUN_JOB=" + job);
    return env;
}

}  // namespace

std::vector<std::string> events_by_default() {
    return {"job_started", "host_failed", "host_lost", "restart", "job_ended"};
}

EventCommands::EventCommands(asio::any_io_executor executor,
                             std::vector<plan::EventCommand> commands, std::string job)
    : executor_(executor),
      commands_(std::move(commands)),
      job_(std::move(job)),
      idle_(executor, Timer::time_point::max()),
      tasks_(executor) {}

void EventCommands::happened(const Event& event) {
    const std::string name(name_of(event.kind));
    for (const plan::EventCommand& command : commands_) {
        if (std::ranges::find(command.events, name) == command.events.end()) continue;
        if (calls_.size() >= kCallsMax && event.kind != EventKind::job_ended) {
            ++dropped_;
            continue;
        }
        calls_.push_back({command.line, name, to_json(event, job_) + "\n"});
    }
    if (!calls_.empty() && !std::exchange(running_, true)) tasks_.spawn(run_calls());
}

asio::awaitable<void> EventCommands::run_calls() {
    while (!calls_.empty()) {
        Call call = std::move(calls_.front());
        calls_.pop_front();
        co_await run(std::move(call));
    }
    running_ = false;
    idle_.cancel();
}

/// What it prints counts as its trouble. It may close its output, or leave it to others, when it likes.
asio::awaitable<void> EventCommands::run(Call call) {
    auto started = transport::start_process(executor_, {"sh", "-c", "exec >&2; " + call.line},
                                            environment_for(call.event, job_), SIGKILL);
    if (!started) {
        log::warn("--on-event: {}", started.error().message);
        co_return;
    }
    process_ = std::move(*started);
    const Deadline deadline = after(kRunLimit);
    // A command that does not read its event has no use for it.
    const auto written = co_await process_->write(call.input, deadline);
    if (!written) log::debug("--on-event: {}", written.error().message);
    process_->close_input();
    std::string ending = co_await process_->ending(deadline);
    if (ending.empty()) {
        process_->kill();
        const std::string killed = co_await process_->ending(after(kEndLimit));
        ending = fmt::format("has not ended within {} s, and was {}", kRunLimit.count(),
                             killed.empty() ? "given up" : "killed");
    }
    const std::string said(trim(process_->take_errors()));
    if (ending != "exit status 0" || !said.empty())
        log::warn("--on-event, for {}: {}{}{}", call.event, ending, said.empty() ? "" : ": ", said);
    process_.reset();
}

void EventCommands::hurry() {
    hurry_ = true;
    idle_.cancel();
}

asio::awaitable<void> EventCommands::finish(Deadline deadline) {
    // The end is what most want to hear of.
    std::ranges::stable_partition(
        calls_, [](const Call& call) { return call.event == name_of(EventKind::job_ended); });
    if (running_ && !hurry_) {
        idle_.expires_at(deadline);
        co_await idle_.async_wait(use_tuple);
    }
    const std::size_t left = calls_.size() + dropped_ + (process_ ? 1 : 0);
    calls_.clear();
    if (process_) process_->kill();
    if (left > 0)
        log::warn("--on-event: {} had not ended, or not begun, when the job was over",
                  plural(left, "command"));
    tasks_.stop();
    co_await tasks_.join();
}

}  // namespace dtrun::watch
