#include "launcher/report/report.h"

#include "base/signal_names.h"
#include "base/strings.h"
#include "base/text_layout.h"
#include "base/utf8.h"
#include "hostfiles/hosts_alike.h"
#include "hostfiles/nodelist.h"
#include "launcher/plan/rank_set.h"
#include "launcher/report/cures.h"
#include "launcher/report/torch_error.h"
#include "rendezvous/wire/rank_messages.h"

#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>

namespace dtrun::report {
namespace {

constexpr std::size_t kStackLinesMax = 30;
constexpr std::size_t kTailLinesMax = 10;  // that are shown

/// What a report is made of.
struct Facts {
    const JobOutcome& outcome;
    const plan::JobSpec& spec;
    const plan::RankNumbers& numbers;
    const TailOf& tail;
    const IsOnScreen& is_on_screen;
};

std::string span_text(std::int64_t ns) {
    return duration_text(static_cast<double>(ns) / 1e9);
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

/// What helps against the failure; of a rank that has failed later if the first has not said what is wrong.
/// \param sign  the line of the first rank that tells it; empty: none
std::string hint_text(const Facts& facts, std::string& sign) {
    const Exited& first = *facts.outcome.first;
    const auto cure_of = [&facts](const Exited& exited) -> std::optional<Cure> {
        const auto slot = facts.numbers.slot_of(exited.rank);
        if (!slot) return {};
        const std::vector<std::string> lines = facts.tail(*slot);
        return find_cure({exited, *slot, lines, !facts.outcome.gone_text.empty()}, facts.spec);
    };
    const auto own = cure_of(first);
    if (own) sign = own->sign;
    if (own && !own->sign.empty()) return fmt::format("  hint: {}\n", own->text);
    for (const Exited& later : facts.outcome.later)
        if (const auto cure = cure_of(later); cure && !cure->sign.empty())
            return fmt::format("  rank {} on {} wrote:\n  | {}\n  hint: {}\n", later.rank,
                               host_of(later.rank, facts.spec, facts.numbers), cure->sign,
                               cure->text);
    return own ? fmt::format("  hint: {}\n", own->text) : "";
}

/// The last lines of standard error, and before them the one that tells what is wrong.
std::string tail_text(const Facts& facts, plan::SlotId slot, std::span<const std::string> lines,
                      const std::string& sign) {
    if (lines.empty()) return "  it wrote nothing to standard error\n";
    const auto quoted = [](const std::string& line) { return "  | " + line + "\n"; };
    const auto shown = lines.last(std::min(lines.size(), kTailLinesMax));
    if (facts.is_on_screen && facts.is_on_screen(slot, shown.size()))
        return fmt::format("  last line of its standard error{}:\n",
                           lines.size() > 1 ? ", which stands above" : "") +
               quoted(lines.back());
    std::string text =
        fmt::format("  last {} of its standard error:\n", plural(shown.size(), "line"));
    if (!sign.empty() && std::ranges::find(shown, sign) == shown.end())
        text += quoted(sign) + "  | …\n";
    for (const std::string& line : shown) text += quoted(line);
    return text;
}

/// "exited with code 1 after 2.5 s"
std::string how_text(const JobOutcome& outcome) {
    const Exited& first = *outcome.first;
    std::string how = first.signal != 0 ? "was ended by " + signal_text(first.signal)
                                        : fmt::format("exited with code {}", first.code);
    if (first.mpi == MpiUse::aborted) how = fmt::format("called MPI_Abort with {}", first.code);
    if (first.out_of_memory) how += ": out of memory, the kernel's OOM killer ended it";
    const bool is_killed = first.signal == SIGKILL && !first.out_of_memory && !first.hung;
    if (first.core_dumped) how += ", core dumped";
    how += " after " + span_text(first.ran_ns);
    if (outcome.restarts > 0) how += " and " + plural(outcome.restarts, "restart");
    if (first.hung) how += ": a section took longer than its limit (--on-hang kill)";
    if (is_killed && !outcome.gone_text.empty()) how += ": " + outcome.gone_text;
    return how;
}

/// \param sign  of its cure
std::string rank_failure(const Facts& facts, const std::string& sign) {
    const auto& [outcome, spec, numbers, tail, is_on_screen] = facts;
    const Exited& first = *outcome.first;
    const auto place = numbers.slot_of(first.rank);
    const std::string host = host_of(first.rank, spec, numbers);
    if (first.pid == 0)
        return fmt::format("dtrun: rank {} on {} could not be started: {}: {}\n", first.rank, host,
                           place ? spec.argv_of(*place).front() : spec.options.program.front(),
                           first.error);
    std::string text = fmt::format("dtrun: rank {} on {} (pid {}) {}\n", first.rank, host,
                                   first.pid, how_text(outcome));
    const plan::Options& options = spec.options;
    if (std::cmp_less(outcome.restarts, options.max_restarts) &&
        std::chrono::nanoseconds(first.ran_ns) < options.min_uptime)
        text += fmt::format("  not started again: it has run for less than {:g} s (--min-uptime)\n",
                            std::chrono::duration<double>(options.min_uptime).count());
    const auto lines = place ? tail(*place) : std::vector<std::string>{};
    text += exception_text(first.traceback, lines);
    return text + tail_text(facts, place.value_or(plan::SlotId{0}), lines, sign);
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

/// For a program that a host lacks and this machine has, as the Python of a virtual environment.
std::string_view only_here(const HostFailure& failure, const plan::JobSpec& spec) {
    constexpr std::string_view kMissing = ": no such file";
    if (!failure.text.ends_with(kMissing) ||
        spec.hosts[failure.host].transport == plan::Transport::local)
        return {};
    const std::string name = failure.text.substr(0, failure.text.size() - kMissing.size());
    std::error_code none;
    if (!std::filesystem::exists(std::filesystem::path(spec.directory) / name, none)) return {};
    return ", though it is here: it has to lie at the same path on every host, in a shared folder "
           "or "
           "as a copy";
}

/// Where a program was looked for stands behind the first line, and is for those who ask for more.
std::string told(const HostFailure& failure, const plan::JobSpec& spec) {
    const bool in_short = failure.kind == StartFailure::program_missing &&
                          spec.options.verbosity < log::Level::verbose;
    std::string text = in_short ? failure.text.substr(0, failure.text.find('\n')) : failure.text;
    return text.append(only_here(failure, spec));
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
    std::vector<std::pair<std::string, std::string>> all;
    for (const HostFailure& failure : failures)
        all.emplace_back(spec.hosts[failure.host].host.name, told(failure, spec));
    std::string text;
    for (const auto& [hosts, what] : group_alike(all)) {
        const auto lines = split(what, '\n');
        text += fmt::format("  {}: {}\n", name_hosts(hosts), lines.front());
        for (const std::string_view line : std::span(lines).subspan(1))
            text += fmt::format("    {}\n", line);
    }
    return text;
}

namespace {

std::string rank_failed_text(const Facts& facts) {
    const JobOutcome& outcome = facts.outcome;
    std::string sign;
    const std::string hint = outcome.first->pid == 0 ? "" : hint_text(facts, sign);
    return rank_failure(facts, sign) + waiting_text(outcome) +
           ended_well_text(outcome, facts.spec, facts.numbers) + victims_text(outcome) +
           well_text(outcome) + hint;
}

std::string report_of(const Facts& facts) {
    const JobOutcome& outcome = facts.outcome;
    const plan::JobSpec& spec = facts.spec;
    switch (outcome.cause) {
        case JobOutcome::Cause::success:
            return {};
        case JobOutcome::Cause::cannot_start:
            return cannot_start_text(outcome, spec);
        case JobOutcome::Cause::rank_failed:
            return rank_failed_text(facts);
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
                   waiting_text(outcome) + stacks_text(outcome) + victims_text(outcome);
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
                           const plan::RankNumbers& numbers, const TailOf& tail,
                           const IsOnScreen& is_on_screen) {
    const std::string text = printable(report_of({outcome, spec, numbers, tail, is_on_screen}));
    std::string report;
    for (const std::string_view line : split(text, '\n')) {
        if (line.empty()) continue;
        report += report.empty() || line.starts_with("  ") ? "" : "    ";
        report += line;
        report += '\n';
    }
    return report;
}

}  // namespace dtrun::report
