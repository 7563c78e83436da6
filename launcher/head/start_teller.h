#pragma once

#include "base/fd.h"

#include <mutex>
#include <string_view>

namespace dtrun::head {

/// How a detached dtrun tells the command that has started it, and waits, how the start goes: that reads a pipe, and its
/// standard error is ours as long as it waits. Of a job that is not detached nobody waits, and nothing happens.
///
/// Thread: any.
class StartTeller {
public:
    /// Somebody waits. \param words  the pipe: one word in each line. \param errors  their standard error
    void open(Fd words, Fd errors);

    bool is_awaited() const;
    void has_id(std::string_view job);       ///< the job's id is known
    void say(std::string_view whole_lines);  ///< for the user who waits
    void started();                          ///< nobody waits from now on

    static constexpr std::string_view kStarted = "started";

private:
    void write(const Fd& to, std::string_view text);

    mutable std::mutex mutex_;
    Fd words_, errors_;
};

}  // namespace dtrun::head
