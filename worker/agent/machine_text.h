#pragma once

#include <string>

namespace dtrun::agent {

/// What two processes have in common if they are one user's on one machine and in one container: the kernel's
/// boot, the user, the namespaces of files, network and processes, and the addresses. Empty: not known.
std::string machine_text();

}  // namespace dtrun::agent
