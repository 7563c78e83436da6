#include "launcher/head/report.h"

#include "base/signal_names.h"
#include "base/strings.h"
#include "base/text_layout.h"
#include "base/utf8.h"
#include "hostfiles/nodelist.h"
#include "launcher/head/torch_error.h"
#include "launcher/plan/rank_set.h"
#include "rendezvous/wire/rank_messages.h"

#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <utility>

namespace dtrun::head {
namespace {

constexpr std::size_t kStackLinesMax = 30;

std::string span_text(std::int64_t ns) {
    return duration_text(static_cast<double>(ns) / 1e9);
}

std::string signal_text(int signal) {
    const auto name = signal_name(signal);
    return fmt::format("signal {} ({})", signal, name.empty() ? "SIG?" : name);
}

/// What torch's @record has left, unless standard error ends with the same.
std::string exception_text(std::string_view error_file, const std::vector<std::string>& lines) {
    const auto error = parse_torch_error(error_file);
    if (!error && !error_file.empty())
        return "  what it has left in TORCHELASTIC_ERROR_FILE is too long, or is not of torch\n";
    if (!error) return {};
    const std::string& last = error->traceback.empty() ? error->message : error->traceback.back();
    if (std::ranges::any_of(lines, [&last](const std::string& line) { return line == last; }))
        return {};
    std::string text = "  its exception:\n";
    if (error->traceback.empty())
        for (const std::string_view line : split(error->message, '\n'))
            text += fmt::format("  | {}\n", line);
    const std::size_t skipped =
        error->traceback.size() - std::min(error->traceback.size(), kStackLinesMax);
    if (skipped > 0) text += fmt::format("  | … {} lines\n", skipped);
    for (std::size_t i = skipped; i < error->traceback.size(); ++i)
        text += "  | " + error->traceback[i] + "\n";
    return text;
}

std::string waiting_text(const JobOutcome& outcome) {
    if (outcome.waiting.empty()) return {};
    std::string text = "  who waited then, and for what:\n";
    for (const std::string& line : outcome.waiting) text += "    " + line + "\n";
    return text;
}

std::string stacks_text(const JobOutcome& outcome) {
    if (outcome.stacks.empty()) return {};
    std::string text = "  where the ranks were then:\n";
    for (const std::string& line : outcome.stacks) text += "    " + line + "\n";
    return text;
}

std::string host_of(Rank rank, const plan::JobSpec& spec, const plan::RankNumbers& numbers) {
    const auto place = numbers.slot_of(rank);
    return place ? spec.host_of(*place) : "?";
}

/// With TORCHELASTIC_USE_AGENT_STORE torch takes any address for one where the store is served already, also one
/// that a program or a launcher within it has chosen.
std::string private_store_text(const plan::JobSpec& spec, const std::vector<std::string>& lines) {
    if (spec.options.torch_store == TorchStore::rank0 || spec.placement.ranks.size() < 2) return {};
    const bool in_vain = std::ranges::any_of(lines, [](const std::string& line) {
        return line.contains("The client socket has ") && line.contains(" to connect to ");
    });
    if (!in_vain) return {};
    return "  if the program has chosen that address itself, use --store rank0: torch's store is "
           "served at MASTER_ADDR:MASTER_PORT alone\n";
}

std::string rank_failure(const JobOutcome& outcome, const plan::JobSpec& spec,
                         const plan::RankNumbers& numbers, const TailOf& tail) {
    const Exited& first = *outcome.first;
    const auto place = numbers.slot_of(first.rank);
    const std::string host = host_of(first.rank, spec, numbers);
    if (first.pid == 0)
        return fmt::format("dtrun: rank {} on {} could not be started: {}: {}\n", first.rank, host,
                           place ? spec.argv_of(*place).front() : spec.options.program.front(),
                           first.error);
    std::string how = first.signal != 0 ? "was ended by " + signal_text(first.signal)
                                        : fmt::format("exited with code {}", first.code);
    if (first.mpi == MpiUse::aborted) how = fmt::format("called MPI_Abort with {}", first.code);
    if (first.out_of_memory) how += ": out of memory, the kernel's OOM killer ended it";
    const bool is_killed = first.signal == SIGKILL && !first.out_of_memory;
    if (first.core_dumped) how += ", core dumped";
    how += " after " + span_text(first.ran_ns);
    if (outcome.restarts > 0) how += " and " + plural(outcome.restarts, "restart");
    if (is_killed && !outcome.gone_text.empty()) how += ": " + outcome.gone_text;
    std::string text =
        fmt::format("dtrun: rank {} on {} (pid {}) {}\n", first.rank, host, first.pid, how);
    const plan::Options& options = spec.options;
    if (std::cmp_less(outcome.restarts, options.max_restarts) &&
        std::chrono::nanoseconds(first.ran_ns) < options.min_uptime)
        text += fmt::format("  not started again: it has run for less than {:g} s (--min-uptime)\n",
                            std::chrono::duration<double>(options.min_uptime).count());
    const auto lines = place ? tail(*place) : std::vector<std::string>{};
    text += exception_text(first.traceback, lines);
    if (lines.empty()) return text + "  it wrote nothing to standard error\n";
    text += fmt::format("  last {} of its standard error:\n", plural(lines.size(), "line"));
    for (const std::string& line : lines) text += "  | " + line + "\n";
    return text + private_store_text(spec, lines);
}

/// Names ranks that had ended with code 0 before the failure: one whose program called exit(0) too
/// early is why the others fail.
std::string ended_well_text(const JobOutcome& outcome, const plan::JobSpec& spec,
                            const plan::RankNumbers& numbers) {
    if (outcome.ended_well.empty()) return {};
    std::vector<Rank> ranks;
    std::int64_t last_ns = 0;
    for (const JobOutcome::EndedWell& ended : outcome.ended_well) {
        ranks.push_back(ended.rank);
        last_ns = std::max(last_ns, ended.ran_ns);
    }
    std::ranges::sort(ranks);
    const bool one = ranks.size() == 1;
    const std::string who =
        one ? fmt::format("rank {} on {}", ranks[0], host_of(ranks[0], spec, numbers))
            : "ranks " + plan::rank_ranges(ranks);
    const std::int64_t before_ns = std::max<std::int64_t>(outcome.first->ran_ns - last_ns, 0);
    return fmt::format("  {} had ended with code 0, {}{} before\n", who, one ? "" : "the last ",
                       span_text(before_ns));
}

std::string victims_text(const JobOutcome& outcome) {
    const bool of_some = outcome.cause == JobOutcome::Cause::rank_failed ||
                         outcome.cause == JobOutcome::Cause::host_lost;
    const std::string_view rank = of_some ? "other rank" : "rank";  // than those that are the cause
    std::vector<std::string> parts;
    if (outcome.also_failed > 0)
        parts.push_back(plural(outcome.also_failed, rank) + " failed after it");
    if (outcome.victims > 0) {
        std::string text = plural(outcome.victims, rank) + " ended by dtrun";
        if (outcome.killed > 0) text += fmt::format(" ({} had to be killed)", outcome.killed);
        parts.push_back(text);
    }
    if (outcome.orphans > 0)
        parts.push_back(fmt::format("{} process{} that ranks had left behind ended",
                                    outcome.orphans, outcome.orphans == 1 ? "" : "es"));
    return parts.empty() ? "" : "  " + join_names(parts) + "\n";
}

/// With --on-rank-failure continue: whether enough ranks have ended well.
std::string well_text(const JobOutcome& outcome) {
    if (outcome.well_needed == 0) return {};
    return fmt::format("  {} ended well, and {} had to (--min-np): the job has {}\n",
                       plural(outcome.well, "rank"), outcome.well_needed,
                       outcome.well >= outcome.well_needed ? "succeeded" : "failed");
}

/// Where a program was looked for stands behind the first line, and is for those who ask for more.
std::string told(const HostFailure& failure, const plan::JobSpec& spec) {
    const bool in_short = failure.kind == StartFailure::program_missing &&
                          spec.options.verbosity < log::Level::verbose;
    return in_short ? failure.text.substr(0, failure.text.find('\n')) : failure.text;
}

std::string cannot_start_text(const JobOutcome& outcome, const plan::JobSpec& spec) {
    const plan::JobHost& first = spec.hosts.front();
    if (spec.hosts.size() == 1 && first.transport == plan::Transport::local) {
        const std::string text = told(outcome.host_failures.front(), spec);
        const std::size_t end = std::min(text.find('\n'), text.size());
        return fmt::format("dtrun: {} (on {}){}\n", text.substr(0, end), first.host.name,
                           text.substr(end));
    }
    return fmt::format("dtrun: cannot start: {} of {} failed\n", outcome.host_failures.size(),
                       plural(spec.hosts.size(), "host")) +
           host_failures_text(outcome.host_failures, spec);
}

}  // namespace

std::string host_failures_text(const std::vector<HostFailure>& failures,
                               const plan::JobSpec& spec) {
    std::vector<std::pair<std::string, std::vector<std::string>>> groups;  // text -> hosts
    for (const HostFailure& failure : failures) {
        const std::string what = told(failure, spec);
        auto group = std::ranges::find(groups, what, [](const auto& g) { return g.first; });
        if (group == groups.end()) group = groups.insert(groups.end(), {what, {}});
        group->second.push_back(spec.hosts[failure.host].host.name);
    }
    std::string text;
    for (const auto& [what, hosts] : groups) {
        const auto lines = split(what, '\n');
        text += fmt::format("  {}: {}\n", name_hosts(hosts), lines.front());
        for (const std::string_view line : std::span(lines).subspan(1))
            text += fmt::format("    {}\n", line);
    }
    return text;
}

namespace {

std::string report_of(const JobOutcome& outcome, const plan::JobSpec& spec,
                      const plan::RankNumbers& numbers, const TailOf& tail) {
    switch (outcome.cause) {
        case JobOutcome::Cause::success:
            return {};
        case JobOutcome::Cause::cannot_start:
            return cannot_start_text(outcome, spec);
        case JobOutcome::Cause::rank_failed:
            return rank_failure(outcome, spec, numbers, tail) + waiting_text(outcome) +
                   ended_well_text(outcome, spec, numbers) + victims_text(outcome) +
                   well_text(outcome);
        case JobOutcome::Cause::stuck:
            return fmt::format("dtrun: {}\n", outcome.ended_text) + waiting_text(outcome) +
                   stacks_text(outcome) + victims_text(outcome);
        case JobOutcome::Cause::host_lost:
            // A step may have been cancelled after this host was lost, so the cause seen here stays.
            return fmt::format("dtrun: host {} lost: {}{}{}\n",
                               spec.hosts[outcome.lost_host].host.name, outcome.lost_text,
                               outcome.gone_text.empty() ? "" : ": ", outcome.gone_text) +
                   waiting_text(outcome) + victims_text(outcome) + well_text(outcome);
        case JobOutcome::Cause::ended_elsewhere:
            return fmt::format("dtrun: the job was ended: {}\n", outcome.ended_text) +
                   victims_text(outcome);
        case JobOutcome::Cause::no_daemon:
            return fmt::format("dtrun: cannot join: {}\n", outcome.ended_text);
        case JobOutcome::Cause::cannot_go_on:
            return fmt::format("dtrun: the job cannot go on: {}\n", outcome.ended_text) +
                   host_failures_text(outcome.host_failures, spec) + victims_text(outcome);
        case JobOutcome::Cause::interrupted:
            return fmt::format("dtrun: ended by {}\n", signal_text(outcome.signal)) +
                   waiting_text(outcome) + victims_text(outcome);
        case JobOutcome::Cause::time_limit:
            return fmt::format("dtrun: the job has taken longer than {:.6g} s (--timeout)\n",
                               std::chrono::duration<double>(*spec.options.time_limit).count()) +
                   waiting_text(outcome) + victims_text(outcome);
        case JobOutcome::Cause::start_timeout:
            return fmt::format(
                       "dtrun: not every rank was running after {:.3g} s (--start-timeout); waited "
                       "for:\n",
                       std::chrono::duration<double>(*spec.options.start_timeout).count()) +
                   host_failures_text(outcome.host_failures, spec);
    }
    return {};
}

}  // namespace

/// Servers, hosts, other members and ranks have their part in it: here it is cleaned, and only the first line is
/// dtrun's own beyond doubt, so only that one begins where its lines do.
std::string failure_report(const JobOutcome& outcome, const plan::JobSpec& spec,
                           const plan::RankNumbers& numbers, const TailOf& tail) {
    const std::string text = printable(report_of(outcome, spec, numbers, tail));
    std::string report;
    for (const std::string_view line : split(text, '\n')) {
        if (line.empty()) continue;
        report += report.empty() || line.starts_with("  ") ? "" : "    ";
        report += line;
        report += '\n';
    }
    return report;
}

}  // namespace dtrun::head
