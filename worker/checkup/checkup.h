#pragma once

namespace dtrun::checkup {

/// `dtrun-agent --checkup`: examines this host for `dtrun doctor`, as that says on standard input, until that
/// ends. While it runs, other hosts may try to reach it at a port (rendezvous/checkup/door.h).
/// \return the exit status
int run_checkup();

}  // namespace dtrun::checkup
