#pragma once

#include "base/loop/asio.h"
#include "base/result.h"
#include "hostfiles/host.h"

#include <string>
#include <vector>

namespace dtrun::transport {

/// How ssh reaches hosts, as the user's options have it.
struct SshOptions {
    int port = 0;               ///< 0: ~/.ssh/config, else 22
    std::string identity_file;  ///< empty: ~/.ssh/config, ssh-agent, default keys
    bool accept_new_host_keys = false;
    std::vector<std::string> command;  ///< --ssh-command, split into words; empty: libssh
};

/// Whether the command is OpenSSH's, whose flags are known. Empty is.
bool is_openssh(const SshOptions& options);

/// Whether ranks of `host` run on this machine without ssh: it is "localhost", this machine's name
/// or an address of one of its interfaces, and nothing says how to log in.
bool is_this_machine(const Host& host);

/// Numeric addresses of a name, in the resolver's order.
/// Errc: not_found (no such name), unreachable (no answer from the name server)
Result<std::vector<asio::ip::address>> resolve(const std::string& name);

}  // namespace dtrun::transport
