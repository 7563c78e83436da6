#pragma once

#include "base/numbered.h"
#include "launcher/watch/event.h"
#include "launcher/watch/health.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace dtrun::watch {

/// The last events of a job as lines for people, in which what happens to many is told once: "16 ranks started".
/// Memory is bounded, however many ranks there are.
class EventLines {
public:
    explicit EventLines(std::size_t lines_max = 200) : lines_max_(lines_max) {}

    void add(const Event& event);
    /// The oldest first; each has `time` (s since 1970, of the last event in it), `severity` and `text`.
    boost::json::array to_json() const;

private:
    struct Line {
        EventKind kind{};
        std::string ending{};  ///< what is told together
        std::string alike{};   ///< its words that have to be equal for that
        Severity severity{};
        boost::json::object first{};  ///< fields of the first event
        std::size_t count = 0;
        std::vector<Rank> ranks{};  ///< some of them
        std::vector<std::string> hosts{};
        std::int64_t time_ns = 0;
    };
    static std::string text(const Line& line);
    static std::string text_of_hosts(const Line& line);
    static std::string text_of_ranks(const Line& line);

    std::size_t lines_max_;
    std::deque<Line> lines_;
};

}  // namespace dtrun::watch
