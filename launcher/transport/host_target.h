#pragma once

#include "base/loop/asio.h"
#include "base/result.h"
#include "hostfiles/host.h"

#include <chrono>
#include <string>
#include <string_view>
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

/// Whether names may be looked up, which can take kLookUpLimit; never on an event loop.
enum class LookUp { none, own_names };
inline constexpr std::chrono::milliseconds kLookUpLimit{500};

/// Whether ranks of `host` run on this machine without ssh: it is "localhost", a name of this machine
/// or an address of one of its interfaces, and nothing says how to log in.
/// \param look_up  of names that may be longer ones of this machine, as may_be_own_name() says
bool is_this_machine(const Host& host, LookUp look_up);

/// Whether `name` begins as this machine's name does, in any case of letters: "head.cluster.local" or "head-ib0"
/// for "head", and "head" for "head.cluster.local".
bool may_be_own_name(std::string_view name, std::string_view own);

/// Whether the name has an address of this machine. Waits as long as the resolver does.
bool leads_here(const std::string& name);

/// For who writes -H hosts.txt: "; a file here has this name: …". Empty: none has.
std::string file_hint(const std::string& name);
/// Numeric addresses of a name, in the resolver's order.
/// Errc: not_found (no such name), unreachable (no answer from the name server)
Result<std::vector<asio::ip::address>> resolve(const std::string& name);

}  // namespace dtrun::transport
