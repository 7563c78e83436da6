#pragma once

#include <sys/types.h>
#include <string>
#include <vector>

namespace dtrun::cluster {

/// The namespaces and cgroups of a host's processes.
struct Place {
    pid_t init = 0;                    ///< its process 1, as seen from outside
    std::vector<std::string> cgroups;  ///< directories; none if there are no cgroups here
};

struct Account {
    uid_t uid = 0;
    gid_t gid = 0;
    std::string home;
};

struct Command {
    std::vector<std::string> argv;         ///< argv[0] is looked up in the PATH of `environment`
    std::vector<std::string> environment;  ///< "NAME=value"
    std::string cwd;
    Account account;
    bool terminal = false;  ///< `in` is a terminal; make it the controlling one
};

/// Descriptors that become 0, 1 and 2 of a command; not owned.
struct Streams {
    int in = -1;
    int out = -1;
    int err = -1;
};

/// An account of the host's /etc/passwd. \throws std::runtime_error  no such user
Account find_account(const Place& place, const std::string& user);

/// Starts a command inside the host's namespaces, in a session of its own, as a direct child of
/// this process (its pid is valid outside, to wait for and to signal). Returns when it has been
/// executed. A command that cannot be executed ends with 127 and says so on `err`. \throws
/// std::runtime_error  the host is gone
pid_t start_inside(const Place& place, const Command& command, const Streams& streams);

}  // namespace dtrun::cluster
