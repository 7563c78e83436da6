#pragma once

#include "base/fd.h"
#include "base/result.h"

#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::lab {

/// Holds back, as long as it lives, the signals that would end this process, so that what it has
/// started ends before it.
class EndingSignals {
public:
    EndingSignals();
    ~EndingSignals();
    EndingSignals(const EndingSignals&) = delete;
    EndingSignals& operator=(const EndingSignals&) = delete;

    int fd() const { return come_.get(); }  ///< of signals; SIGCHLD too
    const sigset_t& before() const { return before_; }
    int received() const { return received_; }  ///< the first that came; 0: none
    /// Reads one. \param forward  gets it if it was not the terminal's, which tells everybody itself
    /// \return false: no signal is waiting
    bool take(pid_t forward);

private:
    sigset_t before_{};
    Fd come_;
    int received_ = 0;
};

struct ChildEnd {
    int status = 0;           ///< exit code; 128+n after signal n
    std::string errors;       ///< the end of what it wrote to standard error
    bool was_silent = false;  ///< for too long, and was ended
};

struct ChildOptions {
    std::vector<std::string> words;        ///< behind argv[0]
    std::vector<std::string> environment;  ///< "NAME=value"
    std::chrono::milliseconds silence_max{300'000};
    bool show_errors = false;  ///< its standard error is ours too
};

/// Runs this very program again, without standard input, and gives each line of its standard output
/// to `line`. A signal that came earlier or comes now ends it; it ends with us in any case.
/// Errc: internal (no process, no pipe)
Result<ChildEnd> run_self(const ChildOptions& options, EndingSignals& signals,
                          const std::function<void(std::string_view line)>& line);

}  // namespace dtrun::lab
