#pragma once

#include "base/ending_signals.h"
#include "base/result.h"

#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::lab {

struct ChildEnd {
    int status = 0;           ///< exit code; 128+n after signal n
    std::string errors;       ///< the end of what it wrote to standard error
    bool was_silent = false;  ///< it was silent for too long, and was ended
};

struct ChildOptions {
    std::vector<std::string> words;        ///< behind argv[0]
    std::vector<std::string> environment;  ///< "NAME=value"
    std::chrono::milliseconds silence_max{300'000};
    bool show_errors = false;  ///< its standard error is ours too
};

/// Runs this very program again, without standard input, and gives each line of its standard output
/// to `line`. A signal that `signals` receives, earlier or now, ends that program; it also ends
/// with this process.
/// Errc: internal (no process, no pipe)
Result<ChildEnd> run_self(const ChildOptions& options, EndingSignals& signals,
                          const std::function<void(std::string_view line)>& line);

}  // namespace dtrun::lab
