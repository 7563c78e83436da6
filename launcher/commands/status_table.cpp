// What `dtrun status` shows of a daemon's answer.

#include "base/strings.h"
#include "base/text_layout.h"
#include "launcher/commands/store_command.h"
#include "launcher/watch/job_table.h"

#include <fmt/format.h>
#include <algorithm>
#include <boost/json/array.hpp>

namespace dtrun::commands {
namespace {

namespace json = boost::json;

// What another program has said may lack anything.

/// 0 if the object has none of that name.
std::int64_t number_of(const json::object& object, std::string_view name) {
    const json::value* found = object.if_contains(name);
    return found != nullptr && found->is_number() ? found->to_number<std::int64_t>() : 0;
}

/// Empty if the object has none of that name.
std::string text_of(const json::object& object, std::string_view name) {
    const json::value* found = object.if_contains(name);
    return found != nullptr && found->is_string() ? escaped(found->get_string()) : "";
}

/// The objects in an array; none if the object has no such array.
std::vector<json::object> objects_of(const json::object& object, std::string_view name) {
    std::vector<json::object> objects;
    const json::value* found = object.if_contains(name);
    if (found == nullptr || !found->is_array()) return objects;
    for (const json::value& item : found->get_array())
        if (item.is_object()) objects.push_back(item.get_object());
    return objects;
}

/// How long nobody has been connected to a job.
std::string unused_of(const json::object& job) {
    if (!job.contains("unused_s")) return "-";
    return duration_text(static_cast<double>(number_of(job, "unused_s")));
}

std::string member_row(const json::object& member) {
    const json::value* connected = member.if_contains("connected");
    const bool is_lost = connected != nullptr && connected->is_bool() && !connected->get_bool();
    return fmt::format("  {:<18} {:>3} slots {:>3} ranks{}\n", text_of(member, "host"),
                       number_of(member, "slots"), number_of(member, "ranks"),
                       is_lost ? ", not connected" : "");
}

}  // namespace

bool has_job(const json::object& status) {
    return std::ranges::any_of(objects_of(status, "jobs"), [](const json::object& job) {
        return number_of(job, "ranks") != 0 || number_of(job, "keys") != 0 ||
               number_of(job, "connections") > 1 || text_of(job, "phase") != "store";
    });
}

std::string status_table(const json::object& status) {
    std::string out = fmt::format(
        "dtrun serve {}, pid {}, up {} s, {}\n", text_of(status, "version"),
        number_of(status, "pid"), number_of(status, "uptime_s"),
        plural(static_cast<unsigned long long>(number_of(status, "connections")), "connection"));
    const std::vector<json::object> jobs = objects_of(status, "jobs");
    if (status.contains("keep_unused_s"))
        out += fmt::format("a job that is only a store goes when it is unused for {}\n",
                           duration_text(static_cast<double>(number_of(status, "keep_unused_s"))));
    if (jobs.empty()) return out + "no jobs\n";
    out += fmt::format("{:<20} {:<10} {:>5} {:>13} {:>8} {:>10} {:>12}\n", "JOB", "PHASE", "GEN",
                       "RANKS", "KEYS", "STEP", "UNUSED");
    for (const json::object& job : jobs) {
        const std::string ranks =
            fmt::format("{} ({}-{})", number_of(job, "ranks"), number_of(job, "ranks_min"),
                        number_of(job, "ranks_max"));
        const bool steps = job.contains("slowest_step");
        out += fmt::format("{:<20} {:<10} {:>5} {:>13} {:>8} {:>10} {:>12}\n", text_of(job, "name"),
                           text_of(job, "phase"), number_of(job, "generation"), ranks,
                           number_of(job, "keys"),
                           steps ? fmt::format("{}-{}", number_of(job, "slowest_step"),
                                               number_of(job, "fastest_step"))
                                 : "-",
                           unused_of(job));
        for (const json::object& member : objects_of(job, "members")) out += member_row(member);
    }
    return out;
}

}  // namespace dtrun::commands
