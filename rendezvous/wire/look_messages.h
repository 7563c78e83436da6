#pragma once

#include "base/numbered.h"
#include "rendezvous/wire/modes.h"

#include <cstdint>
#include <string>
#include <vector>

// Messages between a head and its agents about what ranks are doing.

namespace dtrun {

/// Head -> agent: say where your ranks are, and what they have started.
struct Look {
    std::uint32_t number = 0;    ///< of the question, for the answer
    std::uint32_t limit_ms = 0;  ///< for all of it
    std::int32_t signal = 0;     ///< sent to ranks that catch it, and nothing else is done; 0: none
    bool only_by_tools = false;  ///< leave out what neither gdb nor py-spy can tell

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("number", m.number), f("limit_ms", m.limit_ms), f("signal", m.signal);
        f("only_by_tools", m.only_by_tools);
    }
};

/// Threads of a process that are at the same place.
struct ThreadStack {
    std::string name;                 ///< of the first of them
    std::uint32_t count = 1;          ///< how many
    std::vector<std::string> frames;  ///< the innermost first

    bool operator==(const ThreadStack&) const = default;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("name", m.name), f("count", m.count), f("frames", m.frames);
    }
};

/// What one tool has told of one process.
struct ProcessStacks {
    Rank rank{};
    std::int64_t pid = 0;
    bool is_child = false;  ///< a process below the rank's own
    std::string program;    ///< the name of its file
    std::string tool;       ///< "py-spy", "gdb" or "/proc"
    std::string note;       ///< why not more is known; empty if it is
    std::vector<ThreadStack> threads;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("rank", m.rank), f("pid", m.pid), f("is_child", m.is_child), f("program", m.program);
        f("tool", m.tool), f("note", m.note), f("threads", m.threads);
    }
};

/// Agent -> head: the answer to a Look.
struct Stacks {
    std::uint32_t number = 0;
    std::uint32_t signalled = 0;  ///< ranks that catch the signal, which was sent
    std::vector<ProcessStacks> processes;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("number", m.number), f("signalled", m.signalled), f("processes", m.processes);
    }
};

/// Agent -> head: a rank has been started, and waits for its debugger.
struct DebugNews {
    Rank rank{};
    Debugger debugger = Debugger::debugpy;
    std::string program;  ///< the file that it runs

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("rank", m.rank), f("debugger", m.debugger), f("program", m.program);
    }
};

/// Both ways: what a connection to the debugger of a rank carries. The head makes connections, by the first
/// frame with their number.
struct Tunnel {
    std::uint32_t connection = 0;
    std::string bytes;
    std::uint64_t taken = 0;  ///< so many bytes were passed on, and as many may be sent again
    bool ended = false;       ///< this side has ended; nothing more comes from it

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("connection", m.connection), f("bytes", m.bytes), f("taken", m.taken);
        f("ended", m.ended);
    }
};

}  // namespace dtrun
