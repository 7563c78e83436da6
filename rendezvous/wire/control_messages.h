#pragma once

#include "base/numbered.h"
#include "rendezvous/wire/output_messages.h"

#include <cstdint>
#include <string>

// Messages between a command that looks into a running job and the job's head, over its control socket.

namespace dtrun {

/// The size of a terminal, in characters; 0: not known.
struct TerminalSize {
    std::uint16_t rows = 0;
    std::uint16_t columns = 0;

    bool operator==(const TerminalSize&) const = default;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("rows", m.rows), f("columns", m.columns);
    }
};

/// The user's terminal has another size. Command -> head, and head -> the agent of the rank that has a terminal.
struct Resize {
    TerminalSize size{};

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("size", m.size);
    }
};

/// What a command wants of a job.
enum class ControlCommand : std::uint8_t {
    stacks,  ///< where its ranks are
    attach,  ///< the output of a rank from now on, and input for it
    view,    ///< what is known of it, as JSON
    end,     ///< its end; the connection closes when it is over
};

/// Command -> head, its first frame.
struct ControlRequest {
    ControlCommand command = ControlCommand::stacks;
    Rank rank{};  ///< of attach
    /// Of stacks and view: what has not come then is left out. A view without is of what the head knows.
    std::uint32_t limit_ms = 0;
    std::int32_t signal =
        0;                ///< of stacks: sent to ranks that catch it; of end: as if dtrun got it
    bool native = false;  ///< of stacks: native functions of Python programs, too
    bool has_terminal = false;  ///< of attach
    TerminalSize size{};        ///< of attach, with a terminal

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        // A head of another build knows the command as its `wish`.
        f("wish", m.command), f("rank", m.rank), f("limit_ms", m.limit_ms), f("signal", m.signal);
        f("native", m.native), f("has_terminal", m.has_terminal), f("size", m.size);
    }
};

/// Head -> command: a piece of the answer.
struct Answer {
    std::string text;             ///< as it is to be written
    Stream stream = Stream::out;  ///< where to
    bool raw_terminal =
        false;  ///< of attach: the rank has a terminal, so that of the user is to be raw
    bool takes_more = false;  ///< of attach: the next piece of input may be sent
    bool last = false;        ///< the command ends with `code`
    std::uint8_t code = 0;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("text", m.text), f("stream", m.stream), f("raw_terminal", m.raw_terminal);
        f("takes_more", m.takes_more), f("last", m.last), f("code", m.code);
    }
};

}  // namespace dtrun
