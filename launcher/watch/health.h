#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// What is wrong with a job, in sentences. `dtrun top`, the page and `dtrun jobs --json` have them from here.

namespace dtrun::watch {

enum class Severity : std::uint8_t { well, note, warning, failure };
std::string_view name_of(Severity severity);

/// Something that is to be said of a job.
struct Finding {
    Severity severity = Severity::well;
    std::string text;  ///< "rank 5 on s2 is 23 steps behind (6.8 against 9.5 steps/s)"
    std::optional<std::int64_t> rank{};  ///< whom it names first, if it names one
    std::string host{};                  ///< as well
};

struct Health {
    std::vector<Finding> findings;  ///< the worst first; at least one
    std::vector<std::int64_t>
        behind;                  ///< [rank, as the view lists them] steps; 0: it is with the first
    std::vector<bool> late;      ///< [rank] it is so far behind that it is worth a word
    std::vector<bool> troubled;  ///< [host, as the view lists them] something is wrong there
    std::optional<double> pace;  ///< steps/s of a usual rank
};

/// Looks at a view of JobRecord::view(), or at a job of daemon_view(). Pure. A rank is late if it is behind the
/// first by two steps and by what a usual rank makes in a second, as hosts are not asked in the same moment.
Health examine(const boost::json::object& view);

/// The findings of a job, for a view of it: `severity`, `text`, and `rank` and `host` if it is about one.
boost::json::array to_json(const std::vector<Finding>& findings);

/// "9.5", "0.031", "120"
std::string pace_text(double steps_per_s);

}  // namespace dtrun::watch
