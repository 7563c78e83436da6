// How a job begins inside a Slurm allocation: one srun starts the agents of all its nodes, which share
// its standard streams.

#include "base/log.h"
#include "base/strings.h"
#include "launcher/head/head.h"
#include "launcher/head/slurm_step.h"
#include "launcher/transport/agent_starter.h"
#include "rendezvous/start_messages.h"

#include <algorithm>
#include <csignal>

namespace dtrun::head {
namespace {

/// Agents are not to be bound, and where nothing can be they are not.
constexpr std::string_view kNoBinding =
    "srun: cluster configuration lacks support for cpu binding\n";
constexpr std::chrono::seconds kStepEndLimit{2};  // for srun to see that its agents have ended

std::string without_binding(std::string text) {
    for (std::size_t at = 0; (at = text.find(kNoBinding)) != std::string::npos;)
        text.erase(at, kNoBinding.size());
    return std::string(trim(text));
}

void log_srun(std::string text) {
    const std::string rest = without_binding(std::move(text));
    for (const std::string_view line : split(rest, '\n'))
        if (!line.empty()) log::warn("{}", line);
}

}  // namespace

bool Head::Step::any_up_to(NodeState state) const {
    return std::ranges::any_of(nodes,
                               [state](const auto& node) { return node.second.state <= state; });
}

bool Head::Step::any(NodeState state) const {
    return std::ranges::any_of(nodes,
                               [state](const auto& node) { return node.second.state == state; });
}

/// One srun, from its start to its end.
asio::awaitable<void> Head::run_step(std::vector<std::uint32_t> hosts) {
    Step& step = steps_.emplace_back();
    for (const std::uint32_t host : hosts) {
        step.nodes[spec_.hosts[host].host.name] = {host, NodeState::starting};
        set_phase(host, "srun");
    }
    const auto argv = srun_command(spec_, hosts, node_agent_command(agent_file_));
    log::info("{}", fmt::join(std::span(argv).first(argv.size() - 1), " "));
    auto process = transport::start_process(io_.get_executor(), argv, spec_.srun_env);
    if (!process) {
        step.ended = true;
        co_return fail_nodes(step, NodeState::failed, process.error().message);
    }
    step.process = std::move(*process);
    transport::LineReader lines(*step.process);
    const auto started = co_await start_step(step, lines);
    // A pipe that broke has its reason in what srun says at its end.
    if (!started && started.error().code == Errc::timed_out)
        nodes_late(step);
    else if (!started && started.error().code != Errc::closed)
        fail_nodes(step, NodeState::failed, started.error().message);
    const Error end = co_await hold_step(step, lines);
    if (end.code != Errc::closed) step.process->signal(SIGTERM);  // it prints without end
    step.ended = true;
    step_ended_.cancel();
    if (!is_any_missing(step)) co_return;
    const std::string ending = co_await transport::describe_ending(*step.process);
    const std::string why = without_binding(ending);
    fail_nodes(step, NodeState::failed, "srun ended: " + why);
}

/// Until every node's agent has its bootstrap. Errc: timed_out, closed, internal, cancelled
asio::awaitable<Result<void>> Head::start_step(Step& step, transport::LineReader& lines) {
    const auto limit = spec_.options.connect_timeout;
    auto done = co_await await_nodes(step, lines, NodeState::starting, after(limit));
    if (!done) co_return done;
    if (step.any(NodeState::failed))
        co_return fail(Errc::internal, "not started without the others");
    if (step.any(NodeState::wanting)) {
        done = co_await copy_to_nodes(step);
    } else {
        done = co_await step.process->write("go\n", after(limit));
    }
    if (!done) co_return done;
    done = co_await await_nodes(step, lines, NodeState::wanting, after(limit));
    if (!done) co_return done;
    Bytes frame = step_bootstrap_frame();
    done = co_await step.process->write(frame, after(limit));
    ::explicit_bzero(frame.data(), frame.size());
    if (!done) co_return done;
    for (auto& [name, node] : step.nodes) {
        if (node.state != NodeState::ready) continue;
        node.state = NodeState::told;
        set_phase(node.host, "the agent to connect back");
    }
    step.join_deadline = after(limit + std::chrono::seconds(2));
    if (relays_needed(step)) tasks_.spawn(tell_relays(step));
    co_return Result<void>{};
}

/// Reads what nodes say until all are beyond this state.
asio::awaitable<Result<void>> Head::await_nodes(Step& step, transport::LineReader& lines,
                                                NodeState state, Deadline deadline) {
    while (step.any_up_to(state)) {
        const auto line = co_await lines.next(deadline);
        if (!line) co_return std::unexpected(line.error());
        node_said(step, *line);
    }
    co_return Result<void>{};
}

void Head::node_said(Step& step, std::string_view line) {
    const auto said = parse_node_line(line);
    const auto found = said ? step.nodes.find(said->node) : step.nodes.end();
    if (found == step.nodes.end()) return log::info("srun: {}", line);  // a prolog's, or a shell's
    Step::Node& node = found->second;
    const auto failed = [&](std::string text) {
        node.state = NodeState::failed;
        host_failed(node.host, Error{Errc::internal, std::move(text)});
    };
    if (said->text.starts_with(transport::kAgentFailed)) {
        failed(std::string(said->text.substr(transport::kAgentFailed.size())));
    } else if (said->text.starts_with(transport::kAgentFound)) {
        node.state = NodeState::found;
    } else if (said->text.starts_with(transport::kAgentWanted)) {
        node.state = NodeState::wanting;
        const std::string machine(said->text.substr(transport::kAgentWanted.size()));
        if (step.machine.empty()) step.machine = machine;
        if (machine != step.machine)
            failed(fmt::format("it is {}, another node {}: put their dtrun-agent on PATH there",
                               machine, step.machine));
    } else if (said->text.starts_with(transport::kAgentReady)) {
        node.state = NodeState::ready;
        if (const auto ready = transport::check_ready(said->text); !ready)
            failed(ready.error().message);
    }
}

/// To all nodes at once: those that have the agent skip it.
asio::awaitable<Result<void>> Head::copy_to_nodes(Step& step) {
    for (const auto& [name, node] : step.nodes) set_phase(node.host, "copying the agent");
    const auto found = agent_copies_.get(step.machine);
    if (!found) co_return std::unexpected(found.error());
    const transport::AgentCopy* copy = *found;
    const auto patience = spec_.options.connect_timeout;
    const auto done = co_await step.process->write(copy->announcement, after(patience));
    if (!done) co_return done;
    const auto sent = co_await transport::send_agent_bytes(*step.process, copy->bytes, patience);
    co_return sent;
}

/// The lifeline of all nodes, until srun ends.
asio::awaitable<Error> Head::hold_step(Step& step, transport::LineReader& lines) {
    for (;;) {
        const auto line =
            co_await lines.next(is_any_joining(step) ? step.join_deadline : Deadline::max());
        if (line) {
            node_said(step, *line);
        } else if (line.error().code != Errc::timed_out) {
            co_return line.error();
        } else if (Clock::now() < step.join_deadline || !is_any_joining(step)) {
            continue;
        } else if (step.relays_unknown && !is_any_relay_joining(step)) {
            step.join_deadline = after(spec_.options.connect_timeout);  // it is not their turn yet
        } else {
            nodes_late(step);
        }
    }
}

bool Head::relays_needed(const Step& step) const {
    return std::ranges::any_of(step.nodes, [this](const auto& node) {
        return tree_.parent(node.second.host).has_value();
    });
}

/// Once every relay is there or will not be.
asio::awaitable<void> Head::tell_relays(Step& step) {
    step.relays_unknown = true;
    Relays known;
    for (std::uint32_t host = 0; host < hosts_.size() && tree_.is_relay(host); ++host) {
        while (starting_ && hosts_[host].relay_port == 0 && !job_.has_failed(host))
            co_await relay_ready_.async_wait(use_tuple);
        if (hosts_[host].relay_port != 0)
            known.relays.push_back({host, hosts_[host].address, hosts_[host].relay_port});
    }
    step.join_deadline = after(spec_.options.connect_timeout + std::chrono::seconds(2));
    step.relays_unknown = false;
    const Bytes frame = encode(known);
    const auto done = co_await step.process->write(frame, step.join_deadline);
    if (!done) log::info("srun: {}", done.error().message);  // its output tells more
}

bool Head::has_joined(std::uint32_t host) const {
    return hosts_[host].session != nullptr || hosts_[host].done || job_.has_failed(host);
}

bool Head::is_any_missing(const Step& step) const {
    return std::ranges::any_of(step.nodes,
                               [this](const auto& node) { return !has_joined(node.second.host); });
}

/// Whether any node that has its bootstrap has not connected yet.
bool Head::is_any_joining(const Step& step) const {
    return !job_.ending() && std::ranges::any_of(step.nodes, [&](const auto& node) {
        return node.second.state == NodeState::told && !has_joined(node.second.host);
    });
}

bool Head::is_any_relay_joining(const Step& step) const {
    return std::ranges::any_of(step.nodes, [&](const auto& node) {
        return node.second.state == NodeState::told && !has_joined(node.second.host) &&
               !tree_.parent(node.second.host);
    });
}

/// Those that kept the others waiting fail because of that, and the others because of them.
void Head::nodes_late(Step& step) {
    NodeState behind = NodeState::failed;
    for (const auto& [name, node] : step.nodes)
        if (!has_joined(node.host)) behind = std::min(behind, node.state);
    std::vector<std::string> names;
    for (const auto& [name, node] : step.nodes)
        if (node.state == behind && !has_joined(node.host)) names.push_back(name);
    const double limit = std::chrono::duration<double>(spec_.options.connect_timeout).count();
    const std::string said = without_binding(step.process->take_errors());
    const char* what = behind == NodeState::starting ? "srun has not started the agent"
                       : behind == NodeState::told   ? "the agent started, but did not connect back"
                                                     : "the agent did not start";
    fail_nodes(step, behind,
               fmt::format("{} within {:.3g} s (--connect-timeout){}{}", what, limit,
                           said.empty() ? "" : ": ", said));
    fail_nodes(step, NodeState::failed, "waited for " + join_names(names));
}

/// Those that have not joined and are not beyond this state.
void Head::fail_nodes(Step& step, NodeState up_to, const std::string& text) {
    for (auto& [name, node] : step.nodes) {
        if (has_joined(node.host) || node.state > up_to) continue;
        node.state = NodeState::failed;
        host_failed(node.host, Error{Errc::closed, text});
    }
}

/// What srun says while the job runs.
void Head::show_steps() {
    for (Step& step : steps_)
        if (step.process && !is_any_missing(step)) log_srun(step.process->take_error_lines());
}

asio::awaitable<void> Head::wait_for_steps(std::chrono::milliseconds span) {
    const auto any_left = [this] {
        return std::ranges::any_of(steps_, [](const Step& step) { return !step.ended; });
    };
    DeadlineGuard guard(step_ended_, after(hurry_ ? std::chrono::milliseconds(0) : span));
    while (any_left() && !guard.expired()) co_await step_ended_.async_wait(use_tuple);
}

void Head::signal_steps(int signal) {
    for (Step& step : steps_)
        if (!step.ended) step.process->signal(signal);
}

/// Agents end with their job, and srun with its agents. What is left is ended by force: at SIGTERM
/// srun kills its step.
asio::awaitable<void> Head::end_steps() {
    for (Step& step : steps_) {
        if (step.ended) continue;
        step.process->close_input();
        const bool never_ran = std::ranges::all_of(
            step.nodes, [](const auto& node) { return node.second.state == NodeState::starting; });
        if (never_ran) step.process->signal(SIGTERM);
    }
    co_await wait_for_steps(kStepEndLimit);
    signal_steps(SIGTERM);
    co_await wait_for_steps(kStepEndLimit);
    signal_steps(SIGKILL);
    for (Step& step : steps_)
        if (step.process) log_srun(step.process->take_errors());
}

}  // namespace dtrun::head
