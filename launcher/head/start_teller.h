#pragma once

#include "base/fd.h"
#include "base/message_writer.h"

#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

namespace dtrun::head {

/// How a detached dtrun tells the command that has started it, and waits, how the start goes: that reads a pipe, and its
/// standard error is ours as long as it waits. Whoever has stopped reading that holds nobody up. Of a job that is not
/// detached nobody waits, and nothing happens.
///
/// Thread: any.
class StartTeller {
public:
    /// What is held of the command that waits.
    struct Caller {
        Fd words;                ///< the pipe: one word in each line, never so many that it is full
        Fd errors;               ///< its standard error
        std::vector<Fd> others;  ///< whatever else it had open
    };
    /// Somebody waits.
    void open(Caller caller);

    bool is_awaited() const;
    /// The user may have named files of the caller's, /dev/fd/63 as of bash's <(...): all that can be are opened now.
    void files_opened();
    void has_id(std::string_view job);       ///< the job's id is known
    void say(std::string_view whole_lines);  ///< for the user who waits
    void started();                          ///< nobody waits from now on

    static constexpr std::string_view kStarted = "started";

private:
    void tell(std::string_view word);

    mutable std::mutex mutex_;
    Caller caller_;
    std::optional<MessageWriter> errors_;
};

}  // namespace dtrun::head
