#pragma once

#include "base/numbered.h"
#include "launcher/output/line_prefix.h"
#include "launcher/output/log_file.h"
#include "launcher/output/output_stream.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::output {

/// --log: every line of every rank with its time, rank and host, and all that dtrun says.
///
/// Memory: what its file cannot take yet waits as it came, at most the bytes not yet credited.
/// Thread: one, except message(). Lifetime: `parts` outlives it.
class JobLog {
public:
    /// \param opened  the file, where that is open already. \param parts  of unfinished lines
    /// Errc: invalid_input, internal; names the path
    static Result<std::unique_ptr<JobLog>> open(std::string path, Fd opened, Rotation rotation,
                                                BufferQueue::Options options, PartBudget& parts,
                                                WrittenFunction taken);

    /// Adds the next stream (stream_index()).
    void add_stream(std::string host, Rank number);
    void set_number(std::size_t stream, Rank number);  ///< of lines that begin from now on
    void add(std::size_t stream, std::int64_t time_ns, std::string_view bytes);
    void finish(std::size_t stream);  ///< an unfinished line gets its end
    void message(std::string_view whole_lines);

    void pump();  ///< formats what waits, as far as there is room now
    bool waiting() const { return !backlog_.empty(); }
    bool idle() const { return backlog_.empty() && file_->queue().idle(); }
    bool is_silent() const { return file_->is_silent(); }
    std::optional<Error> take_failure() { return file_->take_failure(); }

    /// What still waits counts as taken; the rest is written until the deadline.
    void stop(Deadline deadline);
    void join() { file_->join(); }

private:
    struct Line {
        std::string host;
        LinePrefixer lines;
    };
    struct Waiting {
        std::size_t stream = 0;
        std::int64_t time_ns = 0;
        std::string bytes{};
        std::size_t logged = 0;        ///< of `bytes`
        bool end = false;              ///< finish() instead of bytes
        std::optional<Rank> number{};  ///< set_number() instead of bytes
    };

    JobLog(Running<LogFile> file, PartBudget& parts, WrittenFunction taken)
        : file_(std::move(file)), parts_(parts), taken_(std::move(taken)) {}
    LineStart start(std::size_t stream, Rank number) const;
    std::size_t add_some(std::size_t stream, std::int64_t time_ns, std::string_view bytes);
    void end_line(std::size_t stream);

    Running<LogFile> file_;
    PartBudget& parts_;
    WrittenFunction taken_;
    Timestamp timestamp_;
    std::vector<Line> streams_;
    std::deque<Waiting> backlog_;
};

}  // namespace dtrun::output
