#pragma once

#include "tests/cluster/support/enter.h"

#include <string>
#include <vector>

namespace dtrun::cluster {

struct Process {
    pid_t pid_outside = 0;  ///< pid for kill() in this process
    pid_t pid_inside = 0;   ///< pid inside the host
    std::string name;       ///< at most 15 bytes, as in /proc/PID/comm
    std::string cmdline;    ///< words separated by blanks
};

/// The processes of a host, less its init, its listening sshd, Slurm's daemons and zombies.
std::vector<Process> list_processes(const Place& place);

}  // namespace dtrun::cluster
