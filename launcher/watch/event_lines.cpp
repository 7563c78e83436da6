#include "launcher/watch/event_lines.h"

#include "base/strings.h"
#include "base/text_layout.h"
#include "hostfiles/hosts_alike.h"
#include "hostfiles/nodelist.h"
#include "launcher/plan/rank_set.h"
#include "launcher/watch/fields.h"

#include <fmt/format.h>
#include <algorithm>
#include <utility>

namespace dtrun::watch {
namespace {

namespace json = boost::json;

constexpr std::int64_t kTogether_ns = 60'000'000'000;
constexpr std::size_t kLinesBetween = 4;  // of other kinds
constexpr std::size_t kNamedMax = 16, kHostsNamedMax = 1'024;

bool is_of_host(EventKind kind) {
    return kind == EventKind::host_joined || kind == EventKind::host_failed ||
           kind == EventKind::host_lost || kind == EventKind::host_left;
}

bool is_of_rank(EventKind kind) {
    return kind == EventKind::rank_started || kind == EventKind::rank_exited;
}

bool is_set(const json::object& fields, std::string_view name) {
    const json::value* const found = fields.if_contains(name);
    return found != nullptr && found->is_bool() && found->get_bool();
}

/// "exit code 3", "SIGKILL, out of memory"
std::string how_it_ended(const json::object& fields) {
    const auto signal = text_of(fields, "signal");
    std::string text =
        signal.empty() ? fmt::format("exit code {}", whole(fields, "code")) : std::string(signal);
    if (is_set(fields, "out_of_memory")) text += ", out of memory";
    return text;
}

bool has_failed(const json::object& fields) {
    return !is_set(fields, "by_dtrun") && (fields.contains("signal") || whole(fields, "code") != 0);
}

Severity severity_of(EventKind kind, const json::object& fields) {
    switch (kind) {
        case EventKind::host_failed:
        case EventKind::host_lost:
        case EventKind::restart:
            return Severity::failure;
        case EventKind::stalled:
            return Severity::warning;
        case EventKind::rank_exited:
            return has_failed(fields) ? Severity::failure : Severity::note;
        case EventKind::job_ended:
            return whole(fields, "exit_code") != 0 ? Severity::failure : Severity::well;
        default:
            return Severity::note;
    }
}

std::string ending_of(EventKind kind, const json::object& fields) {
    if (kind == EventKind::host_failed || kind == EventKind::host_lost)
        return std::string(text_of(fields, "why"));
    if (kind != EventKind::rank_exited) return {};
    if (is_set(fields, "by_dtrun")) return "ended by dtrun";
    return has_failed(fields) ? "failed: " + how_it_ended(fields) : "ended well";
}

std::string cause_of(const json::object& fields) {
    std::string cause(text_of(fields, "cause"));
    std::ranges::replace(cause, '_', ' ');
    return cause;
}

}  // namespace

void EventLines::add(const Event& event) {
    std::string ending = ending_of(event.kind, event.fields);
    std::string alike = without_own_words(text_of(event.fields, "host"), ending);
    Line* line = nullptr;
    if (is_of_host(event.kind) || is_of_rank(event.kind)) {
        std::size_t looked_at = 0;
        for (auto each = lines_.rbegin(); each != lines_.rend(); ++each) {
            const bool is_news = !is_of_host(each->kind) && !is_of_rank(each->kind);
            const bool is_old = event.time_ns - each->time_ns > kTogether_ns;
            if (is_news || is_old || looked_at++ > kLinesBetween) break;
            if (each->kind != event.kind || each->alike != alike) continue;
            line = &*each;
            break;
        }
    }
    if (line == nullptr) {
        line = &lines_.emplace_back();
        line->kind = event.kind;
        line->ending = std::move(ending);
        line->alike = std::move(alike);
        line->severity = severity_of(event.kind, event.fields);
        line->first = event.fields;
    } else if (line->ending != ending) {
        line->ending = line->alike;
    }
    ++line->count;
    line->time_ns = event.time_ns;
    const bool has_rank = event.fields.contains("rank");
    if (has_rank && line->ranks.size() < kNamedMax)
        line->ranks.push_back(static_cast<Rank>(whole(event.fields, "rank")));
    if (is_of_host(event.kind) && line->hosts.size() < kHostsNamedMax)
        line->hosts.emplace_back(text_of(event.fields, "host"));
    if (lines_.size() > lines_max_) lines_.pop_front();
}

std::string EventLines::text_of_hosts(const Line& line) {
    const bool is_one = line.count == 1;
    std::string who = is_one ? line.hosts.front() : plural(line.count, "host");
    if (line.kind == EventKind::host_joined) return who + (is_one ? " has joined" : " have joined");
    if (line.kind == EventKind::host_left) return who + (is_one ? " has left" : " have left");
    if (!is_one)
        who += fmt::format(" ({}{})", compress_nodelist(line.hosts),
                           line.count > line.hosts.size() ? ", ..." : "");
    if (line.kind == EventKind::host_lost)
        return fmt::format("{} {} lost: {}", who, is_one ? "is" : "are", line.ending);
    return fmt::format("{} cannot take part: {}", who, line.ending);
}

std::string EventLines::text_of_ranks(const Line& line) {
    const std::string what = line.kind == EventKind::rank_started ? "started" : line.ending;
    if (line.count == 1)
        return fmt::format("rank {} on {} {}", line.ranks.front(), text_of(line.first, "host"),
                           what);
    const bool is_all = line.ranks.size() == line.count;
    if (line.severity != Severity::failure || !is_all)
        return fmt::format("{} ranks {}", line.count, what);
    std::vector<Rank> ranks = line.ranks;
    std::ranges::sort(ranks);
    return fmt::format("ranks {} {}", plan::rank_ranges(ranks), what);
}

std::string EventLines::text(const Line& line) {
    const json::object& fields = line.first;
    const auto count = [&fields](std::string_view name, std::string_view one) {
        return plural(static_cast<std::uint64_t>(whole(fields, name)), one);
    };
    switch (line.kind) {
        case EventKind::job_started:
            return fmt::format("the job starts: {} on {}", count("ranks", "rank"),
                               count("hosts", "host"));
        case EventKind::world_started:
            return fmt::format("generation {} begins with {}", whole(fields, "generation"),
                               count("ranks", "rank"));
        case EventKind::restart:
            return fmt::format("restart {}: rank {} on {} failed: {}", whole(fields, "restarts"),
                               whole(fields, "rank"), text_of(fields, "host"),
                               how_it_ended(fields));
        case EventKind::stalled:
        case EventKind::stall_ended:
            return fmt::format(
                "{} {} s: {}: {}",
                line.kind == EventKind::stalled ? "waiting for" : "no longer waiting, after",
                whole(fields, "waited_s"), text_of(fields, "ranks"), text_of(fields, "what"));
        case EventKind::job_ending:
            return "the job ends: " + cause_of(fields);
        case EventKind::job_ended:
            if (whole(fields, "exit_code") == 0) return "the job ended well";
            return fmt::format("the job ended with exit code {}", whole(fields, "exit_code"));
        default:
            return is_of_host(line.kind) ? text_of_hosts(line) : text_of_ranks(line);
    }
}

json::array EventLines::to_json() const {
    json::array list;
    for (const Line& line : lines_) {
        json::object item;
        item["time"] = line.time_ns / 1'000'000'000;
        item["severity"] = name_of(line.severity);
        item["text"] = text(line);
        list.push_back(std::move(item));
    }
    return list;
}

}  // namespace dtrun::watch
