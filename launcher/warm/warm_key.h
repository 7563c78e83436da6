#pragma once

#include "hostfiles/host.h"
#include "launcher/transport/host_target.h"
#include "launcher/transport/ssh_config.h"

#include <string>

namespace dtrun::warm {

/// What a log-in amounts to.
struct LogInWords {
    const Host& host;
    const transport::SshOptions& options;
    const transport::SshSettings* settings = nullptr;  ///< null: ssh alone knows them
    std::string build{};                               ///< the agent's build id
    std::string batch_job{};                           ///< batch_job_here()
    std::string ssh_files{};                           ///< SshConfig::digest(), where is_by_ssh()

    /// Whether a program logs in that reads more of ssh's configuration than dtrun knows.
    bool is_by_ssh() const;
};

/// Equal for two log-ins that are one and the same, by all that is known here: the host as it is called and reached,
/// the user, keys, ssh's options and settings, the agent's build, and the batch job. In hexadecimal digits.
std::string warm_key(const LogInWords& words);

}  // namespace dtrun::warm
