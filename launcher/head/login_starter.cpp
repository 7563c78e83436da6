#include "launcher/head/login_starter.h"

#include "base/log.h"
#include "base/strings.h"
#include "hostfiles/nodelist.h"

#include <string.h>
#include <algorithm>

namespace dtrun::head {
namespace {

constexpr std::chrono::seconds kBootstrapWriteLimit{2};  // of a bootstrap
constexpr std::chrono::seconds kSweepLimit{4};    // the user does not wait for a host that is down
constexpr std::chrono::seconds kSweepsLimit{20};  // nor need thousands, in turns of kLoginsMax
constexpr std::chrono::seconds kCleanUpLimit{3};  // for a lost agent to end its ranks and itself
constexpr std::chrono::seconds kDoneLimit{1};     // for one that has no ranks any more
constexpr std::chrono::seconds kAtOnce{0};        // for one that has had none

}  // namespace

LoginStarter::LoginStarter(Parts parts)
    : parts_(std::move(parts)),
      spec_(parts_.spec),
      lifelines_(spec_.hosts.size()),
      login_slot_(parts_.executor, Timer::time_point::max()),
      relay_ready_(parts_.executor, Timer::time_point::max()),
      all_ended_(parts_.executor, Timer::time_point::max()),
      tasks_(parts_.executor) {}

bool LoginStarter::is_ours(HostId host) const {
    return spec_.hosts[host].transport != plan::Transport::slurm;
}

/// Whether a program that the user has chosen leads to the host. It may not end when it should.
bool LoginStarter::is_carried(HostId host) const {
    return spec_.hosts[host].transport == plan::Transport::ssh_command;
}

void LoginStarter::start(StartEvents& events) {
    events_ = &events;
    tasks_.spawn(start_hosts());
}

void LoginStarter::connect(HostId host) {
    if (!is_ours(host)) return;
    while (!lifelines_.has(host)) lifelines_.emplace_back();
    to_connect_.push_back(host);
    if (to_connect_.size() == 1) tasks_.spawn(start_more_hosts());
}

void LoginStarter::look() {
    relay_ready_.cancel();
    if (!events_->is_starting()) login_slot_.cancel();
}

asio::awaitable<void> LoginStarter::start_hosts() {
    const auto hosts = lifelines_.hosts();
    for (const HostId host : hosts) {
        if (!is_ours(host)) continue;
        while (logins_ >= kLoginsMax && events_->is_starting())
            co_await login_slot_.async_wait(use_tuple);
        if (!events_->is_starting()) co_return;
        ++logins_;
        tasks_.spawn(run_host(host));
    }
}

/// As start_hosts(), for those that come later.
asio::awaitable<void> LoginStarter::start_more_hosts() {
    while (!to_connect_.empty()) {
        while (logins_ >= kLoginsMax && events_->is_starting())
            co_await login_slot_.async_wait(use_tuple);
        const HostId host = to_connect_.front();
        to_connect_.pop_front();
        if (!events_->is_starting()) continue;
        ++logins_;
        tasks_.spawn(run_host(host));
    }
}

/// Starts the agent of one host, and holds its lifeline until that ends.
asio::awaitable<void> LoginStarter::run_host(HostId host) {
    const auto limit = spec_.options.connect_timeout;
    const Deadline deadline = after(limit);
    auto started = co_await log_in(host, deadline);
    --logins_;
    login_slot_.cancel();
    if (started) started = co_await tell_agent(host, deadline);
    if (!started) {
        Error error = started.error();
        if (error.code == Errc::cancelled) co_return;
        if (error.code == Errc::timed_out)
            error.message += fmt::format(" within {:.3g} s (--connect-timeout)",
                                         std::chrono::duration<double>(limit).count());
        co_return host_failed(host, error);
    }
    co_await hold_lifeline(host, after(joining_limit(spec_.options)));
}

asio::awaitable<Result<void>> LoginStarter::log_in(HostId host, Deadline deadline) {
    const std::function<void(const char*)> phase = [this, host](const char* what) {
        events_->host_phase(host, what);
    };
    if (!events_->is_starting()) co_return fail(Errc::cancelled, "the job ends");
    auto opened = co_await parts_.channels.open(host, AgentTask::run, deadline, phase);
    if (!opened) co_return std::unexpected(opened.error());
    lifelines_[host] = std::move(*opened);
    const auto held = lifelines_[host];
    if (is_carried(host)) carriers_[host] = held;
    transport::Channel& channel = *held;
    transport::LineReader lines(channel);
    const auto patience = spec_.options.connect_timeout;
    const auto greeted =
        co_await transport::greet_agent(channel, lines, copies_, deadline, patience, phase);
    co_return greeted;
}

/// Sends the host's agent its bootstrap, once the relay to which it is to connect is there.
asio::awaitable<Result<void>> LoginStarter::tell_agent(HostId host, Deadline deadline) {
    co_await wait_for_relay(host);
    Bytes frame = parts_.bootstraps.for_host(host);
    // A slow relay is not this host's fault.
    const Deadline written_by = std::max(deadline, after(kBootstrapWriteLimit));
    auto done = co_await lifelines_[host]->write(frame, written_by);
    ::explicit_bzero(frame.data(), frame.size());
    events_->host_phase(host, joining_phase(spec_.options));
    co_return done;
}

/// Waits for the relay that this host is to connect to. If the relay cannot be started, neither can
/// the job, and this host may connect to the head to be told so.
asio::awaitable<void> LoginStarter::wait_for_relay(HostId host) {
    const auto parent = parts_.hosts.tree().parent(host);
    if (!parent) co_return;
    events_->host_phase(host, "waiting for a host that leads to it");
    while (events_->is_starting() && parts_.hosts[*parent].relay_port == 0 &&
           !events_->has_failed(*parent))
        co_await relay_ready_.async_wait(use_tuple);
}

/// Reads what the agent writes to its standard streams until they end; before the agent has joined,
/// that end is a failure of the host.
asio::awaitable<void> LoginStarter::hold_lifeline(HostId host, Deadline join_deadline) {
    const std::shared_ptr<transport::Channel> held = lifelines_[host];  // it may get another
    transport::Channel& channel = *held;
    const HostState& state = parts_.hosts[host];  // stays where it is while hosts are added
    transport::LineReader lines(channel);
    for (;;) {
        const Deadline deadline = state.session != nullptr ? Deadline::max() : join_deadline;
        const auto line = co_await lines.next(deadline);
        const std::string said(trim(channel.take_errors()));
        if (!said.empty()) log::warn("{}", said);
        if (line && line->starts_with(transport::kAgentFailed)) {
            const std::string why = line->substr(transport::kAgentFailed.size());
            co_return host_failed(
                host, Error{Errc::closed, "the agent cannot reach this machine: " + why});
        }
        if (line) continue;
        if (line.error().code == Errc::cancelled || state.done) co_return;
        if (line.error().code == Errc::timed_out && state.session != nullptr) continue;
        if (state.session != nullptr) co_return;  // its connection tells, and knows better
        std::string what = "the agent started, but did not connect back";
        if (line.error().code != Errc::timed_out) {
            const std::string ending = co_await transport::describe_ending(channel);
            if (state.session != nullptr || state.done) co_return;  // by now
            what = "the agent ended: " + ending;
        }
        co_return host_failed(host, Error{Errc::closed, what});
    }
}

/// Ends what a lost agent may have left on its host: the agent's guard has done so, unless the
/// guard was killed as well.
void LoginStarter::host_lost(HostId host) {
    if (!is_ours(host)) return;
    if (lifelines_[host]) lifelines_[host]->close();  // what is left of the agent ends, too
    end_carrier(host, kCleanUpLimit);
    to_sweep_.emplace_back(host, after(kSweepsLimit));
    if (sweepers_ == kLoginsMax) return;
    ++sweepers_;
    tasks_.spawn(sweep_hosts());
}

void LoginStarter::host_failed(HostId host, const Error& why) {
    end_carrier(host, kAtOnce);
    events_->host_failed(host, why);
}

void LoginStarter::host_left(HostId host) {
    if (lifelines_.has(host) && lifelines_[host]) lifelines_[host]->close();
    end_carrier(host, kDoneLimit);
}

void LoginStarter::end_carrier(HostId host, std::chrono::milliseconds patience) {
    auto carrier = carriers_.extract(host);
    if (carrier.empty()) return;
    ending_.push_back(carrier.mapped());
    tasks_.spawn(wait_for_end(std::move(carrier.mapped()), patience));
}

asio::awaitable<void> LoginStarter::wait_for_end(std::shared_ptr<transport::Channel> carrier,
                                                 std::chrono::milliseconds patience) {
    co_await carrier->end(patience);
    std::erase(ending_, carrier);
    if (ending_.empty()) all_ended_.cancel();
}

asio::awaitable<void> LoginStarter::sweep_hosts() {
    while (!to_sweep_.empty()) {
        const auto [host, until] = to_sweep_.front();
        to_sweep_.pop_front();
        if (Clock::now() < until)
            co_await sweep(host);
        else
            not_swept_.push_back(parts_.hosts.name(host));
    }
    --sweepers_;
    if (sweepers_ > 0) co_return;
    if (!not_swept_.empty())
        log::warn("{}: too many hosts are lost to look for processes there",
                  name_hosts(std::exchange(not_swept_, {})));
    events_->starter_idle();
}

asio::awaitable<void> LoginStarter::sweep(HostId host) {
    const Deadline deadline = after(kSweepLimit);
    const std::function<void(const char*)> phase = [](const char*) {};
    auto opened = co_await parts_.channels.open(host, AgentTask::sweep, deadline, phase);
    if (!opened) co_return;
    const std::shared_ptr<transport::Channel> channel = std::move(*opened);
    if (is_carried(host)) ending_.push_back(channel);
    transport::LineReader lines(*channel);
    const auto line = co_await lines.next(deadline);
    if (line) log::info("{}: processes left behind, and ended: {}", parts_.hosts.name(host), *line);
    if (!is_carried(host)) co_return;
    const std::chrono::milliseconds patience = line ? kDoneLimit : kAtOnce;
    co_await wait_for_end(channel, patience);
}

/// Agents end by themselves, and so does an ssh whose agent has ended.
asio::awaitable<void> LoginStarter::end(bool hurry) {
    while (!carriers_.empty()) {
        const HostId host = carriers_.begin()->first;
        end_carrier(host, parts_.hosts[host].joined ? kDoneLimit : kAtOnce);
    }
    if (hurry)
        for (const auto& carrier : ending_) carrier->kill();
    while (!ending_.empty()) co_await all_ended_.async_wait(use_tuple);
}

asio::awaitable<void> LoginStarter::join() {
    tasks_.stop();
    co_await tasks_.join();
}

}  // namespace dtrun::head
