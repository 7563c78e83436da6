// How a job begins inside a Slurm allocation: one srun starts the agents of all its nodes, which share
// its standard streams.

#include "base/log.h"
#include "base/strings.h"
#include "launcher/agent_starter.h"
#include "launcher/head.h"
#include "launcher/slurm_step.h"

#include <algorithm>
#include <csignal>

namespace dtrun {
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
    auto started = start_process(io_.get_executor(), argv, spec_.srun_env);
    if (!started) {
        step.ended = true;
        co_return fail_step(step, Error{Errc::closed, started.error().message});
    }
    step.process = std::move(*started);
    LineReader lines(*step.process);
    auto done = co_await start_step(step, lines);
    if (done) done = co_await hold_step(step, lines);
    step.ended = done.error().code == Errc::closed;
    step_ended_.cancel();
    if (done.error().code == Errc::cancelled) co_return;
    fail_step(step, done.error());
}

/// Until every node's agent has its bootstrap.
asio::awaitable<Result<void>> Head::start_step(Step& step, LineReader& lines) {
    const auto limit = spec_.options.connect_timeout;
    auto done = co_await await_nodes(step, lines, NodeState::starting, after(limit));
    if (!done) co_return done;
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
    step.join_deadline = after(limit + std::chrono::seconds(2));
    co_return Result<void>{};
}

/// Reads what nodes say until all are beyond this state.
asio::awaitable<Result<void>> Head::await_nodes(Step& step, LineReader& lines, NodeState state,
                                                Deadline deadline) {
    const auto is_behind = [state](const auto& node) { return node.second.state <= state; };
    while (std::ranges::any_of(step.nodes, is_behind)) {
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
    auto& [host, state] = found->second;
    if (said->text.starts_with(kAgentFailed)) {
        state = NodeState::failed;
        const std::string text(said->text.substr(kAgentFailed.size()));
        return host_failed(host, Error{Errc::internal, text});
    }
    if (said->text.starts_with(kAgentFound)) {
        state = NodeState::found;
    } else if (said->text.starts_with(kAgentWanted)) {
        state = NodeState::wanting;
        step.machine = said->text.substr(kAgentWanted.size());
    } else if (said->text.starts_with(kAgentReady)) {
        const auto ready = check_ready(said->text);
        state = ready ? NodeState::ready : NodeState::failed;
        if (!ready) return host_failed(host, ready.error());
        set_phase(host, "the agent to connect back");
    }
}

/// To all nodes at once: those that have the agent skip it.
asio::awaitable<Result<void>> Head::copy_to_nodes(Step& step) {
    for (const auto& [name, node] : step.nodes) set_phase(node.host, "copying the agent");
    const auto copy = read_agent(step.machine);
    if (!copy) co_return std::unexpected(copy.error());
    const auto patience = spec_.options.connect_timeout;
    const auto done = co_await step.process->write(copy->announcement, after(patience));
    if (!done) co_return done;
    const auto sent = co_await send_agent_bytes(*step.process, copy->bytes, patience);
    co_return sent;
}

/// The lifeline of all nodes, until srun ends.
asio::awaitable<Result<void>> Head::hold_step(Step& step, LineReader& lines) {
    if (relays_needed(step)) tasks_.spawn(tell_relays(step));
    for (;;) {
        const bool joining = std::ranges::any_of(step.nodes, [this](const auto& node) {
            return node.second.state == NodeState::ready && !has_joined(node.second.host);
        });
        const auto line = co_await lines.next(joining ? step.join_deadline : Deadline::max());
        if (line) {
            node_said(step, *line);
            continue;
        }
        const bool late = line.error().code == Errc::timed_out;
        if (late && (!joining || job_.ending() || Clock::now() < step.join_deadline)) continue;
        co_return std::unexpected(line.error());
    }
}

bool Head::relays_needed(const Step& step) const {
    return std::ranges::any_of(step.nodes, [this](const auto& node) {
        return tree_.parent(node.second.host).has_value();
    });
}

/// Once every relay is there or will not be.
asio::awaitable<void> Head::tell_relays(Step& step) {
    Relays known;
    for (std::uint32_t host = 0; host < hosts_.size() && tree_.is_relay(host); ++host) {
        while (starting_ && hosts_[host].relay_port == 0 && !job_.has_failed(host))
            co_await relay_ready_.async_wait(use_tuple);
        if (hosts_[host].relay_port != 0)
            known.relays.push_back({host, hosts_[host].address, hosts_[host].relay_port});
    }
    step.join_deadline = after(spec_.options.connect_timeout + std::chrono::seconds(2));
    const Bytes frame = encode(known);
    const auto done = co_await step.process->write(frame, step.join_deadline);
    if (!done) log::info("srun: {}", done.error().message);  // its output tells more
}

bool Head::has_joined(std::uint32_t host) const {
    return hosts_[host].session != nullptr || hosts_[host].done || job_.has_failed(host);
}

std::string Head::describe_wait(const Step& step) const {
    const double limit = std::chrono::duration<double>(spec_.options.connect_timeout).count();
    const std::string said = without_binding(step.process->take_errors());
    const char* what = step.any(NodeState::starting) ? "srun has not started the agent"
                       : step.any(NodeState::ready)  ? "the agent started, but did not connect back"
                                                     : "the agent did not start";
    return fmt::format("{} within {:.3g} s (--connect-timeout){}{}", what, limit,
                       said.empty() ? "" : ": ", said);
}

/// For those of its nodes that have not joined; of the others their connection tells.
void Head::fail_step(Step& step, Error error) {
    std::vector<std::uint32_t> missing;
    for (const auto& [name, node] : step.nodes)
        if (!has_joined(node.host)) missing.push_back(node.host);
    if (step.process && missing.empty()) return log_srun(step.process->take_errors());
    if (step.process && error.code == Errc::closed)
        error.message = "srun ended: " + without_binding(describe_ending(*step.process));
    else if (error.code == Errc::timed_out)
        error.message = describe_wait(step);
    for (const std::uint32_t host : missing) host_failed(host, error);
}

/// Agents end with their job, and srun with its agents. What is left is ended by force: at SIGTERM
/// srun kills its step.
asio::awaitable<void> Head::end_steps() {
    for (Step& step : steps_) {
        if (!step.process) continue;
        step.process->close_input();
        const bool never_ran = step.any(NodeState::starting);
        for (const int signal : {SIGTERM, SIGKILL}) {
            DeadlineGuard guard(step_ended_,
                                after(never_ran ? std::chrono::seconds(0) : kStepEndLimit));
            while (!step.ended && !guard.expired()) co_await step_ended_.async_wait(use_tuple);
            if (step.ended) break;
            step.process->signal(signal);
        }
        log_srun(step.process->take_errors());
    }
}

}  // namespace dtrun
