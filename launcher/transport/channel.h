#pragma once

#include "base/loop/asio.h"
#include "base/loop/deadline.h"
#include "base/result.h"

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dtrun::transport {

/// A host under systemd says this to whoever logs in before it has booted (pam_nologin), and hangs up.
inline constexpr std::string_view kBooting = "System is booting up.";

/// The standard streams of a command that was started on a host. Kept open as the lifeline: the
/// command sees its standard input end when the channel, or this process, is gone.
/// What this machine runs for it, as an ssh, is to be ended by end() or kill().
///
/// Thread: the io_context's; at most one read() and one write() at a time.
class Channel {
public:
    virtual ~Channel() = default;

    /// Some bytes of standard output; 0 at its end. Errc: closed, timed_out, cancelled
    virtual asio::awaitable<Result<std::size_t>> read(std::span<char> into, Deadline deadline) = 0;
    /// All of `bytes` to standard input. Errc: closed, timed_out, cancelled
    virtual asio::awaitable<Result<void>> write(std::string_view bytes, Deadline deadline) = 0;
    /// What the command wrote to standard error since the last call, at most kErrorBytesMax.
    virtual std::string take_errors() = 0;
    /// What became of the command, after read() returned 0: "exit status 127", or "" if that is not
    /// known by the deadline, as of one that has closed its output and lives on.
    virtual asio::awaitable<std::string> ending(Deadline deadline) = 0;
    virtual void close() noexcept = 0;  ///< idempotent; a pending operation ends
    /// Closes it, and returns once nothing of it runs on this machine: a program that carries it has
    /// `patience` to end by itself, then gets SIGTERM, and SIGKILL soon after.
    virtual asio::awaitable<void> end([[maybe_unused]] std::chrono::milliseconds patience) {
        close();
        co_return;
    }
    virtual void kill() noexcept { close(); }  ///< as end(), at once and by force
    /// Whether a program of this machine carries it, as ssh does, which may not end when it should.
    virtual bool is_carried() const { return false; }
    /// For how long that program, with all that it has started, has run or would have, had a processor been free.
    /// Nothing: not known.
    virtual std::optional<std::chrono::nanoseconds> busy_time() const { return std::nullopt; }
    /// Whether nothing of it runs on this machine any more. Until then a closed one is best kept: a child
    /// that nobody waits for stays in the table of processes.
    virtual bool has_ended() const { return true; }
    /// Whether the command is a process of this machine that no login shell has started.
    virtual bool is_here() const { return false; }
    /// Whether the host is known to be so near that bytes cost it less time than unpacking them.
    virtual bool is_near() const { return false; }
    /// Of the host, numeric, as far as it is known: other hosts may reach it there.
    virtual std::string address() const { return {}; }

    static constexpr std::size_t kErrorBytesMax = 16u << 10;
};

}  // namespace dtrun::transport
