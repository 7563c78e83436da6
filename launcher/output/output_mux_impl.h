#pragma once

#include "launcher/output/fd_writer.h"
#include "launcher/output/job_log.h"
#include "launcher/output/line_deduplicator.h"
#include "launcher/output/line_prefix.h"
#include "launcher/output/line_tail.h"
#include "launcher/output/output_mux.h"
#include "launcher/output/rank_files.h"
#include "launcher/output/screen_lines.h"
#include "launcher/output/traceback_folder.h"
#include "launcher/output/write_completions.h"

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::output {

/// What a console could not take yet.
struct Waiting {
    std::size_t stream = 0;
    std::int64_t time_ns = 0;
    std::string bytes;
    std::size_t shown = 0;         ///< of `bytes`
    bool end = false;              ///< finish() instead of bytes
    std::optional<Rank> number{};  ///< of the rank from now on, instead of bytes
};

/// One descriptor, with what waits for it.
struct Console {
    Console(int fd, std::string name, BufferQueue::Options options, WrittenFunction written)
        : writer(std::make_shared<FdWriter>(fd, std::move(name), options, std::move(written))) {}

    Running<FdWriter> writer;
    std::deque<Waiting> backlog;
    LineDeduplicator folder{{}};  ///< empty unless lines are folded, or tracebacks
    ScreenLines last;             ///< on a terminal
    bool is_used = false;         ///< ranks have printed here
    bool is_within_line = false;  ///< and one has ended without ending its line
};

/// One stream of a rank.
struct StreamState {
    LinePrefixer lines;
    Console* console = nullptr;            ///< null: not shown
    bool raw = false;                      ///< shown as it comes
    bool filed = false;                    ///< goes to a file
    Rank number{};                         ///< of its rank, in lines on the console
    std::unique_ptr<LineCutter> cutter{};  ///< its lines are folded; else null
    bool traced = false;                   ///< its tracebacks are
    bool ended = false;
    std::uint64_t received_bytes = 0;
    std::uint64_t console_bytes = 0;  ///< of these, taken by the console
    std::uint64_t file_bytes = 0;
    std::uint64_t log_bytes = 0;
    std::uint64_t credited_bytes = 0;
};

struct OutputMux::Impl {
    Impl(OutputOptions given, std::vector<std::string> given_hosts, std::function<void()> wake);
    Result<void> open_files();
    Result<void> open_log();
    WrittenFunction written_by(WriteCompletions::Sink sink) const;
    bool has_own_prefix(std::size_t stream) const;
    LineStart plain_start(std::size_t stream, Rank rank) const;
    LineStart start(std::size_t stream, Rank rank) const;
    LineStart start_of_all(const RepeatedLine& line) const;
    bool is_raw() const;
    bool is_colored(const Console& console) const;
    void add_stream(std::size_t stream);

    std::size_t show(std::size_t stream, std::int64_t time_ns, std::string_view bytes);
    void write(std::size_t stream, std::int64_t time_ns, std::string_view bytes,
               BufferQueue::Filler& out);
    void put_piece(const TracebackFolder::Piece& piece, std::int64_t time_ns);
    void count_shown(std::span<const std::size_t> of, std::string_view bytes,
                     std::string_view start);
    void finish(std::size_t stream);
    void say(std::string_view whole_lines);
    void write_own(Console& console, std::string text);
    void fold(std::size_t stream, std::int64_t time_ns, std::string_view bytes);
    void show_folded(Console& console, const RepeatedLine& line);
    void show_due(Console& console);
    void show_all_folded(Console& console);
    void pump();
    bool waiting() const;
    void credit(std::size_t stream);
    std::size_t drop_backlog(Console& console);
    void renumber(std::size_t stream, Rank number);

    OutputOptions options;
    std::vector<std::string> hosts;
    const bool raw;
    const std::shared_ptr<WriteCompletions> inbox;  ///< threads that are left behind have it, too
    PartBudget parts;
    Timestamp timestamp;
    std::vector<std::unique_ptr<Console>> consoles;
    std::array<Console*, 2> console_of{};  ///< of out and err
    std::vector<StreamState> streams;      ///< by stream_index()
    TracebackFolder tracebacks{{}};
    std::vector<LineTail> tails;  ///< by rank
    std::vector<OutputCredit> credits;
    std::uint64_t uncredited_bytes = 0;
    WriteCompletions::Boxes written;
    Running<RankFiles> files;
    std::unique_ptr<JobLog> log;
    bool stopped = false;
};

}  // namespace dtrun::output
