#pragma once

#include "hostfiles/host.h"
#include "launcher/transport/channel.h"
#include "launcher/transport/dial.h"
#include "launcher/transport/host_target.h"
#include "launcher/transport/known_hosts.h"

#include <functional>
#include <memory>
#include <string>

namespace dtrun::transport {

struct SshLogin {
    std::unique_ptr<Channel> channel;
    std::string local_address;  ///< numeric: where this machine is seen from that host
};

/// Logs into `host` with libssh and starts `command` there.
///
/// ~/.ssh/config is obeyed (HostName, User, Port, IdentityFile, algorithms); `host` and `options` win
/// over it. known_hosts is checked: an unknown key is refused unless `accept_new_host_keys`, a changed
/// or revoked one always. Nobody is asked for passphrases: keys that have one are ssh-agent's.
/// \param files  of the job; outlives the call
/// \param phase  called with what is being done now, for progress and for time-out messages
/// Errc: not_found (name), unreachable (refused, no route), timed_out (names the phase), denied (host
///       key, user's keys), internal. The message does not name the host.
asio::awaitable<Result<SshLogin>> ssh_login(Pool& pool, KnownHostsFiles& files, Host host,
                                            SshOptions options, std::string command,
                                            Deadline deadline,
                                            std::function<void(const char*)> phase);

/// Whether ~/.ssh/config names a ProxyJump or ProxyCommand for `host`, which needs OpenSSH's ssh.
bool ssh_config_needs_openssh(const Host& host);

}  // namespace dtrun::transport
