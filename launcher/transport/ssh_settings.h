#pragma once

#include "hostfiles/host.h"
#include "launcher/transport/host_target.h"
#include "launcher/transport/ssh_line.h"

#include <cstdint>
#include <string>
#include <vector>

namespace dtrun::transport {

/// What StrictHostKeyChecking says of a host whose key is not known.
enum class NewHostKeys : std::uint8_t {
    refused,   ///< "ask" too, as nobody can be asked
    accepted,  ///< "accept-new"
    anything   ///< "no": a key that has changed, too, which is left to ssh
};

/// How to log into one host.
struct SshSettings {
    /// Why only OpenSSH's ssh can, e.g. "Match exec (/root/.ssh/config:7)". Empty: dtrun's own log-in can;
    /// else only `route` holds besides.
    std::string only_ssh;
    /// ProxyJump or ProxyCommand as it stands: hosts with the same one are behind the same machine.
    std::string route;

    std::string host;             ///< name or address to connect to
    bool has_other_name = false;  ///< than the user calls it by
    std::string user;
    std::string directory;  ///< where ssh keeps the user's keys
    int port = 22;
    std::vector<std::string> identities;   ///< files of keys; empty: the default ones
    bool only_identities = false;          ///< no other keys that ssh-agent may have
    std::string agent;                     ///< its socket; empty: SSH_AUTH_SOCK
    std::string known_as;                  ///< in known_hosts, whatever the port; empty: `host`
    std::vector<std::string> known_hosts;  ///< files; a new key is added to the first
    std::vector<std::string> global_known_hosts;
    NewHostKeys new_host_keys = NewHostKeys::refused;
    std::string ciphers, macs, key_exchange, host_key_types,
        key_types;  ///< empty: the default ones
    bool compression = false;
    bool gssapi = false;       ///< ssh would try Kerberos, too
    bool master = false;       ///< there may be a connection that ssh would use
    bool ssh_is_here = false;  ///< there is a program ssh, which may know more ways in
};

/// The user who logs in.
struct SshUser {
    unsigned int id = 0;
    std::string name;
    std::string home;  ///< as the passwd entry has it: ssh does not look at HOME
};

/// What these lines say of a host: of most keywords the first value counts, as ssh has it. What `host` and `options` say
/// wins. Looks for certificates beside the keys.
SshSettings settings_for(const Host& host, const SshOptions& options, const SshUser& user,
                         const std::vector<SshLine>& lines);

}  // namespace dtrun::transport
