#pragma once

#include "base/fd.h"
#include "base/numbered.h"
#include "base/result.h"
#include "launcher/output/output.h"
#include "launcher/output/output_stream.h"
#include "launcher/output/rank_files.h"
#include "launcher/output/rotation.h"
#include "launcher/plan/log_options.h"
#include "launcher/plan/tag.h"
#include "rendezvous/wire/output_messages.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::output {

using plan::Color;
using plan::Tag;

struct OutputOptions {
    Tag tag = Tag::horovod;
    bool timestamps = false;  ///< before the tag: time of the host when it read the bytes
    Color color = Color::never;
    bool fold = false;       ///< equal lines of several ranks are shown as one
    std::string directory;   ///< for per-rank files, made if missing; empty: no files
    RankFileName file_name;  ///< of these; empty: plain_file_names()
    std::string_view files_flag = "--output-dir";  ///< by which the user has asked for these
    std::string log;                         ///< a file that all lines are appended to; empty: none
    std::shared_ptr<Fd> log_file{};          ///< that file, where it is open already
    std::string log_begin;                   ///< its first line of this job
    Rotation rotation;                       ///< of all files
    std::optional<Rotation> log_rotation{};  ///< of the log; unset: as `rotation`
    /// Called instead of telling a failure of the log, on the thread that asks for failures: nobody has asked for it.
    std::function<void(std::string)> log_failed{};
    std::vector<bool> console;      ///< by rank: shown on the console; empty: every rank is
    std::vector<StreamShow> shows;  ///< by stream_index(); empty: all as the tag has it
    bool may_grow = false;          ///< add_slots() may be called
    /// Whether the user's terminal is raw, so that lines of dtrun's own have to end with "\r\n". Any thread.
    std::function<bool()> is_raw_terminal{};
    int stdout_fd = 1;  ///< inherited, stay open and keep their flags
    int stderr_fd = 2;
    std::size_t line_part_max = 1u << 20;      ///< a longer line is cut, see OutputMux
    std::size_t part_total_max = 64u << 20;    ///< of all unfinished lines together
    std::size_t pending_bytes_max = 4u << 20;  ///< formatted and not yet written, per console
    std::chrono::microseconds gather{1000};    ///< least time between two small writes
    std::size_t files_open_max = 256;          ///< descriptors used for per-rank files
};

/// The Output of a real head: standard output, standard error and files, by a thread each.
///
/// Lines end at '\n', '\r' or "\r\n". An unfinished line waits for its rest, or for finish(). A
/// line longer than `line_part_max` is shown in pieces of that size; so is any line while all
/// unfinished ones exceed `part_total_max`. With a prefix each piece gets one and a '\n'; without,
/// nothing is ever added. One rank and Tag::none: bytes pass as they come.
///
/// Where lines are folded, those of several ranks that are equal and come within 100 ms are shown once, with all
/// the ranks in the tag; a line without end gets one. The log has each of them. There, and on a terminal, a
/// traceback that several ranks print is shown once (TracebackFolder).
///
/// Memory: at most the bytes not yet credited, twice `part_total_max`, and about
/// `pending_bytes_max` for each console, however much longer the prefixes make the text.
///
/// Lifetime: the descriptors outlive it; the destructor abandons what stop() has not seen written.
class OutputMux final : public Output {
public:
    /// \param hosts  name of the host of each rank; its size is the world size
    /// \param wake   called on any thread, at most once between two collect(): has collect() called
    ///               soon, e.g. by asio::post. Not called any more once stop() has returned.
    /// Errc: invalid_input, internal (per-rank files; the message names the
    /// path)
    static Result<std::unique_ptr<OutputMux>> create(OutputOptions options,
                                                     std::vector<std::string> hosts,
                                                     std::function<void()> wake);
    ~OutputMux() override;
    OutputMux(const OutputMux&) = delete;
    OutputMux& operator=(const OutputMux&) = delete;

    void add_slots(MoreSlots places) override;
    void set_numbers(const plan::RankNumbers& numbers) override;
    void begin_attempt(int attempt) override;
    void add(plan::SlotId rank, Stream stream, std::int64_t host_time_ns,
             std::string_view bytes) override;
    void finish(plan::SlotId rank, Stream stream) override;
    void message(std::string_view whole_lines) override;
    void message_to_terminal(std::string_view whole_lines, std::string_view elsewhere) override;
    void report(const Ending& ending) override;
    bool is_on_screen(plan::SlotId rank, std::size_t lines) const override;
    void set_status(std::string_view text) override;
    bool has_status() const override;
    std::span<const OutputCredit> collect() override;
    std::optional<Clock::time_point> due() const override;
    bool idle() const override;
    std::vector<Error> take_failures() override;
    std::vector<std::string> tail(plan::SlotId rank) const override;
    void stop(Deadline deadline) override;
    bool is_disk_silent() const override;
    bool is_stderr_alive() const override;

    std::uint64_t bytes(plan::SlotId rank, Stream stream) const;  ///< received so far

private:
    struct Impl;
    explicit OutputMux(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace dtrun::output
