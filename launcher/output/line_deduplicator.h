#pragma once

#include "base/clock.h"
#include "launcher/output/line_prefix.h"
#include "launcher/output/output_stream.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace dtrun::output {

/// Cuts a stream into lines, which end at '\n', '\r' or "\r\n".
///
/// Memory: a line longer than one may be is cut, and so is any while all unfinished ones take too much; each
/// piece gets a '\n'.
///
/// Lifetime: `budget` outlives it.
class LineCutter {
public:
    using Each = std::function<void(std::string line)>;

    explicit LineCutter(PartBudget& budget) : budget_(&budget) {}

    /// \param each  called with every line that is whole, with its end
    void add(std::string_view bytes, const Each& each);
    /// The stream has ended: an unfinished line gets a '\n'.
    void finish(const Each& each);

private:
    void count();

    PartBudget* budget_;
    std::size_t counted_ = 0;  // share in budget_->used
    std::string part_;         ///< with an '\r' at its end, perhaps: a '\n' may follow
};

/// Lines that several streams have printed alike within a moment, as one.
struct RepeatedLine {
    std::string text{};                  ///< with its end
    std::vector<std::size_t> streams{};  ///< stream_index() of each, in order of their arrival
    std::int64_t time_ns = 0;            ///< when the first one was read
};

/// Keeps lines for a moment, in which equal ones of other ranks become one with them.
///
/// The lines of a stream keep their order: a line joins an equal one only behind all that its stream has
/// joined before. A line is shown once every stream has it, at the latest when the moment is over,
/// or when all that is kept takes too much memory.
///
/// Cost: a look into a hash table for each line. Thread: one.
class LineDeduplicator {
public:
    struct Options {
        Clock::duration wait = std::chrono::milliseconds(100);
        std::size_t bytes_max = 256u << 10;  ///< of all that is kept
    };

    explicit LineDeduplicator(Options options) : options_(options) {}

    /// A line that every stream of its kind has printed waits no longer.
    void add_stream(std::size_t stream) {
        ++kind_of(stream).streams;
        ++kind_of(stream).alive;
    }
    /// It prints no more: when that is so of all, no line waits any longer.
    void end_stream(std::size_t stream) { --kind_of(stream).alive; }
    void resume_stream(std::size_t stream) { ++kind_of(stream).alive; }
    void add(std::size_t stream, std::int64_t time_ns, std::string line, Clock::time_point now);
    /// The next line that has been kept for long enough.
    std::optional<RepeatedLine> take(Clock::time_point now);
    /// The next line whatever its time. Nothing: there is none.
    std::optional<RepeatedLine> take();

    bool empty() const { return kept_.empty(); }
    /// When take() gives the next line at the latest. Nothing: none is kept.
    std::optional<Clock::time_point> due() const;

private:
    struct Kept {
        RepeatedLine line;
        Clock::time_point until;
    };

    static std::string key_of(std::size_t stream, std::string_view text);
    /// How many streams there are, and print.
    struct Kind {
        std::size_t streams = 0;
        std::size_t alive = 0;
    };
    Kind& kind_of(std::size_t stream) { return kinds_[stream_of(stream) == Stream::err]; }

    const Options options_;
    std::array<Kind, 2> kinds_{};  // of out and err
    std::deque<Kept> kept_;        // oldest first
    std::uint64_t first_ = 0;      // number of the oldest; they are numbered as they come
    std::size_t bytes_ = 0;
    /// Numbers of kept lines with this text, newest last.
    std::unordered_map<std::string, std::deque<std::uint64_t>> by_text_;
    std::unordered_map<std::size_t, std::uint64_t>
        next_of_;  // by stream: what it may join begins here
};

}  // namespace dtrun::output
