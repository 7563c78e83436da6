#pragma once

#include <sys/types.h>
#include <cstdint>
#include <string>

namespace dtrun::history {

/// What tells a process from all others, also from one that has its number later.
struct ProcessMark {
    std::string host;       ///< its machine's name, for people
    std::string boot;       ///< of the machine: another one after each start
    std::string pid_space;  ///< its pid namespace: numbers mean something in that alone
    pid_t pid = 0;
    std::uint64_t started = 0;  ///< in ticks since the boot

    bool operator==(const ProcessMark&) const = default;
};

/// Of this process. What /proc does not tell stays empty.
ProcessMark mark_of_this_process();

enum class Life {
    runs,
    gone,
    unknown  ///< it is, or was, on another machine
};

/// Whether that process still runs. \param here  mark_of_this_process(), or a test's
Life life_of(const ProcessMark& process, const ProcessMark& here);

}  // namespace dtrun::history
