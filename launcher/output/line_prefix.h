#pragma once

#include "base/numbered.h"
#include "launcher/output/buffer_queue.h"
#include "launcher/output/output_stream.h"
#include "rendezvous/wire/output_messages.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace dtrun::output {

/// What stands before each line on the console.
enum class Tag {
    none,
    rank,       ///< "[3] "
    host,       ///< "[s2] "
    rank_host,  ///< "[3@s2] "
    horovod,    ///< "[3]<stdout>:"
};

std::string prefix_text(Tag tag, Rank rank, Stream stream, std::string_view host);

/// Local time as "2026-11-21T10:11:12.345 ", made anew only when the millisecond changes.
///
/// Thread: one.
class Timestamp {
public:
    static constexpr std::size_t kChars = 24;

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
    /// \param stamped  add() gets a stamp
    LinePrefixer(std::string_view prefix, bool stamped, PartBudget& budget);

    /// Sets the prefix of lines that begin from now on.
    void set_prefix(std::string_view prefix);

    /// \param stamp  Timestamp::kChars, before the prefix of lines that begin in `bytes`; or empty
    void add(std::string_view bytes, std::string_view stamp, BufferQueue::Filler& out);

    /// Shows an unfinished line, with a '\n' if there is a prefix.
    void finish(BufferQueue::Filler& out);

private:
    std::string_view whole_lines(std::string_view bytes, BufferQueue::Filler& out);
    std::string_view continue_part(std::string_view bytes, BufferQueue::Filler& out);
    void add_to_part(std::string_view content, BufferQueue::Filler& out);
    void end_part(std::string_view line_end, BufferQueue::Filler& out);
    void count_part();

    std::string prefix_;       // of lines that begin now, after its stamp
    std::size_t stamp_chars_;  // of prefix_, for the stamp
    std::string_view cut_;     // what ends a line that has no end of its own
    std::string part_;         // unfinished line after its prefix; empty: there is none
    bool after_cr_ = false;    // the unfinished line ended with '\r', perhaps a '\n' follows
    std::size_t counted_ = 0;  // share in budget_.used
    PartBudget& budget_;
};

}  // namespace dtrun::output
