#pragma once

#include "base/clock.h"
#include "base/numbered.h"
#include "base/result.h"
#include "launcher/output/ending_text.h"
#include "launcher/output/rank_file_name.h"
#include "launcher/plan/slot_id.h"
#include "rendezvous/wire/output_messages.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::output {

/// Bytes that have been written: their sender may send as many again.
struct OutputCredit {
    plan::SlotId rank{};
    Stream stream = Stream::out;
    std::size_t bytes = 0;
};

/// How one stream of a rank is shown.
struct StreamShow {
    bool console = true;   ///< on the console at all
    bool raw = false;      ///< bytes pass as they come: a terminal's
    std::string prefix{};  ///< of its lines instead of the tag's, unless empty; in it "${rank}"
                           ///< stands for the rank's number
};

/// Places of ranks that come to those that an Output knows.
struct MoreSlots {
    std::vector<std::string> hosts;   ///< of each of them, in order
    std::vector<StreamShow> shows{};  ///< of their streams; empty: all as the tag has it
    RankFileName file_name{};         ///< of all places, old ones and new; empty: as before
};

/// What the head shows: gathers the ranks' bytes into whole lines and writes them to the console and to
/// per-rank files, together with dtrun's own messages and its status line.
///
/// Thread: one (the io_context's), except message(); none of the calls blocks but stop().
class Output {
public:
    virtual ~Output() = default;

    /// The job may have ranks in more places from now on.
    virtual void add_slots(MoreSlots places) = 0;

    /// Lines that begin from now on are shown with these numbers; until then with those of places.
    virtual void set_numbers(const plan::RankNumbers& numbers) = 0;

    /// All ranks start again, after all output of the last attempt has been added: tail() forgets
    /// that output, and from now on files are those of this attempt.
    /// \param attempt  greater than any before; it begins with 0
    virtual void begin_attempt(int attempt) = 0;

    /// \param host_time_ns  since 1970, by the rank's host; unused without timestamps
    /// \param bytes         copied; every one of them is credited once
    virtual void add(plan::SlotId rank, Stream stream, std::int64_t host_time_ns,
                     std::string_view bytes) = 0;

    /// The stream has ended: an unfinished line is shown, with a '\n' if it has a prefix.
    virtual void finish(plan::SlotId rank, Stream stream) = 0;

    /// Text of dtrun itself, on standard error; ends with '\n'. Any thread.
    virtual void message(std::string_view whole_lines) = 0;

    /// The same for what only the user may see, as a page's key: a terminal shows it, and anything else, as a file
    /// that others may read, gets `elsewhere` instead.
    virtual void message_to_terminal(std::string_view, std::string_view elsewhere) {
        message(elsewhere);
    }

    /// How the job, or an attempt of it, has ended.
    virtual void report(const Ending& ending) { message(ending.elsewhere); }
    /// Whether what the rank has written last to standard error, of tail() the last `lines` lines, surely is on the
    /// screen on which a report is shown.
    virtual bool is_on_screen(plan::SlotId, std::size_t) const { return false; }

    /// One line without '\n' kept below everything else while standard error is a terminal, cut to
    /// its width; empty removes it. Nothing happens elsewhere.
    virtual void set_status(std::string_view text) = 0;
    virtual bool has_status()
        const = 0;  ///< standard error is a terminal on which set_status() shows

    /// Credits for bytes written since the last call; valid until the next. Formats waiting bytes.
    virtual std::span<const OutputCredit> collect() = 0;

    /// When collect() has to be called at the latest, for lines that wait for equal ones. Nothing: none wait.
    virtual std::optional<Clock::time_point> due() const { return {}; }

    /// Everything accepted has left, except unfinished lines, and is credited. Changes to true with
    /// a call that asks for collect().
    virtual bool idle() const = 0;

    /// What went wrong with the console or a file since the last call, each once, ready to be
    /// shown: closed (the reader of a pipe has gone), else internal. The job goes on without that
    /// output.
    virtual std::vector<Error> take_failures() = 0;

    /// The last (at most 40) lines of the rank's standard error, without line ends, each cut after
    /// 1024 bytes; of text overwritten by '\r' only the last. Quiet ranks have them too.
    virtual std::vector<std::string> tail(plan::SlotId rank) const = 0;

    /// Writes until everything is out or the deadline has passed, then ends the threads.
    /// Idempotent. take_failures() tells what was abandoned; collect() credits it.
    virtual void stop(Deadline deadline) = 0;
    /// Whether a disk has not answered for some seconds, so that idle() may never be true.
    virtual bool is_disk_silent() const { return false; }
    /// After stop(): whether what is written to standard error may be expected to return.
    virtual bool is_stderr_alive() const { return true; }
};

}  // namespace dtrun::output
