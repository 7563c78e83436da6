#include "launcher/watch/event.h"

#include "launcher/watch/serialize.h"

#include <fmt/format.h>
#include <algorithm>
#include <ctime>
#include <iterator>

namespace dtrun::watch {
namespace {

constexpr int kSchema = 1;  // of the lines; grows when a field changes its meaning
constexpr std::int64_t kSecond = 1'000'000'000;

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
    return serialize(line);
}

std::string utc_time(std::int64_t time_ns) {
    const std::time_t seconds = time_ns / kSecond;
    std::tm parts{};
    ::gmtime_r(&seconds, &parts);
    return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", parts.tm_year + 1900,
                       parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                       time_ns % kSecond / 1'000);
}

}  // namespace dtrun::watch
