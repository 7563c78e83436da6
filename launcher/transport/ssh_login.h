#pragma once

#include "launcher/transport/channel.h"
#include "launcher/transport/dial.h"
#include "launcher/transport/known_hosts.h"
#include "launcher/transport/ssh_settings.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace dtrun::transport {

struct SshLogin {
    std::unique_ptr<Channel> channel;
    std::string local_address;  ///< numeric: where this machine is seen from that host

    /// Where there is no channel: what has come out that only OpenSSH's ssh can do, as "Kerberos", and what
    /// to say if there is no ssh.
    std::string only_ssh;
    Error refused;
};

/// Whether a log-in waits for the host's first answer, and does nothing else.
/// \param phase  that ssh_login() has told
bool is_knocking(std::string_view phase);

/// Logs into a host with libssh and starts `command` there.
///
/// known_hosts is checked: an unknown key is refused unless the settings accept it, a changed or revoked
/// one always. Nobody is asked for passphrases: keys that have one are ssh-agent's.
/// \param address   to connect to; empty: that of the settings
/// \param settings  with an empty only_ssh
/// \param files     of the job; outlives the call
/// \param phase     called with what is being done now, for progress and for time-out messages
/// Errc: not_found (name), unreachable (refused, no route), closed (it hung up before it knew who we are, as
///       a server does that has too many log-ins), timed_out (names the phase), denied (host key, user's
///       keys), internal. The message does not name the host.
asio::awaitable<Result<SshLogin>> ssh_login(Pool& pool, KnownHostsFiles& files,
                                            SshSettings settings, std::string address,
                                            std::string command, Deadline deadline,
                                            std::function<void(const char*)> phase);

}  // namespace dtrun::transport
