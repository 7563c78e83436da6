#pragma once

#include "base/result.h"

#include <sys/types.h>
#include <string>

namespace dtrun {

/// What the kernel says of an open file, as far as it decides who can read it.
struct FileFacts {
    uid_t owner = 0;
    gid_t group = 0;
    mode_t mode = 0;
    bool on_fixed_memory = false;  ///< on a tmpfs (or ramfs) that is mounted read-only
    bool is_credential = false;    ///< in the directory that systemd names in CREDENTIALS_DIRECTORY
};

/// Errc: internal
Result<FileFacts> facts_of(int fd);

/// Whether a file that `user` has opened may be taken for a secret of theirs. It belongs to them or to root, and
///   - nobody else has any right to it, or
///   - it is a credential of systemd's: root's, mode 0440, and an access control list lets the service's user read
///     it, or
///   - it is root's, nobody else may write to it, and it lies on a tmpfs that is mounted read-only. So Kubernetes
///     mounts volumes of Secrets (mode 0644, or 0440 with the pod's fsGroup, behind links), Docker's Swarm
///     /run/secrets (mode 0444), and drivers of the Secrets Store: whoever is in the container can read it, and
///     nobody else is there. Only root can make such a mount.
/// Errc: denied, with what to do
Result<void> check_private(const FileFacts& file, uid_t user, const std::string& path);

}  // namespace dtrun
