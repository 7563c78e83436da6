#pragma once

#include "launcher/history/process_mark.h"
#include "launcher/history/typed_line.h"

#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// What a file of the history says of a job: a line of JSON when it begins, and one when it has ended. Pure.

namespace dtrun::history {

struct JobStart {
    std::string job;          ///< its id, hexadecimal
    std::string name{};       ///< --name; empty: none
    TypedLine typed{};        ///< its command line; without words: too long, or no UTF-8
    std::string directory{};  ///< in which that was typed
    std::string program{};    ///< for people, "python3 train.py"
    std::uint32_t ranks = 0;
    std::uint32_t host_count = 0;
    std::string hosts{};       ///< "s[1-4]", perhaps cut
    std::int64_t time_ns = 0;  ///< since 1970
    ProcessMark head{};
    std::string log{};           ///< path of the file that has its output; empty: none
    std::uint64_t log_kept = 0;  ///< so many bytes of it are kept at least, the last ones; 0: all

    bool operator==(const JobStart&) const = default;
};

struct JobEnd {
    std::int64_t time_ns = 0;
    int code = 0;
    std::string cause{};        ///< as events have it (docs/EVENTS.md)
    std::string report{};       ///< what the user was told, perhaps cut; empty: nothing
    std::string output_lost{};  ///< why not all output is in the log; empty: all that fits

    bool operator==(const JobEnd&) const = default;
};

struct JobEntry {
    JobStart start;
    std::optional<JobEnd> end{};
    std::string path{};  ///< of the file it was read from
};

/// `words` and `hidden`; both empty where the line is not kept: too long, or no UTF-8, whose bytes JSON would change
boost::json::object to_json(const TypedLine& typed);

/// A line with its '\n'.
std::string line_of(const JobStart& start);
std::string line_of(const JobEnd& end);

/// The first line of each kind; others, and what is torn, are passed over. Nothing: there is no begin
std::optional<JobEntry> parse_entry(std::string_view text);

/// For `dtrun jobs --all --json`. \param life  of its dtrun
boost::json::object to_json(const JobEntry& entry, Life life);

}  // namespace dtrun::history
