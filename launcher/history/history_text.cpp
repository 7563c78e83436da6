#include "launcher/history/history_text.h"

#include "base/strings.h"
#include "base/text_layout.h"
#include "base/utf8.h"
#include "launcher/output/path_pattern.h"

#include <fmt/format.h>
#include <ctime>

namespace dtrun::history {
namespace {

constexpr std::size_t kTextBytesMax = 300;
constexpr double kNsOfSecond = 1e9;

std::string short_id(const Known& job) {
    return job.entry.start.job.substr(0, output::kJobDigits);
}

/// As people look for it.
std::string moment_text(std::int64_t time_ns) {
    const auto seconds = static_cast<std::time_t>(time_ns / 1'000'000'000);
    return local_time_text(seconds, "%Y-%m-%d %H:%M:%S");
}

std::string ran_text(const JobEntry& entry) {
    if (!entry.end) return "-";
    return duration_text(static_cast<double>(entry.end->time_ns - entry.start.time_ns) /
                         kNsOfSecond);
}

std::string program_text(const JobStart& start) {
    const std::string program = escaped(start.program, kTextBytesMax);
    return start.name.empty() ? program : escaped(start.name) + ": " + program;
}

}  // namespace

std::string ending_text(const Known& job) {
    if (job.entry.end) {
        const JobEnd& end = *job.entry.end;
        if (end.code == 0) return "well";
        return fmt::format("exit {}, {}", end.code, escaped(end.cause));
    }
    switch (job.life) {
        case Life::runs:
            return "it runs";
        case Life::unknown:
            return "see " + escaped(job.entry.start.head.host);
        case Life::gone:
            break;
    }
    return "not known";
}

std::string history_table(const std::vector<Known>& jobs, std::size_t columns) {
    std::string text = fmt::format("{:<12} {:<16} {:>13} {:<20} {}\n", "JOB", "STARTED", "RAN FOR",
                                   "ENDED", "PROGRAM");
    for (const Known& job : jobs) {
        std::string line =
            fmt::format("{:<12} {:<16} {:>13} {:<20} {}", escaped(short_id(job)),
                        moment_text(job.entry.start.time_ns).substr(0, 16), ran_text(job.entry),
                        ending_text(job), program_text(job.entry.start));
        if (columns > 0 && line.size() > columns) line = line.substr(0, columns - 1) + "~";
        text += line + "\n";
    }
    return text;
}

std::string history_details(const Known& job) {
    const JobStart& start = job.entry.start;
    std::string text = fmt::format("job {}{}\n", escaped(start.job),
                                   start.name.empty() ? "" : ", named " + escaped(start.name));
    const auto add = [&text](std::string_view what, const std::string& value) {
        if (!value.empty()) text += fmt::format("  {:<10} {}\n", what, value);
    };
    add("command", start.typed.words.empty() ? "not kept: too long, no UTF-8, or with a secret"
                                             : escaped(shell_text(start.typed), std::string::npos));
    add("in", escaped(start.directory, std::string::npos));
    add("started",
        fmt::format("{} on {}: {} on {} ({})", moment_text(start.time_ns), escaped(start.head.host),
                    plural(start.ranks, "rank"), plural(start.host_count, "host"),
                    escaped(start.hosts, kTextBytesMax)));
    if (job.entry.end)
        add("ended", fmt::format("{}, after {}: {}", moment_text(job.entry.end->time_ns),
                                 ran_text(job.entry), ending_text(job)));
    else if (job.life == Life::runs)
        add("ended", "not yet");
    else if (job.life == Life::unknown)
        add("ended", fmt::format("not known here: ask on {}", escaped(start.head.host)));
    else
        add("ended", "without saying how: its dtrun was killed, or the machine went down");
    if (!start.log.empty())
        add("output", fmt::format("dtrun logs {} ({})", escaped(short_id(job)),
                                  escaped(start.log, std::string::npos)));
    if (!job.entry.end) return text;
    if (!job.entry.end->output_lost.empty())
        add("", "not complete: " + escaped(job.entry.end->output_lost, kTextBytesMax));
    if (!job.entry.end->report.empty()) text += "\n" + printable(job.entry.end->report);
    return text;
}

}  // namespace dtrun::history
