#include "launcher/watch/event.h"

#include "launcher/watch/json_line.h"

#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <iterator>

namespace dtrun::watch {
namespace {

constexpr int kSchema = 1;  // of the lines; grows when a field changes its meaning

constexpr std::string_view kNames[] = {
#define DTRUN_EVENT(name) #name,
#include "launcher/watch/events.def"
};

}  // namespace

std::string_view name_of(EventKind kind) {
    return kNames[static_cast<std::size_t>(kind)];
}

std::optional<EventKind> event_kind(std::string_view name) {
    const auto* const found = std::ranges::find(kNames, name);
    if (found == std::end(kNames)) return std::nullopt;
    return static_cast<EventKind>(found - std::begin(kNames));
}

std::vector<std::string> event_names() {
    return {std::begin(kNames), std::end(kNames)};
}

std::string to_json(const Event& event, std::string_view job) {
    boost::json::object line;
    line["schema"] = kSchema;
    line["time"] = utc_time(event.time_ns);
    line["job"] = job;
    line["number"] = event.number;
    line["event"] = name_of(event.kind);
    for (const auto& [name, value] : event.fields) line[name] = value;
    return json_line(line);
}

/// By the calendar alone: gmtime() would read the files of time zones first.
std::string utc_time(std::int64_t time_ns) {
    const std::chrono::sys_time<std::chrono::nanoseconds> time{std::chrono::nanoseconds(time_ns)};
    const auto day = std::chrono::floor<std::chrono::days>(time);
    const std::chrono::year_month_day date{day};
    const std::chrono::hh_mm_ss clock{std::chrono::floor<std::chrono::microseconds>(time - day)};
    return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", static_cast<int>(date.year()),
                       static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                       clock.hours().count(), clock.minutes().count(), clock.seconds().count(),
                       clock.subseconds().count());
}

}  // namespace dtrun::watch
