#include "launcher/head/step_starter.h"

#include "base/ids.h"
#include "base/log.h"
#include "base/strings.h"
#include "hostfiles/nodelist.h"
#include "launcher/head/slurm_step.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/start_messages.h"

#include <fmt/ranges.h>
#include <string.h>

#include <algorithm>
#include <csignal>

namespace dtrun::head {
namespace {

/// srun warns of this where it cannot bind tasks to processors. Agents are never to be bound.
constexpr std::string_view kNoBinding =
    "srun: cluster configuration lacks support for cpu binding\n";
constexpr std::chrono::seconds kStepEndLimit{2};  // for srun to see that its agents have ended

std::string without_binding(std::string text) {
    for (std::size_t at = 0; (at = text.find(kNoBinding)) != std::string::npos;)
        text.erase(at, kNoBinding.size());
    return std::string(trim(text));
}

}  // namespace

StepStarter::StepStarter(Parts parts)
    : parts_(std::move(parts)),
      spec_(parts_.spec),
      relay_ready_(parts_.executor, Timer::time_point::max()),
      step_ended_(parts_.executor, Timer::time_point::max()),
      tasks_(parts_.executor) {}

void StepStarter::start(StartEvents& events) {
    events_ = &events;
    auto groups = step_groups(spec_);
    if (spec_.options.encrypt && !groups.empty())
        log::warn(
            "--encrypt: srun carries the job's secret to the hosts and does not encrypt it; "
            "--transport ssh does");
    for (auto& group : groups) tasks_.spawn(run_step(std::move(group)));
}

void StepStarter::Step::set(Node& node, NodeState state) {
    if (--counts[node.state] == 0) counts.erase(node.state);
    ++counts[node.state = state];
}

void StepStarter::Step::forget(const std::string& name) {
    const auto node = nodes.find(name);
    if (node == nodes.end()) return;
    if (--counts[node->second.state] == 0) counts.erase(node->second.state);
    nodes.erase(node);
}

/// What is said of the host from now on is said of its new agent: the srun of the one before does not wait for it.
void StepStarter::connect(HostId host) {
    if (spec_.hosts[host].transport != plan::Transport::slurm) return;
    for (Step& step : steps_) step.forget(spec_.hosts[host].host.name);
    std::vector<HostId> hosts(1, host);
    tasks_.spawn(run_step(std::move(hosts)));
}

/// One srun, from its start to its end.
asio::awaitable<void> StepStarter::run_step(std::vector<HostId> hosts) {
    Step& step = steps_.emplace_back();
    for (const HostId host : hosts) {
        step.nodes[spec_.hosts[host].host.name] = {host, NodeState::starting};
        ++step.counts[NodeState::starting];
        events_->host_phase(host, "srun");
    }
    const auto argv = srun_command(
        spec_, hosts, node_agent_command(parts_.agent, fmt::format("{:x}", random_id())));
    log::info("{}", fmt::join(std::span(argv).first(argv.size() - 1), " "));
    auto process = parts_.start_process(argv, spec_.access.srun_env);
    if (!process) {
        step.ended = true;
        co_return fail_nodes(step, NodeState::failed, process.error().message);
    }
    step.process = std::move(*process);
    transport::LineReader lines(*step.process);
    const auto started = co_await start_step(step, lines);
    // If the pipe broke, srun says why at its end.
    if (!started && started.error().code == Errc::timed_out)
        nodes_late(step);
    else if (!started && started.error().code != Errc::closed)
        fail_nodes(step, NodeState::failed, started.error().message);
    const Error end = co_await hold_step(step, lines);
    step.signalled = step.signalled || end.code != Errc::closed;
    if (end.code != Errc::closed) step.process->signal(SIGTERM);  // it prints without end
    if (!step.signalled && !is_any_missing(step)) {
        const Deadline limit = after(kStepEndLimit);
        co_await step.process->ending(limit);  // until then it may say why
    }
    step.ended = true;
    step_ended_.cancel();
    if (!is_any_missing(step)) co_return;
    const std::string ending = co_await transport::describe_ending(*step.process);
    const std::string why = without_binding(ending);
    fail_nodes(step, NodeState::failed, "srun ended: " + why);
}

/// Gives every node's agent its configuration. Errc: timed_out, closed, internal, cancelled
asio::awaitable<Result<void>> StepStarter::start_step(Step& step, transport::LineReader& lines) {
    const auto limit = spec_.options.connect_timeout;
    auto done = co_await await_nodes(step, lines, NodeState::starting, after(limit));
    if (!done) co_return done;
    if (step.any(NodeState::failed))
        co_return fail(Errc::internal, "not started without the others");
    if (step.any(NodeState::wanting)) {
        done = co_await copy_to_nodes(step);
        if (!done) co_return done;
        done = co_await await_nodes(step, lines, NodeState::wanting, after(limit));
        if (!done) co_return done;
    }
    done = co_await step.process->write("go\n", after(limit));
    if (!done) co_return done;
    done = co_await await_nodes(step, lines, NodeState::stored, after(limit));
    if (!done) co_return done;
    Bytes frame = parts_.configs.for_all_nodes();
    done = co_await step.process->write(frame, after(limit));
    ::explicit_bzero(frame.data(), frame.size());
    if (!done) co_return done;
    for (auto& [name, node] : step.nodes) {
        if (node.state != NodeState::ready) continue;
        step.set(node, NodeState::told);
        events_->host_phase(node.host, joining_phase(spec_.options));
    }
    step.has_begun = true;
    step.join_deadline = after(joining_limit(spec_.options));
    if (relays_needed(step)) tasks_.spawn(tell_relays(step));
    co_return Result<void>{};
}

/// Reads what nodes say until all are beyond this state.
asio::awaitable<Result<void>> StepStarter::await_nodes(Step& step, transport::LineReader& lines,
                                                       NodeState state, Deadline deadline) {
    while (step.any_up_to(state)) {
        const auto line = co_await lines.next(deadline);
        if (!line) co_return std::unexpected(line.error());
        node_said(step, *line);
    }
    co_return Result<void>{};
}

void StepStarter::node_said(Step& step, std::string_view line) {
    const auto said = parse_node_line(line);
    const auto found = said ? step.nodes.find(said->node) : step.nodes.end();
    if (found == step.nodes.end()) return log::info("srun: {}", line);  // a prolog's, or a shell's
    Step::Node& node = found->second;
    const auto failed = [&](std::string text) {
        step.set(node, NodeState::failed);
        events_->host_failed(node.host, Error{Errc::internal, std::move(text)});
    };
    if (said->text.starts_with(transport::kAgentFailed)) {
        failed(std::string(said->text.substr(transport::kAgentFailed.size())));
    } else if (said->text.starts_with(transport::kAgentFound)) {
        step.set(node, NodeState::found);
    } else if (said->text.starts_with(transport::kAgentWanted)) {
        step.set(node, NodeState::wanting);
        const auto asked = said->text.substr(transport::kAgentWanted.size());
        node.wants = transport::parse_request(asked).wants;
    } else if (said->text.starts_with(transport::kAgentStored)) {
        step.set(node, NodeState::stored);
    } else if (said->text.starts_with(transport::kAgentReady)) {
        step.set(node, NodeState::ready);
        if (const auto ready = transport::check_ready(said->text); !ready)
            failed(ready.error().message);
    }
}

/// Sends the agents that nodes lack to all nodes at once; who has one skips them.
asio::awaitable<Result<void>> StepStarter::copy_to_nodes(Step& step) {
    std::map<std::string, bool> packed;  // by CPU: whether all of its nodes can unpack
    for (const auto& [name, node] : step.nodes) {
        events_->host_phase(node.host, "copying the agent");
        if (node.state != NodeState::wanting) continue;
        bool& all = packed.try_emplace(node.wants.machine, true).first->second;
        all = all && node.wants.gzip;
    }
    std::size_t total = 0;
    std::string announcements;
    std::vector<const transport::AgentCopy*> copies;
    for (const auto& [machine, all] : packed) {
        const transport::HostWants wants{machine, all};
        const auto found = copies_.get(wants);
        if (!found) co_return lacking(step, machine, found.error());
        copies.push_back(*found);
        total += copies.back()->bytes.size();
        announcements += fmt::format(" {} {}", machine, copies.back()->announcement);
    }
    const auto patience = spec_.options.connect_timeout;
    const std::string line = fmt::format("{}{}\n", total, announcements);
    auto done = co_await step.process->write(line, after(patience));
    for (const transport::AgentCopy* copy : copies) {
        if (!done) break;
        done = co_await transport::send_in_pieces(*step.process, copy->bytes, patience);
    }
    co_return done;
}

/// Nodes of a CPU cannot have an agent; the others are not started without them.
Result<void> StepStarter::lacking(Step& step, const std::string& machine, const Error& why) {
    for (auto& [name, node] : step.nodes) {
        if (node.state != NodeState::wanting || node.wants.machine != machine) continue;
        step.set(node, NodeState::failed);
        events_->host_failed(node.host, why);
    }
    return fail(Errc::internal, "not started without the others");
}

/// Holds the lifeline of all nodes until srun ends.
asio::awaitable<Error> StepStarter::hold_step(Step& step, transport::LineReader& lines) {
    for (;;) {
        const Deadline deadline = is_any_joining(step) ? step.join_deadline : Deadline::max();
        const auto line = co_await lines.next(deadline);
        if (line) {
            node_said(step, *line);
        } else if (line.error().code != Errc::timed_out) {
            co_return line.error();
        } else if (Clock::now() < step.join_deadline || !is_any_joining(step)) {
            continue;
        } else if (step.relays_unknown && !is_any_relay_joining(step)) {
            step.join_deadline = after(joining_limit(spec_.options));  // it is not their turn yet
        } else {
            nodes_late(step);
        }
    }
}

bool StepStarter::relays_needed(const Step& step) const {
    return std::ranges::any_of(step.nodes, [this](const auto& node) {
        return parts_.hosts.tree().parent(node.second.host).has_value();
    });
}

/// Tells nodes of their relays, once every relay has joined or has failed.
asio::awaitable<void> StepStarter::tell_relays(Step& step) {
    step.relays_unknown = true;
    Relays known;
    const auto hosts = parts_.hosts.hosts();
    for (const HostId host : hosts) {
        if (!parts_.hosts.tree().is_relay(host)) break;  // relays come first
        while (events_->is_starting() && parts_.hosts[host].relay_port == 0 &&
               !events_->has_failed(host))
            co_await relay_ready_.async_wait(use_tuple);
        if (parts_.hosts[host].relay_port != 0)
            known.relays.push_back(
                {host, parts_.hosts[host].address, parts_.hosts[host].relay_port});
    }
    step.join_deadline = after(joining_limit(spec_.options));
    step.relays_unknown = false;
    const Bytes frame = encode(known);
    const auto done = co_await step.process->write(frame, step.join_deadline);
    if (!done) log::info("srun: {}", done.error().message);  // its output tells more
}

bool StepStarter::is_any_missing(const Step& step) const {
    return std::ranges::any_of(
        step.nodes, [this](const auto& node) { return !events_->is_settled(node.second.host); });
}

/// Whether any node that has its configuration has not connected yet.
bool StepStarter::is_any_joining(const Step& step) const {
    return !events_->is_ending() && std::ranges::any_of(step.nodes, [&](const auto& node) {
        return node.second.state == NodeState::told && !events_->is_settled(node.second.host);
    });
}

bool StepStarter::is_any_relay_joining(const Step& step) const {
    return std::ranges::any_of(step.nodes, [&](const auto& node) {
        return node.second.state == NodeState::told && !events_->is_settled(node.second.host) &&
               !parts_.hosts.tree().parent(node.second.host);
    });
}

/// The time for joining is over. Nodes that are furthest behind are reported as the cause; all others
/// fail because they waited for these.
void StepStarter::nodes_late(Step& step) {
    NodeState behind = NodeState::failed;
    for (const auto& [name, node] : step.nodes)
        if (!events_->is_settled(node.host)) behind = std::min(behind, node.state);
    std::vector<std::string> names;
    for (const auto& [name, node] : step.nodes)
        if (node.state == behind && !events_->is_settled(node.host)) names.push_back(name);
    const double limit = std::chrono::duration<double>(spec_.options.connect_timeout).count();
    const std::string said = without_binding(step.process->take_errors());
    const char* what = behind == NodeState::starting ? "srun has not started the agent"
                       : behind == NodeState::told   ? "the agent started, but did not connect back"
                                                     : "the agent did not start";
    fail_nodes(step, behind,
               fmt::format("{} within {:.3g} s (--connect-timeout){}{}", what, limit,
                           said.empty() ? "" : ": ", said));
    fail_nodes(step, NodeState::failed, "waited for " + name_hosts(names));
}

/// Fails nodes that have not joined and are not beyond this state.
void StepStarter::fail_nodes(Step& step, NodeState up_to, const std::string& text) {
    for (auto& [name, node] : step.nodes) {
        if (events_->is_settled(node.host) || node.state > up_to) continue;
        step.set(node, NodeState::failed);
        events_->host_failed(node.host, Error{Errc::closed, text});
    }
}

/// Shows what srun says, and notes it where it tells why agents are gone.
void StepStarter::hear(Step& step, const std::string& text) {
    const std::string rest = without_binding(text);
    for (const std::string_view line : split(rest, '\n'))
        if (!line.empty()) log::warn("{}", line);
    if (!step.signalled && step.has_begun) endings_.hear(rest, Clock::now());
}

/// What srun says while the job runs.
void StepStarter::beat(Clock::duration) {
    for (Step& step : steps_)
        if (step.process && !is_any_missing(step)) hear(step, step.process->take_error_lines());
    if (!events_->is_ending()) endings_.job_runs(Clock::now());
}

asio::awaitable<void> StepStarter::wait_for_steps(std::chrono::milliseconds span) {
    const auto any_left = [this] {
        return std::ranges::any_of(steps_, [](const Step& step) { return !step.ended; });
    };
    DeadlineGuard guard(step_ended_, after(span));
    while (any_left() && !guard.expired()) co_await step_ended_.async_wait(use_tuple);
}

void StepStarter::signal_steps(int signal) {
    for (Step& step : steps_) {
        if (step.ended) continue;
        hear(step, step.process->take_error_lines());
        step.signalled = true;
        step.process->signal(signal);
    }
}

/// Agents end with their job, and srun with its agents. What is left is ended by force: at SIGTERM
/// srun kills its step.
asio::awaitable<void> StepStarter::end(bool hurry) {
    for (Step& step : steps_) {
        if (step.ended) continue;
        step.process->close_input();
        const bool never_ran = std::ranges::all_of(
            step.nodes, [](const auto& node) { return node.second.state == NodeState::starting; });
        step.signalled = step.signalled || never_ran;
        if (never_ran) step.process->signal(SIGTERM);
    }
    const std::chrono::milliseconds limit = hurry ? std::chrono::milliseconds(0) : kStepEndLimit;
    co_await wait_for_steps(limit);
    signal_steps(SIGTERM);
    co_await wait_for_steps(limit);
    signal_steps(SIGKILL);
    for (Step& step : steps_)
        if (step.process) hear(step, step.process->take_errors());
}

asio::awaitable<void> StepStarter::join() {
    tasks_.stop();
    co_await tasks_.join();
}

}  // namespace dtrun::head
