#pragma once

#include "base/fd.h"
#include "base/loop/asio.h"
#include "base/result.h"
#include "worker/mpi/pmix_messages.h"

#include <sys/types.h>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace dtrun::mpi {

/// A dtrun-pmix that runs, and the socket to it. It ends when that is closed; whoever reaps our
/// children reaps it.
///
/// Thread: the executor's.
class PmixProcess {
public:
    struct Options {
        std::string directory;  ///< for libpmix' files
        std::string host_name;
        std::string library;                                    ///< empty: libpmix.so.2
        std::map<std::string, std::string, std::less<>> env{};  ///< of the ranks
        /// Job data are offered in shared memory, not only over sockets.
        bool shared_memory = true;
    };
    /// Returns before it has executed anything. If it cannot, the next frame is a PmixFailed.
    /// Errc: internal
    static Result<std::shared_ptr<PmixProcess>> start(asio::any_io_executor executor,
                                                      const Options& options);

    PmixProcess(const PmixProcess&) = delete;
    PmixProcess& operator=(const PmixProcess&) = delete;
    ~PmixProcess() { kill(); }

    pid_t pid() const { return pid_; }

    void send(Bytes frame);
    /// Writes what is sent, until the process has ended, or was asked to.
    asio::awaitable<void> write();
    /// The next frame; nothing: the process has ended, or sent what is none.
    asio::awaitable<std::optional<PmixFrame>> read();
    /// Takes what it, libpmix or the loader writes for people, until the process has ended.
    asio::awaitable<void> read_output();

    void ask_to_end();
    bool asked_to_end() const { return ending_; }
    void kill() noexcept;
    /// For a person, once read() has returned nothing: how it ended and what it wrote last.
    asio::awaitable<std::string> how_it_ended();

private:
    PmixProcess(asio::any_io_executor executor, pid_t pid, Fd socket, Fd output);
    void take_lines(std::string_view bytes);

    pid_t pid_;
    Fd pidfd_;
    Unix::socket socket_;
    asio::posix::stream_descriptor output_;
    Timer more_;  ///< cancelled when there is something to write
    std::deque<std::string> unsent_;
    bool ending_ = false;
    PmixFrames frames_;
    std::string line_;  ///< not complete yet
    std::deque<std::string> last_lines_;
    Timer output_end_;  ///< cancelled when there will be no more output
    bool output_ended_ = false;
};

}  // namespace dtrun::mpi
