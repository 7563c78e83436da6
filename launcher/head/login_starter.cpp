#include "launcher/head/login_starter.h"

#include "base/log.h"
#include "base/strings.h"
#include "hostfiles/nodelist.h"
#include "launcher/transport/retries.h"

#include <string.h>
#include <algorithm>
#include <iterator>
#include <utility>

namespace dtrun::head {
namespace {

constexpr std::chrono::seconds kSweepLimit{4};    // the user does not wait for a host that is down
constexpr std::chrono::seconds kSweepsLimit{20};  // nor need thousands, in turns
constexpr std::chrono::seconds kCleanUpLimit{3};  // for a lost agent to end its ranks and itself
constexpr std::chrono::seconds kDoneLimit{1};     // for one that has no ranks any more
constexpr std::chrono::seconds kAtOnce{0};        // for one that has had none
constexpr std::chrono::milliseconds kLastPause{
    2'000};  // before another log-in to an sshd that hangs up

/// The port is another one for each job.
constexpr const char* kWayThroughFirewalls =
    "; if a firewall here keeps hosts out, let them in, name another network "
    "(--network-interfaces), or "
    "have one port for all jobs (dtrun serve --listen, and dtrun join)";

/// What can be done where an agent cannot connect back; empty: its message does not say that.
std::string_view way_back(std::string_view why) {
    if (!why.starts_with("the agent cannot reach this machine")) return "";
    if (why.contains("127.0.0.1 (Network is unreachable)"))
        return "; this network namespace has no loopback: ip link set lo up";
    return kWayThroughFirewalls;
}

}  // namespace

LoginStarter::LoginStarter(Parts parts)
    : parts_(std::move(parts)),
      spec_(parts_.spec),
      tree_logins_(parts_.executor, parts_.hosts, parts_.secret),
      lifelines_(spec_.hosts.size()),
      agents_(spec_.hosts.size(), 0),
      last_agent_(spec_.hosts.size()),  // numbers up to that are of agents that a scheduler starts
      copies_(spec_.hosts.size()),
      gate_(parts_.executor, static_cast<unsigned>(spec_.options.fanout),
            [this] { return events_->is_starting(); }),
      relay_ready_(parts_.executor, Timer::time_point::max()),
      all_ended_(parts_.executor, Timer::time_point::max()),
      tasks_(parts_.executor) {
    const auto is_apart = [this](HostId host) {  // one of this machine would only cost it more
        return parts_.hosts.tree().is_relay(host) &&
               spec_.hosts[host].transport != plan::Transport::local;
    };
    const bool is_wanted =
        spec_.options.tree_login != plan::TreeLogin::off && !spec_.options.warm.keep;
    if (is_wanted)
        std::ranges::copy_if(spec_.hosts.hosts(), std::back_inserter(awaited_relays_), is_apart);
}

bool LoginStarter::is_ours(HostId host) const {
    return spec_.hosts[host].transport != plan::Transport::slurm;
}

void LoginStarter::start(StartEvents& events) {
    events_ = &events;
    awaited_until_ = after(spec_.options.wait_for_hosts);
    for (const HostId host : lifelines_.hosts())
        if (is_ours(host)) tasks_.spawn(run_host(host));
}

void LoginStarter::connect(HostId host) {
    if (!is_ours(host)) return;
    while (!lifelines_.has(host)) lifelines_.emplace_back();
    while (!agents_.has(host)) agents_.emplace_back();
    tasks_.spawn(run_host(host));
}

void LoginStarter::look() {
    relay_ready_.cancel();
    if (events_->is_starting()) return add_givers();
    if (!std::exchange(all_logged_in_, true)) tasks_.spawn(parts_.channels.all_logged_in());
    gate_.look();
}

void LoginStarter::beat(Clock::duration late) {
    lost_time_ += late;
    std::erase_if(left_, [](const auto& channel) { return channel->has_ended(); });
}

/// Starts the agent of one host, and holds its lifeline until that ends.
asio::awaitable<void> LoginStarter::run_host(HostId host) {
    auto started = co_await log_in(host);
    if (started) started = co_await tell_agent(host);
    if (!started) {
        Error error = started.error();
        if (error.code == Errc::cancelled) co_return;
        if (error.code == Errc::timed_out) {
            const std::chrono::duration<double> limit = spec_.options.connect_timeout;
            error.message += fmt::format(" within {:.3g} s (--connect-timeout)", limit.count());
        }
        co_return host_failed(host, error);
    }
    co_await hold_lifeline(host);
}

/// Logs in, again and again where it is worth it: until --connect-timeout, and to a host that is not there yet until
/// --wait-for-hosts.
asio::awaitable<Result<void>> LoginStarter::log_in(HostId host) {
    const bool is_kept = co_await take_kept(host);
    if (is_kept) co_return Result<void>{};
    std::optional<Deadline> deadline;
    bool was_awaited = false;
    const transport::Patience patience{spec_.options.connect_timeout, spec_.options.wait_for_hosts};
    const auto gives_up = [&](Error why) {
        return std::unexpected(transport::given_up(std::move(why), patience, was_awaited));
    };
    for (unsigned attempt = 0;; ++attempt) {
        const auto lost_before = lost_time_;
        const auto done = co_await log_in_once(host, deadline);
        if (done || done.error().code == Errc::cancelled) co_return done;
        Error error = done.error();
        drop(host, kAtOnce);
        const auto number = static_cast<std::uint32_t>(std::to_underlying(host));
        const bool is_awaited = transport::may_come(error.code) && Clock::now() < awaited_until_;
        // The last attempt is at the end of the wait, not before it.
        Deadline next =
            std::min(after(transport::pause_before(attempt, number, transport::kLastLongPause)),
                     awaited_until_);
        was_awaited = was_awaited || is_awaited;
        if (error.code == Errc::timed_out && !is_awaited) {
            // A beat that is due, too, tells whether it is us who did not answer.
            co_await asio::post(parts_.executor, asio::use_awaitable);
            if (lost_time_ == lost_before) co_return gives_up(std::move(error));
            deadline = after(lost_time_ - lost_before);
            continue;
        }
        if (!is_awaited) next = after(transport::pause_before(attempt, number, kLastPause));
        if (!is_awaited && (error.code != Errc::closed || next >= *deadline))
            co_return gives_up(std::move(error));
        if (is_awaited) deadline.reset();
        log::info("{}: {}; trying again", parts_.hosts.name(host), error.message);
        events_->host_phase(host, transport::awaited(error.code));
        Timer pause(parts_.executor, next);
        co_await pause.async_wait(use_tuple);
    }
}

/// Time that passes here is none of --connect-timeout: whoever keeps log-ins has limits of his own.
/// \return whether the host's agent runs in a log-in that is kept
asio::awaitable<bool> LoginStarter::take_kept(HostId host) {
    const std::function<void(const char*)> phase = [this, host](const char* what) {
        events_->host_phase(host, what);
    };
    auto kept = co_await parts_.channels.take_kept(host, phase);
    if (!kept) co_return false;
    lifelines_[host] = std::move(kept);
    const auto held = lifelines_[host];
    transport::LineReader lines(*held);
    const auto patience = spec_.options.connect_timeout;
    Deadline answered_by = after(patience);
    const auto greeted =
        co_await transport::greet_agent(*held, lines, copies_, answered_by, patience, phase);
    if (!greeted) drop(host, kAtOnce);
    co_return greeted.has_value();
}

/// \param[in,out] deadline  is set when the first log-in begins
asio::awaitable<Result<void>> LoginStarter::log_in_once(HostId host,
                                                        std::optional<Deadline>& deadline) {
    const auto& settings = spec_.hosts[host].ssh;
    const std::string route = settings ? settings->route : "";
    transport::LoginPass pass(gate_);
    const auto relay = relay_for(host);
    transport::LoginTurn turn = co_await pass.wait(route, relay);
    if (turn == transport::LoginTurn::given) {
        const bool done = co_await log_in_from(*relay, host);
        if (done) co_return Result<void>{};
        turn = co_await pass.wait("");
    }
    if (turn == transport::LoginTurn::over) co_return fail(Errc::cancelled, "the job ends");
    if (!deadline) deadline = after(spec_.options.connect_timeout);
    const std::function<void(const char*)> phase = [this, host, &pass](const char* what) {
        pass.now(what);
        events_->host_phase(host, what);
    };
    auto opened = co_await parts_.channels.open(host, AgentTask::run, *deadline, phase);
    if (!opened) co_return std::unexpected(opened.error());
    lifelines_[host] = std::move(*opened);
    const auto held = lifelines_[host];
    if (held->is_carried()) carriers_[host] = held;
    pass.watch(held);
    transport::LineReader lines(*held);
    const auto patience = spec_.options.connect_timeout;
    Deadline answered_by = *deadline;
    const auto greeted =
        co_await transport::greet_agent(*held, lines, copies_, answered_by, patience, phase);
    co_return greeted;
}

/// The relay that may log in to a host, if any.
std::optional<HostId> LoginStarter::relay_for(HostId host) const {
    const auto relay = parts_.hosts.tree().parent(host);
    const plan::JobHost& target = spec_.hosts[host];
    const bool is_plain = target.transport == plan::Transport::ssh && target.ssh &&
                          target.ssh->only_ssh.empty() && target.ssh->route.empty() &&
                          !target.ssh->master;
    return is_plain && !given_.contains(host) ? relay : std::nullopt;
}

void LoginStarter::add_givers() {
    const auto has_joined = [this](HostId relay) {
        const bool has = parts_.hosts[relay].relay_port != 0;
        if (has) givers_.add(relay);
        return has;
    };
    if (std::erase_if(awaited_relays_, has_joined) > 0) hand_over();
}

/// Relays that have joined, and have room, log in to hosts that still wait.
void LoginStarter::hand_over() {
    for (const HostId relay : givers_.ready())
        while (givers_.is_ready(relay) && gate_.hand_over(relay)) givers_.begin(relay);
}

/// Has a relay log in to a host whose turn it is. Whatever it does not manage the head tries itself, and tells why that
/// fails: so it has half of the time, and its own failures are no news.
asio::awaitable<bool> LoginStarter::log_in_from(HostId relay, HostId host) {
    const std::function<void(const char*)> phase = [this, host](const char* what) {
        events_->host_phase(host, what);
    };
    phase("log-in from another host");
    given_.insert(host);
    const auto patience = spec_.options.connect_timeout;
    Deadline deadline = after(patience / 2);
    const auto wanted = co_await parts_.channels.by_relay(host, deadline);
    auto outcome = transport::LoginGivers::Outcome::not_tried;
    if (wanted && Clock::now() < deadline) {
        LoginOrder order = wanted->order;
        const auto limit = std::chrono::duration_cast<std::chrono::seconds>(patience / 2);
        order.limit_s = static_cast<std::uint32_t>(std::max<long>(1, limit.count()));
        lifelines_[host] = tree_logins_.open(relay, std::move(order), wanted->address);
        const auto held = lifelines_[host];
        transport::LineReader lines(*held);
        const auto greeted =
            co_await transport::greet_agent(*held, lines, copies_, deadline, patience, phase);
        outcome = greeted ? transport::LoginGivers::Outcome::well
                          : transport::LoginGivers::Outcome::failed;
        const std::string& name = parts_.hosts.name(host);
        const std::string& by = parts_.hosts.name(relay);
        if (greeted) {
            log::info("{}: by way of {}", name, by);
        } else {
            log::info("{}: not by way of {}: {}", name, by, greeted.error().message);
            drop(host, kAtOnce);
        }
    }
    givers_.end(relay, outcome);
    hand_over();
    co_return outcome == transport::LoginGivers::Outcome::well;
}

/// Sends the host's agent its configuration, once the relay to which it is to connect is there.
asio::awaitable<Result<void>> LoginStarter::tell_agent(HostId host) {
    const std::shared_ptr<transport::Channel> held = lifelines_[host];
    co_await wait_for_relay(host);
    agents_[host] = ++last_agent_;
    Bytes frame = parts_.configs.for_host(host, agents_[host]);
    const Deadline written_by = after(spec_.options.connect_timeout);
    auto done = co_await held->write(frame, written_by);
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
asio::awaitable<void> LoginStarter::hold_lifeline(HostId host) {
    Deadline join_deadline = after(joining_limit(spec_.options));
    Clock::duration lost_before = lost_time_;
    const std::shared_ptr<transport::Channel> held = lifelines_[host];  // it may get another
    if (!held) co_return;
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
            co_return host_failed(host,
                                  Error{Errc::internal, fmt::format("{}{}", why, way_back(why))});
        }
        if (line) continue;
        if (line.error().code == Errc::cancelled || state.done) co_return;
        if (line.error().code == Errc::timed_out && state.session != nullptr) continue;
        if (state.session != nullptr) co_return;  // its connection tells, and knows better
        if (line.error().code == Errc::timed_out) {
            co_await asio::post(parts_.executor, asio::use_awaitable);  // a beat may be due, too
            const auto lost = lost_time_ - std::exchange(lost_before, lost_time_);
            if (lost > Clock::duration(0)) {
                join_deadline = after(lost);
                continue;
            }
        }
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
    givers_.lost(host);
    tree_logins_.relay_lost(host);
    if (!is_ours(host)) return;
    drop(host, kCleanUpLimit);  // what is left of the agent ends, too
    to_sweep_.push_back({host, agents_[host], after(kSweepsLimit)});
    if (sweepers_ == transport::LoginGate::kLoginsMax) return;
    ++sweepers_;
    tasks_.spawn(sweep_hosts());
}

void LoginStarter::host_failed(HostId host, const Error& why) {
    drop(host, kAtOnce);
    events_->host_failed(host, why);
}

void LoginStarter::host_left(HostId host) {
    if (lifelines_.has(host)) drop(host, kDoneLimit);
}

/// Closes what leads to a host. \param patience  of end(), with what a program of this machine carries
void LoginStarter::drop(HostId host, std::chrono::milliseconds patience) {
    const std::shared_ptr<transport::Channel> channel = std::move(lifelines_[host]);
    if (channel) channel->close();
    if (channel && !channel->is_carried()) left_.push_back(channel);
    end_carrier(host, patience);
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
        const auto [host, agent, until] = to_sweep_.front();
        to_sweep_.pop_front();
        if (Clock::now() < until)
            co_await sweep(host, agent);
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

/// The host, or another that is the same machine, may have an agent again: that is left alone.
asio::awaitable<void> LoginStarter::sweep(HostId host, std::uint64_t agent) {
    const Deadline deadline = after(kSweepLimit);
    const std::function<void(const char*)> phase = [](const char*) {};
    const AgentRun run(AgentTask::sweep, agent);
    auto opened = co_await parts_.channels.open(host, run, deadline, phase);
    if (!opened) co_return;
    const std::shared_ptr<transport::Channel> channel = std::move(*opened);
    const bool carried = channel->is_carried();
    if (carried) ending_.push_back(channel);
    transport::LineReader lines(*channel);
    const auto line = co_await lines.next(deadline);
    if (line) log::info("{}: processes left behind, and ended: {}", parts_.hosts.name(host), *line);
    if (!carried) {  // of this machine, it may not have ended yet
        channel->close();
        left_.push_back(channel);
        co_return;
    }
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
    co_await parts_.channels.all_logged_in();
}

}  // namespace dtrun::head
