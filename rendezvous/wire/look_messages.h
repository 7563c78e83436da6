#pragma once

#include "base/numbered.h"
#include "rendezvous/wire/modes.h"

#include <cstdint>
#include <string>
#include <vector>

// Messages between a head and its agents about what ranks are doing.

namespace dtrun {

/// Head -> agent: say where your ranks are, and what they have started.
struct StackRequest {
    std::uint32_t number = 0;    ///< of the question, for the answer
    std::uint32_t limit_ms = 0;  ///< for all of it
    std::int32_t signal = 0;     ///< sent to ranks that catch it, and nothing else is done; 0: none
    /// The main thread of each rank alone, without what /proc says of those that are not Python.
    bool brief = false;
    bool native = false;  ///< native functions of Python programs, too

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("number", m.number), f("limit_ms", m.limit_ms), f("signal", m.signal);
        f("brief", m.brief), f("native", m.native);
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
    bool is_child =
        false;  ///< a process below the rank's own, or below the Python that this has started
    std::string program;  ///< the name of its file
    std::string tool;     ///< "faulthandler", "py-spy", "gdb" or "/proc"
    std::string note;     ///< why not more is known; empty if it is
    std::vector<ThreadStack> threads;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("rank", m.rank), f("pid", m.pid), f("is_child", m.is_child), f("program", m.program);
        f("tool", m.tool), f("note", m.note), f("threads", m.threads);
    }
};

/// Agent -> head: the answer to a StackRequest.
struct StackReport {
    std::uint32_t number = 0;
    std::uint32_t signalled = 0;  ///< ranks that catch the signal, which was sent
    std::vector<ProcessStacks> processes;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("number", m.number), f("signalled", m.signalled), f("processes", m.processes);
    }
};

/// Head -> agent: say what your ranks use, and how far they are.
struct UsageRequest {
    std::uint32_t number = 0;  ///< of the question, for the answer

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("number", m.number);
    }
};

/// What a rank uses, with all processes below it.
struct RankUsage {
    Rank rank{};
    SlotIndex place{};
    std::int64_t pid = 0;
    std::uint64_t cpu_ns = 0;        ///< processor time since its start
    std::uint64_t memory_bytes = 0;  ///< in memory; what its processes share counts once
    std::uint32_t processes = 0;
    bool counts_steps = false;  ///< it has told of one (dtrun_progress())
    std::uint64_t step = 0;     ///< the last that it has told of
    std::int64_t step_ns = 0;   ///< when it has, by the agent's clock
    std::uint64_t span_us = 0;  ///< how long a step takes it; 0: not known yet

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("rank", m.rank), f("place", m.place), f("pid", m.pid), f("cpu_ns", m.cpu_ns),
            f("processes", m.processes);
        f("memory_bytes", m.memory_bytes), f("counts_steps", m.counts_steps);
        f("step", m.step), f("step_ns", m.step_ns), f("span_us", m.span_us);
    }
};

/// What a GPU does, and for whom.
struct GpuUsage {
    std::uint32_t index = 0;
    std::string name;
    std::uint32_t busy_percent = 0;
    std::uint64_t memory_bytes = 0, memory_total_bytes = 0;
    std::vector<Rank> ranks;      ///< that have memory there
    std::uint32_t strangers = 0;  ///< other processes that have

    bool operator==(const GpuUsage&) const = default;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("index", m.index), f("name", m.name), f("busy_percent", m.busy_percent);
        f("memory_bytes", m.memory_bytes), f("memory_total_bytes", m.memory_total_bytes);
        f("ranks", m.ranks), f("strangers", m.strangers);
    }
};

/// Agent -> head: the answer to a UsageRequest.
struct UsageReport {
    std::uint32_t number = 0;
    std::int64_t at_ns = 0;  ///< by the agent's clock, which only it has
    std::uint32_t processors = 0;
    std::uint32_t load_milli =
        0;  ///< threads that have run or wanted to in the last minute, × 1000
    std::uint64_t memory_bytes = 0, memory_total_bytes = 0;  ///< of the host, used and all
    std::vector<RankUsage> ranks;
    std::vector<GpuUsage> gpus;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("number", m.number), f("at_ns", m.at_ns), f("processors", m.processors);
        f("load_milli", m.load_milli), f("memory_bytes", m.memory_bytes);
        f("memory_total_bytes", m.memory_total_bytes), f("ranks", m.ranks), f("gpus", m.gpus);
    }
};

/// Agent -> head: a rank has been started, and waits for its debugger.
struct DebugStatus {
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
