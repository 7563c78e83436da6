#pragma once

#include "base/loop/deadline.h"
#include "base/result.h"
#include "launcher/output/line_prefix.h"
#include "launcher/output/output_stream.h"
#include "launcher/output/rank_files.h"
#include "rendezvous/output_messages.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::output {

/// How one stream of a rank is shown.
struct StreamShow {
    bool console = true;   ///< on the console at all
    std::string prefix{};  ///< of its lines instead of the tag's, unless empty; in it "${rank}"
                           ///< stands for the rank's number
};

struct OutputOptions {
    Tag tag = Tag::horovod;
    bool timestamps = false;        ///< before the prefix: time of the host when it read the bytes
    std::string directory;          ///< for per-rank files, made if missing; empty: no files
    RankFileName file_name;         ///< of these; empty: plain_file_names()
    std::vector<bool> console;      ///< by rank: shown on the console; empty: every rank is
    std::vector<StreamShow> shows;  ///< by stream_index(); empty: all as the tag has it
    int stdout_fd = 1;              ///< inherited, stay open and keep their flags
    int stderr_fd = 2;
    std::size_t line_part_max = 1u << 20;      ///< a longer line is cut, see OutputMux
    std::size_t part_total_max = 64u << 20;    ///< of all unfinished lines together
    std::size_t pending_bytes_max = 4u << 20;  ///< formatted and not yet written, per console
    std::chrono::microseconds gather{1000};    ///< least time between two small writes
    std::size_t files_open_max = 256;          ///< descriptors used for per-rank files
};

/// Bytes of a rank that have left, so that its agent may send as many again.
struct OutputCredit {
    int rank = 0;
    Stream stream = Stream::out;
    std::size_t bytes = 0;
};

/// What the head shows: gathers the ranks' bytes into whole lines, puts the prefix before each and
/// writes them to standard output, standard error and per-rank files, together with dtrun's own
/// messages and its status line.
///
/// Lines end at '\n', '\r' or "\r\n". An unfinished line waits for its rest, or for finish(). A
/// line longer than `line_part_max` is shown in pieces of that size; so is any line while all
/// unfinished ones exceed `part_total_max`. With a prefix each piece gets one and a '\n'; without,
/// nothing is ever added. One rank and Tag::none: bytes pass as they come.
///
/// Memory: at most the bytes not yet credited, twice `part_total_max`, and about
/// `pending_bytes_max` for each console, however much longer the prefixes make the text.
///
/// Thread: one (the io_context's), except message(); none of the calls blocks but stop().
/// Lifetime: the descriptors outlive it; the destructor abandons what stop() has not seen written.
class OutputMux {
public:
    /// \param hosts  name of the host of each rank; its size is the world size
    /// \param wake   called on any thread, at most once between two collect(): has collect() called
    ///               soon, e.g. by asio::post. Not called any more once stop() has returned.
    /// Errc: denied, not_found, invalid_input, internal (per-rank files; the message names the
    /// path)
    static Result<std::unique_ptr<OutputMux>> create(OutputOptions options,
                                                     std::vector<std::string> hosts,
                                                     std::function<void()> wake);
    ~OutputMux();
    OutputMux(const OutputMux&) = delete;
    OutputMux& operator=(const OutputMux&) = delete;

    /// Ranks are shown with numbers from `first` up, from now on; 0 until then.
    void set_first_rank(int first);

    /// All ranks start again, and everything of those before has been added: their last words are
    /// forgotten, and the files are those of this attempt.
    /// \param attempt  greater than any before; it begins with 0
    void begin_attempt(int attempt);

    /// \param host_time_ns  since 1970, by the rank's host; unused without timestamps
    /// \param bytes         copied; every one of them is credited once
    void add(int rank, Stream stream, std::int64_t host_time_ns, std::string_view bytes);

    /// The stream has ended: an unfinished line is shown, with a '\n' if it has a prefix.
    void finish(int rank, Stream stream);

    /// Text of dtrun itself, on standard error; ends with '\n'. Any thread.
    void message(std::string_view whole_lines);

    /// One line without '\n' kept below everything else while standard error is a terminal, cut to
    /// its width; empty removes it. Nothing happens elsewhere.
    void set_status(std::string_view text);
    bool has_terminal() const;  ///< standard error is one, so set_status() shows

    /// What has left since the last call; valid until the next. Continues with waiting bytes.
    std::span<const OutputCredit> collect();

    /// Everything accepted has left, except unfinished lines, and is credited. Changes to true with
    /// a wake.
    bool idle() const;

    /// What went wrong with the console or a file since the last call, each once, ready to be
    /// shown: closed (the reader of a pipe has gone), else internal. The job goes on without that
    /// output.
    std::vector<Error> take_failures();

    /// The last (at most 10) lines of the rank's standard error, without line ends, each cut after
    /// 4096 bytes; of text overwritten by '\r' only the last. Quiet ranks have them too.
    std::vector<std::string> tail(int rank) const;

    std::uint64_t bytes(int rank, Stream stream) const;  ///< received so far

    /// Writes until everything is out or the deadline has passed, then ends the threads.
    /// Idempotent. take_failures() tells what was abandoned; collect() credits it.
    void stop(Deadline deadline);

private:
    struct Impl;
    explicit OutputMux(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace dtrun::output
