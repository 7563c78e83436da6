#pragma once

#include "base/fd.h"
#include "tests/cluster/support/enter.h"

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace dtrun::cluster {

using std::chrono::milliseconds;

/// After so long what has not come does not come: also where a log-in takes ten times what it takes elsewhere.
constexpr milliseconds kHangs{60'000};

/// How to run a command on a host.
struct RunOptions {
    std::map<std::string, std::string> env{};  ///< added to PATH, HOME, USER, LANG and the like
    std::string cwd{};                         ///< default: Cluster::scratch()
    std::string stdin_text{};
    milliseconds timeout{60'000};  ///< for run() only: the command is killed then
    std::string user = "root";     ///< or "dtuser"
    bool terminal = false;         ///< standard streams are a terminal; all it shows is in `out`
    int columns = 80;
    int rows = 24;
};

/// Result of a command.
struct Finished {
    int exit_code = -1;        ///< 128+n after signal n
    bool timed_out = false;    ///< it was killed after its timeout
    bool output_open = false;  ///< another process still held its output 1 s after it had ended
    std::string out;
    std::string err;
    milliseconds wall{};  ///< from start to exit
};

/// A command that was started on a host. A thread collects its output, so the command never blocks
/// on a full pipe.
///
/// Thread: any one. Lifetime: the destructor kills the command (not its descendants, see
/// Cluster::reset).
class Running {
public:
    Running(const Place& place, const Command& command, const RunOptions& options);
    ~Running();
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

    pid_t pid() const { return pid_; }  ///< as seen from outside the host
    void write_stdin(std::string_view text);
    void close_stdin();  ///< closes it after all written text; types ^D on a terminal
    void signal(int number);
    bool finished() const;
    std::string out_so_far() const;
    std::string err_so_far() const;

    /// Waits until `text` appears in out or err. \return false: the command has ended, or a timeout
    bool wait_for_output(std::string_view text, milliseconds timeout = kHangs);

    /// Waits for the command to end, and kills it after `timeout`. Later calls return the same.
    Finished wait(milliseconds timeout = milliseconds(60'000));

private:
    using Clock = std::chrono::steady_clock;

    void open_terminal(const RunOptions& options, const Command& command, Streams& streams);
    void pump();
    bool pump_once();
    void drain(Fd& fd, std::string& into);
    void feed();
    void reap();
    void wake();

    const bool terminal_;
    const Clock::time_point started_ = Clock::now();
    pid_t pid_ = 0;
    Fd process_;  // pidfd
    Fd wake_;     // eventfd: input to write or to close
    Fd in_, out_, err_;
    Fd child_ends_[3];  // until the command has inherited them

    mutable std::mutex mutex_;  // guards the members below
    std::condition_variable changed_;
    Finished result_;
    std::string unwritten_;
    bool close_stdin_ = false;
    bool exited_ = false;
    bool finished_ = false;
    Clock::time_point exited_at_{};
    std::thread thread_;
};

}  // namespace dtrun::cluster
