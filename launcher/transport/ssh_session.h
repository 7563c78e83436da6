#pragma once

#include "base/fd.h"
#include "base/loop/asio.h"
#include "base/loop/deadline.h"
#include "base/result.h"

#include <libssh/callbacks.h>
#include <libssh/libssh.h>
#include <string>

namespace dtrun::transport {

/// A libssh session on a socket that the event loop watches.
///
/// Each has a descriptor of its own of that socket: libssh closes its one when the server hangs up, and the
/// number may be somebody else's before the loop hears of it.
class SshSession {
public:
    explicit SshSession(asio::any_io_executor executor);
    ~SshSession();
    SshSession(const SshSession&) = delete;
    SshSession& operator=(const SshSession&) = delete;

    ssh_session get() const { return session_; }

    /// Errc: internal (out of descriptors)
    Result<void> attach(tcp::socket socket);

    /// Repeats `step` whenever the socket is ready, while it answers `again`.
    /// Errc: closed (the server hung up, with its words), timed_out, cancelled
    template <class Step>
    asio::awaitable<Result<int>> drive(Step step, int again, Deadline deadline) {
        for (;;) {
            const int done = step();
            if (done != again) co_return done;
            const auto waited = co_await wait(deadline);
            if (!waited) co_return std::unexpected(waited.error());
        }
    }

    /// Waits until libssh can go on: the socket is readable, or writable if bytes wait to leave.
    /// \param now  libssh can go on already; only lets others run
    /// Errc: as drive()
    asio::awaitable<Result<void>> wait(Deadline deadline, bool now = false);

    /// Has who waits look again: a call of libssh has perhaps taken from the socket what they wait for.
    void wake();

    /// Whether bytes wait to leave until the socket is writable.
    bool blocked() const { return (ssh_get_poll_flags(session_) & SSH_WRITE_PENDING) != 0; }
    /// Whether the server has hung up, or the connection is broken.
    bool lost() const { return (ssh_get_status(session_) & (SSH_CLOSED | SSH_CLOSED_ERROR)) != 0; }
    /// Ends a pending wait, and closes the socket; libssh frees all channels with it.
    void disconnect() noexcept;
    bool disconnected() const { return disconnected_; }
    /// What went wrong, in the server's words if it has said any.
    std::string error() const;
    /// What the server has shown to whoever logs in; empty: nothing.
    std::string banner() const;

    /// Reads a private key's file. Nobody is asked for a passphrase: that would stop all hosts, and a
    /// pipe on standard input is the job's.
    /// \return null if it is not there, under a passphrase, or no key
    ssh_key read_key(const std::string& file);
    /// Whether a key was left out because it is under a passphrase.
    bool wanted_passphrase() const { return wanted_passphrase_; }

private:
    static int refuse_to_ask(const char*, char*, std::size_t, int, int, void* session);

    ssh_session session_;
    ssh_callbacks_struct callbacks_{};
    asio::posix::stream_descriptor ready_;  ///< the loop's
    bool disconnected_ = false;
    bool wanted_passphrase_ = false;
};

}  // namespace dtrun::transport
