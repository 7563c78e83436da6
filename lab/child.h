#pragma once

#include "base/process/ending_signals.h"
#include "base/result.h"

#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::lab {

struct ChildEnd {
    int status = 0;           ///< exit code; 128+n after signal n
    bool was_silent = false;  ///< it was silent for too long, and was ended
};

struct ChildOptions {
    std::string path;                      ///< without a slash it is looked for in PATH
    std::vector<std::string> words;        ///< argv[0] first
    std::vector<std::string> environment;  ///< "NAME=value"
    std::optional<std::chrono::milliseconds> silence_max;
    int death_signal = SIGTERM;  ///< that it gets when this process ends
    bool forward_signals =
        true;  ///< false: it gets those of this process itself, as one of its group
};

/// Runs a program without standard input, and gives what it writes to the two functions, as it comes. A signal
/// that `signals`, which watches children, receives, earlier or now, ends that program.
/// Errc: not_found, denied, internal (no process, no pipe)
Result<ChildEnd> run_child(const ChildOptions& options, EndingSignals& signals,
                           const std::function<void(std::string_view)>& output,
                           const std::function<void(std::string_view)>& errors);

/// Cuts text that comes in pieces into lines; one without an end, of more than 1 MiB, is left out.
class LineCutter {
public:
    /// \param ends  characters, each of which ends a line
    explicit LineCutter(std::string_view ends = "\n") : ends_(ends) {}
    template <class Take>
    void add(std::string_view bytes, Take take) {
        partial_ += bytes;
        std::size_t begin = 0;
        for (std::size_t end = 0; (end = partial_.find_first_of(ends_, begin)) != std::string::npos;
             begin = end + 1)
            take(std::string_view(partial_).substr(begin, end - begin));
        partial_.erase(0, begin);
        if (partial_.size() > kBytesMax) partial_.clear();
    }
    /// The last line, which has no end.
    template <class Take>
    void finish(Take take) {
        if (!partial_.empty()) take(std::string_view(partial_));
        partial_.clear();
    }

private:
    static constexpr std::size_t kBytesMax = 1u << 20;
    std::string_view ends_;
    std::string partial_;
};

}  // namespace dtrun::lab
