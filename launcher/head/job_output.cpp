#include "launcher/head/job_output.h"

#include "base/log.h"
#include "launcher/output/output_layout.h"
#include "launcher/plan/exit_code.h"
#include "launcher/report/report.h"
#include "launcher/report/report_json.h"
#include "launcher/report/torch_error.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/output_messages.h"

#include <set>
#include <utility>

namespace dtrun::head {

JobOutput::JobOutput(asio::any_io_executor executor, const plan::JobSpec& spec,
                     output::Output& output, Hosts& hosts, StopDeadlines& stop_deadlines,
                     JobInspector& inspector, Router<HostId>& router,
                     std::function<void()> reader_gone)
    : spec_(spec),
      output_(output),
      hosts_(hosts),
      stop_deadlines_(stop_deadlines),
      inspector_(inspector),
      reader_gone_(std::move(reader_gone)),
      folds_(executor),
      idle_(std::move(executor), Timer::time_point::max()) {
    router.on(FrameType::output,
              [this](HostId host, std::string_view payload) { return add(host, payload); });
}

Result<void> JobOutput::add(HostId host, std::string_view payload) {
    const auto output = decode_output(payload);
    if (!output) return std::unexpected(output.error());
    const auto rank = hosts_.planned_on(host, output->header.place);
    if (!rank) return {};
    inspector_.output(*rank, *output);
    stop_deadlines_.output(host).add(output->data.size());
    output_.add(*rank, output->header.stream, output->header.time_ns, output->data);
    watch_folds();
    return {};
}

/// Lines that wait for equal ones are shown in time, though nothing else may happen.
void JobOutput::watch_folds() {
    const auto due = output_.due();
    if (!due || folds_run_) return;
    folds_run_ = true;
    folds_.expires_at(*due);
    folds_.async_wait([this](const boost::system::error_code& error) {
        if (error) return;
        folds_run_ = false;
        return_credits();
    });
}

void JobOutput::finish(plan::SlotId rank, Stream stream) {
    if (stream == Stream::out || stream == Stream::err) output_.finish(rank, stream);
    watch_folds();
}

std::vector<std::string> JobOutput::tail(plan::SlotId rank) const {
    return output_.tail(rank);
}

void JobOutput::tell_restart(const report::JobOutcome& because) {
    show(because, report_text(because));
}

void JobOutput::show(const report::JobOutcome& outcome, const std::string& text) {
    const std::string on_terminal = report::failure_report(
        outcome, spec_, hosts_.numbers(), [this](plan::SlotId rank) { return tail(rank); },
        [this](plan::SlotId rank, std::size_t lines) { return output_.is_on_screen(rank, lines); });
    output_.report({on_terminal, text, outcome.cause != Job::Cause::interrupted});
}

void JobOutput::return_credits() {
    std::set<HostId> served;
    for (const output::OutputCredit& credit : output_.collect()) {
        const std::size_t rank = std::to_underlying(credit.rank);
        const HostId host = plan::host_of(spec_.placement.ranks[rank]);
        stop_deadlines_.output(host).left(credit.bytes, Clock::now());
        served.insert(host);
    }
    for (const HostId host : served)
        if (const auto bytes = stop_deadlines_.output(host).take_credit())
            hosts_.send(host, encode(Credit{bytes}));
    for (Error& failure : output_.take_failures()) failed(std::move(failure));
    watch_folds();
    if (output_.idle()) idle_.cancel();
}

/// A console whose reader is gone ends the job, as it ends a program. A file that cannot be written
/// does not end the job, but is reported and makes it fail.
void JobOutput::failed(Error failure) {
    if (failure.code == Errc::closed) {
        reader_gone_();
        failures_.push_back(std::move(failure.message));
        return;
    }
    if (exit_code_ == 0) exit_code_ = plan::kExitInternal;
    output_.message("dtrun: " + failure.message + "\n");
}

void JobOutput::add_slots(plan::SlotId first) {
    output_.add_slots(output::more_slots(spec_, first));
}

void JobOutput::host_gone(HostId host) {
    for (const plan::SlotId rank : spec_.hosts[host].ranks)
        for (const Stream stream : {Stream::out, Stream::err}) output_.finish(rank, stream);
}

asio::awaitable<void> JobOutput::drain(const bool& hurry) {
    for (const HostId host : hosts_.hosts()) host_gone(host);  // some may have been lost
    watch_folds();
    while (!output_.idle() && !hurry) co_await idle_.async_wait(use_tuple);
}

std::string JobOutput::report_text(const report::JobOutcome& outcome) const {
    return report::failure_report(outcome, spec_, hosts_.numbers(),
                                  [this](plan::SlotId rank) { return tail(rank); });
}

boost::json::object JobOutput::outcome_json(const report::JobOutcome& outcome) const {
    return report::outcome_json(outcome, spec_, hosts_.numbers(),
                                [this](plan::SlotId rank) { return tail(rank); });
}

int JobOutput::report(const report::JobOutcome& outcome, const std::string& text,
                      std::chrono::milliseconds limit) {
    return_credits();
    for (const std::string& failure : failures_) output_.message("dtrun: " + failure + "\n");
    show(outcome, text);
    const std::string& error_file = spec_.options.error_file;
    if (outcome.first && !error_file.empty())
        if (const auto left = report::leave_torch_error(error_file, *outcome.first); !left)
            output_.message("dtrun: " + left.error().message + "\n");
    log::set_sink(nullptr, nullptr);
    output_.stop(after(limit));
    if (!output_.is_stderr_alive()) log::set_sink([](void*, std::string_view) {}, nullptr);
    for (const Error& abandoned : output_.take_failures()) {
        log::error("{}", abandoned.message);
        if (exit_code_ == 0 && abandoned.code != Errc::closed) exit_code_ = plan::kExitInternal;
    }
    return exit_code_;
}

}  // namespace dtrun::head
