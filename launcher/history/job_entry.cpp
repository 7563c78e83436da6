#include "launcher/history/job_entry.h"

#include "base/utf8.h"
#include "launcher/watch/event.h"
#include "launcher/watch/json_line.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <limits>
#include <utility>

namespace dtrun::history {
namespace {

namespace json = boost::json;

constexpr int kSchema = 1;
constexpr std::size_t kTypedBytesMax = 64u << 10;
constexpr std::size_t kReportBytesMax = 32u << 10;
constexpr std::size_t kHostsBytesMax = 4u << 10;

std::string text_of(const json::object& object, std::string_view name) {
    const json::value* const found = object.if_contains(name);
    return found != nullptr && found->is_string() ? std::string(found->get_string())
                                                  : std::string();
}

/// A number of the type; 0 where there is none that fits.
template <class T>
T number_of(const json::object& object, std::string_view name) {
    const json::value* const found = object.if_contains(name);
    if (found == nullptr || !found->is_number()) return 0;
    boost::system::error_code unfit;
    const T number = found->to_number<T>(unfit);
    return unfit ? T{0} : number;
}

std::string cut(const std::string& text, std::size_t bytes_max) {
    return text.size() <= bytes_max ? text : text.substr(0, bytes_max) + "...";
}

std::size_t bytes_of(const TypedLine& line) {
    std::size_t bytes = 0;
    for (const std::string& word : line.words) bytes += word.size() + 1;
    return bytes;
}

/// Nothing: it is none, and nobody may run a part of it.
TypedLine read_typed(const json::object& object) {
    TypedLine typed;
    const json::value* const words = object.if_contains("words");
    const json::value* const hidden = object.if_contains("hidden");
    if (words == nullptr || !words->is_array()) return {};
    for (const json::value& word : words->get_array()) {
        if (!word.is_string()) return {};
        typed.words.emplace_back(word.get_string());
    }
    if (hidden == nullptr || !hidden->is_array()) return {};
    for (const json::value& index : hidden->get_array()) {
        boost::system::error_code unfit;
        const auto at = index.is_number() ? index.to_number<std::size_t>(unfit)
                                          : std::numeric_limits<std::size_t>::max();
        if (unfit || at >= typed.words.size()) return {};
        typed.hidden.push_back(at);
    }
    return typed;
}

json::object head_json(const ProcessMark& head) {
    return {{"host", head.host},
            {"boot", head.boot},
            {"pid_space", head.pid_space},
            {"pid", head.pid},
            {"started", head.started}};
}

ProcessMark read_head(const json::object& object) {
    const json::value* const found = object.if_contains("dtrun");
    if (found == nullptr || !found->is_object()) return {};
    const json::object& head = found->get_object();
    return {text_of(head, "host"), text_of(head, "boot"), text_of(head, "pid_space"),
            number_of<pid_t>(head, "pid"), number_of<std::uint64_t>(head, "started")};
}

json::object start_json(const JobStart& start) {
    json::object object;
    object["job"] = start.job;
    if (!start.name.empty()) object["name"] = start.name;
    object["typed"] = to_json(start.typed);
    object["directory"] = start.directory;
    object["program"] = start.program;
    object["ranks"] = start.ranks;
    object["hosts"] = start.host_count;
    object["host_names"] = cut(start.hosts, kHostsBytesMax);
    object["started"] = watch::utc_time(start.time_ns);
    object["started_ns"] = start.time_ns;
    object["dtrun"] = head_json(start.head);
    if (!start.log.empty()) object["log"] = start.log;
    if (!start.log.empty()) object["log_kept_bytes"] = start.log_kept;
    return object;
}

json::object end_json(const JobEnd& end) {
    json::object object;
    object["exit_code"] = end.code;
    object["cause"] = end.cause;
    object["ended"] = watch::utc_time(end.time_ns);
    object["ended_ns"] = end.time_ns;
    object["report"] = cut(end.report, kReportBytesMax);
    if (!end.output_lost.empty()) object["output_lost"] = end.output_lost;
    return object;
}

std::string line_with(std::string_view kind, json::object object) {
    json::object line;
    line["schema"] = kSchema;
    line["line"] = kind;
    for (auto& each : object) line.insert(std::move(each));
    return watch::json_line(line) + "\n";
}

JobStart read_start(const json::object& line) {
    JobStart start;
    start.job = text_of(line, "job");
    start.name = text_of(line, "name");
    const json::value* const typed = line.if_contains("typed");
    if (typed != nullptr && typed->is_object()) start.typed = read_typed(typed->get_object());
    start.directory = text_of(line, "directory");
    start.program = text_of(line, "program");
    start.ranks = number_of<std::uint32_t>(line, "ranks");
    start.host_count = number_of<std::uint32_t>(line, "hosts");
    start.hosts = text_of(line, "host_names");
    start.time_ns = number_of<std::int64_t>(line, "started_ns");
    start.head = read_head(line);
    start.log = text_of(line, "log");
    start.log_kept = number_of<std::uint64_t>(line, "log_kept_bytes");
    return start;
}

}  // namespace

json::object to_json(const TypedLine& typed) {
    const bool is_kept =
        bytes_of(typed) <= kTypedBytesMax && std::ranges::all_of(typed.words, is_utf8);
    const TypedLine kept = is_kept ? typed : TypedLine{};
    json::object object;
    object["words"] = json::array(kept.words.begin(), kept.words.end());
    object["hidden"] = json::array(kept.hidden.begin(), kept.hidden.end());
    return object;
}

std::string line_of(const JobStart& start) {
    return line_with("start", start_json(start));
}

std::string line_of(const JobEnd& end) {
    return line_with("end", end_json(end));
}

std::optional<JobEntry> parse_entry(std::string_view text) {
    std::optional<JobStart> start;
    std::optional<JobEnd> end;
    while (!text.empty()) {
        const std::size_t size = text.find('\n');
        if (size == std::string_view::npos) break;  // it is torn, or being written
        const auto line = watch::parse_object(text.substr(0, size));
        text.remove_prefix(size + 1);
        if (!line) continue;
        const std::string kind = text_of(*line, "line");
        if (kind == "start" && !start && !text_of(*line, "job").empty()) start = read_start(*line);
        if (kind == "end" && !end)
            end = JobEnd{number_of<std::int64_t>(*line, "ended_ns"),
                         number_of<int>(*line, "exit_code"), text_of(*line, "cause"),
                         text_of(*line, "report"), text_of(*line, "output_lost")};
    }
    if (!start) return std::nullopt;
    return JobEntry{std::move(*start), std::move(end)};
}

json::object to_json(const JobEntry& entry, Life life) {
    json::object object = start_json(entry.start);
    object["state"] = entry.end               ? "ended"
                      : life == Life::runs    ? "running"
                      : life == Life::unknown ? "elsewhere"
                                              : "lost";
    if (entry.end)
        for (auto& each : end_json(*entry.end)) object.insert(std::move(each));
    return object;
}

}  // namespace dtrun::history
