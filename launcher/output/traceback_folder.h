#pragma once

#include "base/clock.h"
#include "base/numbered.h"

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace dtrun::output {

/// Shows a traceback of Python that several ranks print once: who prints the same frames shortly afterwards has one line
/// in their place, with its own exception:
///
///     [0]<stderr>:Traceback (most recent call last):
///     [0]<stderr>:  File "train.py", line 1, in <module>
///     [0]<stderr>:ModuleNotFoundError: No module named 'nosuch'
///     [1-15]<stderr>:Traceback as of rank 0 above: ModuleNotFoundError: No module named 'nosuch'
///
/// Everything else passes as it comes. Only lines that somebody else has just printed are kept, at most for a moment, until
/// the traceback is whole; if it turns out to be another one, they are shown.
///
/// Cost: a search for one text in what passes. Memory: bounded for each stream. Thread: one.
class TracebackFolder {
public:
    struct Options {
        Clock::duration wait = std::chrono::milliseconds(100);  ///< that lines are kept
        Clock::duration above =
            std::chrono::seconds(10);       ///< so long a traceback is said to be above
        std::size_t bytes_max = 16u << 10;  ///< of a traceback; a longer one is shown
        std::size_t traces_max = 32;        ///< that are known at a time
    };
    /// What is to be shown of a stream.
    struct Piece {
        std::size_t stream = 0;
        std::string_view bytes{};
        bool is_repeated = false;  ///< the line that stands for a traceback
    };
    using Emit = std::function<void(const Piece& piece)>;

    explicit TracebackFolder(Options options) : options_(options) {}

    /// \param rank  whose stream it is, as others are told
    void add(std::size_t stream, Rank rank, std::string_view bytes, Clock::time_point now,
             const Emit& emit);
    /// The stream has ended: what is kept of it is shown.
    void finish(std::size_t stream, const Emit& emit);
    /// Shows what has been kept for too long.
    void show_due(Clock::time_point now, const Emit& emit);

    bool empty() const { return keeping_ == 0; }
    /// When show_due() is to be called at the latest. Nothing: nothing is kept.
    std::optional<Clock::time_point> due() const;

private:
    /// A traceback that is shown, or is being shown.
    struct Trace {
        std::size_t stream = 0;
        Rank rank{};
        std::string frames{};  ///< all of its lines but the last
        bool is_whole = false;
        Clock::time_point shown{};
    };
    enum class Phase {
        outside,
        showing,  ///< within a traceback that is shown as it comes
        keeping,  ///< within one that may be that of somebody else
    };
    struct Stream {
        Phase phase = Phase::outside;
        Rank rank{};
        bool at_line_start = true;
        std::string part{};  ///< a line without its end, in a traceback or perhaps the begin of one
        std::string kept{};  ///< lines of a traceback, none shown
        Clock::time_point until{};
    };
    enum class Verdict { same, other, open };

    void pass_outside(std::size_t id, Stream& stream, std::string_view& bytes, const Emit& emit);
    void add_line(std::size_t id, Stream& stream, std::string_view line, Clock::time_point now,
                  const Emit& emit);
    Verdict judge(std::size_t id, const Stream& stream, Clock::time_point now, Trace*& as);
    void settle(std::size_t id, Stream& stream, Clock::time_point now, const Emit& emit);
    void show_kept(std::size_t id, Stream& stream, Clock::time_point now, const Emit& emit);
    void note_shown(std::size_t id, Stream& stream, std::string_view line, Clock::time_point now);
    void leave(std::size_t id, Stream& stream, const Emit& emit);
    void set_phase(Stream& stream, Phase phase);

    const Options options_;
    std::map<std::size_t, Stream> streams_;
    std::deque<Trace> traces_;  // newest last
    std::size_t keeping_ = 0;   // streams
};

}  // namespace dtrun::output
