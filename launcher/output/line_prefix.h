#pragma once

#include "base/numbered.h"
#include "launcher/output/buffer_queue.h"
#include "launcher/plan/tag.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dtrun::output {

using plan::LineStart;
using plan::Tag;

/// Shows what stands before a line in the colour of its rank, on a terminal.
void color(LineStart& start, Rank rank);
/// The same for what is said of several ranks at once.
void embolden(LineStart& start);

/// Local time as "2026-11-21T10:11:12.345", made anew only when the millisecond changes.
///
/// Thread: one.
class Timestamp {
public:
    static constexpr std::size_t kChars = LineStart::kTimeChars;

    /// \param time_ns  since 1970
    /// \return kChars characters, valid until the next call
    std::string_view text(std::int64_t time_ns);

private:
    std::int64_t second_ = INT64_MIN;
    std::int64_t millisecond_ = INT64_MIN;
    char text_[kChars + 1] = {};
};

/// How much memory all unfinished lines together may take, and take now.
struct PartBudget {
    std::size_t line_max;   ///< bytes of one line
    std::size_t total_max;  ///< bytes of all
    std::size_t used = 0;
};

/// Cuts one stream into lines and puts the prefix before each.
///
/// Thread: one. Lifetime: `budget` outlives it.
class LinePrefixer {
public:
    LinePrefixer(LineStart start, PartBudget& budget);

    /// Sets what stands before lines that begin from now on.
    void set_start(LineStart start);
    bool is_timed() const { return !start_.times.empty(); }  ///< add() needs a stamp

    /// \param stamp  Timestamp::kChars for lines that begin in `bytes`; empty unless is_timed()
    void add(std::string_view bytes, std::string_view stamp, BufferQueue::Filler& out);

    /// Shows an unfinished line, with a '\n' if there is a prefix.
    void finish(BufferQueue::Filler& out);
    std::string_view start() const { return start_.text; }  ///< of lines that begin now
    bool is_within_line() const { return !part_.empty(); }
    bool ends_lines() const { return !start_.text.empty(); }  ///< finish() does

private:
    std::string_view whole_lines(std::string_view bytes, BufferQueue::Filler& out);
    std::string_view continue_part(std::string_view bytes, BufferQueue::Filler& out);
    void add_to_part(std::string_view content, BufferQueue::Filler& out);
    void end_part(std::string_view line_end, BufferQueue::Filler& out);
    void count_part();
    /// What ends a line that has no end of its own.
    std::string_view cut() const { return start_.text.empty() ? "" : "\n"; }

    LineStart start_;             // of lines that begin now
    std::string part_;            // unfinished line after its start; empty: there is none
    std::size_t part_start_ = 0;  // how much of it that start is
    bool after_cr_ = false;       // the unfinished line ended with '\r', perhaps a '\n' follows
    std::size_t counted_ = 0;     // share in budget_.used
    PartBudget& budget_;
};

}  // namespace dtrun::output
