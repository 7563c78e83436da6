#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::watch {

/// What may happen to a job. docs/EVENTS.md says what each carries.
enum class EventKind : std::uint8_t {
#define DTRUN_EVENT(name) name,
#include "launcher/watch/events.def"
};

std::string_view name_of(EventKind kind);
/// By its name.
std::optional<EventKind> event_kind(std::string_view name);
std::vector<std::string> event_names();

/// Something that has happened to a job.
struct Event {
    EventKind kind{};
    std::uint64_t number = 0;      ///< in its job, from 1
    std::int64_t time_ns = 0;      ///< since 1970
    boost::json::object fields{};  ///< what belongs to its kind
};

/// One line of JSON, without '\n'. \param job  its id
std::string to_json(const Event& event, std::string_view job);

/// "2026-11-25T18:00:05.123456Z". \param time_ns  since 1970
std::string utc_time(std::int64_t time_ns);

/// Is told of all that happens to a job, in order.
class EventListener {
public:
    virtual ~EventListener() = default;
    virtual void happened(const Event& event) = 0;
};

}  // namespace dtrun::watch
