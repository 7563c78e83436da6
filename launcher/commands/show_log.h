#pragma once

#include "launcher/history/history_text.h"

#include <cstdint>
#include <optional>

namespace dtrun::commands {

/// What of a log is shown, and how.
struct LogView {
    bool follow = false;                  ///< until the job ends
    bool timestamps = false;              ///< lines as they are in the file
    std::optional<int> rank{};            ///< its lines alone, without a tag
    std::optional<std::uint64_t> tail{};  ///< so many lines at the end
};

struct ShownLog {
    int status = 0;                        ///< of the command: 0, or that nobody reads
    std::optional<history::JobEnd> end{};  ///< of the job, as far as is known
};

/// Writes the output that is kept of a job to standard output and standard error.
ShownLog show_log(const history::Known& job, const LogView& view);

}  // namespace dtrun::commands
