#pragma once

#include "base/result.h"
#include "launcher/transport/ssh_settings.h"

#include <string>
#include <vector>

namespace dtrun::transport {

/// The configuration of ssh: ~/.ssh/config, /etc/ssh/ssh_config, and what they include (ssh_config(5)).
///
/// dtrun reads it itself rather than have libssh do so, which knows a part of it, and passes over the
/// rest. Whatever dtrun cannot do, or does not know, is a reason to log in by ssh (ssh_keywords.h has the
/// list): nobody gets in as another user, or to another host, than ssh would.
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

private:
    void read_file(const std::string& file, bool is_users, int depth);
    std::vector<std::string> included(const std::vector<std::string>& patterns, bool is_users,
                                      std::string& mistake) const;

    SshUser user_;
    bool ssh_is_here_ = false;
    unsigned files_ = 0;  ///< that were read
    std::string broken_;  ///< why only ssh can make anything of them
    std::vector<SshLine> lines_;
};

}  // namespace dtrun::transport
