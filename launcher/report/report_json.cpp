#include "launcher/report/report_json.h"

#include "base/signal_names.h"
#include "base/utf8.h"
#include "launcher/report/cures.h"
#include "launcher/report/torch_error.h"

#include <fmt/format.h>
#include <boost/json/array.hpp>
#include <utility>

namespace dtrun::report {
namespace {

namespace json = boost::json;

json::array lines_json(const std::vector<std::string>& lines) {
    json::array array;
    for (const std::string& line : lines) array.emplace_back(printable_line(line));
    return array;
}

json::array failed_hosts(const JobOutcome& outcome, const plan::JobSpec& spec) {
    json::array failed;
    const auto add = [&](HostId host, std::string_view kind, const std::string& why) {
        failed.push_back(
            {{"host", spec.hosts[host].host.name}, {"class", kind}, {"why", printable(why)}});
    };
    for (const HostFailure& failure : outcome.host_failures)
        add(failure.host, name_of(failure.kind), failure.text);
    if (outcome.cause == JobOutcome::Cause::host_lost)
        add(outcome.lost_host, "lost", outcome.lost_text);
    return failed;
}

json::object failure_json(const Exited& exited, const JobOutcome& outcome,
                          const plan::JobSpec& spec, const plan::RankNumbers& numbers,
                          const TailOf& tail) {
    json::object failure;
    const auto slot = numbers.slot_of(exited.rank);
    failure["rank"] = std::to_underlying(exited.rank);
    if (slot) failure["host"] = spec.host_of(*slot);
    failure["pid"] = exited.pid;
    if (exited.pid == 0) failure["why"] = printable(exited.error);
    if (exited.signal == 0) failure["code"] = exited.code;
    if (exited.signal != 0) failure["signal"] = signal_word(exited.signal);
    failure["ran_s"] = static_cast<double>(exited.ran_ns / 1'000'000) / 1000;
    failure["mpi_abort"] = exited.mpi == MpiUse::aborted;
    if (const auto error = parse_torch_error(exited.traceback)) {
        failure["exception"] = printable_line(error->message);
        failure["traceback"] = lines_json(error->traceback);
    }
    if (!slot) return failure;
    const std::vector<std::string> lines = tail(*slot);
    failure["last_lines"] = lines_json(lines);
    const auto cure = find_cure({exited, *slot, lines, !outcome.gone_text.empty()}, spec);
    if (!cure) return failure;
    failure["cure"] = {{"name", cure->name},
                       {"sign", printable_line(cure->sign)},
                       {"text", printable_line(cure->text)}};
    return failure;
}

}  // namespace

json::object outcome_json(const JobOutcome& outcome, const plan::JobSpec& spec,
                          const plan::RankNumbers& numbers, const TailOf& tail) {
    json::object object;
    if (outcome.cause == JobOutcome::Cause::interrupted)
        object["ended_by"] = signal_word(outcome.signal);
    if (!outcome.ended_text.empty()) object["why"] = printable(outcome.ended_text);
    if (!outcome.gone_text.empty() && outcome.cause != JobOutcome::Cause::success)
        object["ended_from_outside"] = printable(outcome.gone_text);
    object["failed_hosts"] = failed_hosts(outcome, spec);
    json::array failures, well;
    if (outcome.first)
        failures.push_back(failure_json(*outcome.first, outcome, spec, numbers, tail));
    for (const Exited& later : outcome.later)
        failures.push_back(failure_json(later, outcome, spec, numbers, tail));
    object["failures"] = std::move(failures);
    object["failures_more"] = outcome.also_failed - outcome.later.size();
    for (const JobOutcome::EndedWell& ended : outcome.ended_well)
        well.push_back(std::to_underlying(ended.rank));
    if (outcome.first) object["ended_well_before"] = std::move(well);
    object["ended_by_dtrun"] = outcome.victims;
    object["killed"] = outcome.killed;
    object["left_behind"] = outcome.orphans;
    if (outcome.well_needed > 0) object["well_needed"] = outcome.well_needed;
    object["waiting"] = lines_json(outcome.waiting);
    object["stacks"] = lines_json(outcome.stacks);
    return object;
}

}  // namespace dtrun::report
