#pragma once

#include "base/result.h"

#include <sys/types.h>
#include <string>
#include <vector>

namespace dtrun::bench {

/// A process whose use of the machine is measured.
struct Process {
    std::string name;
    pid_t pid = 0;
};

struct Memory {
    long rss_kb = 0;
    long pss_kb = 0;  ///< pages shared with other processes counted in part
};

/// Seconds of processor that all its threads have used. Errc: not_found
Result<double> cpu_seconds(const Process& process);

/// Without what the kernel holds for it, such as sockets. Errc: not_found
Result<Memory> memory_of(const Process& process);

}  // namespace dtrun::bench
