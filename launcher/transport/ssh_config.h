#pragma once

#include "base/result.h"
#include "hostfiles/host.h"
#include "launcher/transport/host_target.h"

#include <cstdint>
#include <string>
#include <string_view>
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

/// The configuration of ssh: ~/.ssh/config, /etc/ssh/ssh_config, and what they include (ssh_config(5)).
///
/// dtrun reads it itself rather than have libssh do so, which knows a part of it, and passes over the
/// rest. Whatever dtrun cannot do, or does not know, is a reason to log in by ssh (kKeywords of the .cpp is
/// the list): nobody gets in as another user, or to another host, than ssh would.
class SshConfig {
public:
    /// Reads the caller's. May wait for name services and file systems.
    /// \param file  is read in place of others, as `ssh -F` has it; empty: none
    /// Errc: invalid_input (a user without a passwd entry, whom ssh refuses too)
    static Result<SshConfig> read(const std::string& file = {});
    /// \param files  the user's first
    SshConfig(SshUser user, const std::vector<std::string>& files);

    /// What ssh would do. What `host` and `options` say wins. Looks for certificates beside the keys.
    SshSettings find(const Host& host, const SshOptions& options) const;

    /// Of all that was read: another one if any file that counts says something else, or is there or not. Also of
    /// what only ssh understands.
    std::string digest() const;

    /// One line of a file.
    struct Line {
        enum class Kind : std::uint8_t { setting, file, end_of_file };
        Kind kind{};
        std::string keyword;  ///< in lower case
        std::string rest;     ///< what stands behind it
        std::string place;    ///< "/root/.ssh/config:7"
        std::string mistake;  ///< why it cannot be read; empty: it can
    };

private:
    void read_file(const std::string& file, bool is_users, int depth);
    std::vector<std::string> included(const std::vector<std::string>& patterns, bool is_users,
                                      std::string& mistake) const;

    SshUser user_;
    bool ssh_is_here_ = false;
    unsigned files_ = 0;  ///< that were read
    std::string broken_;  ///< why only ssh can make anything of them
    std::vector<Line> lines_;
};

}  // namespace dtrun::transport
