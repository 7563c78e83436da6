#pragma once

namespace dtrun::doctor {

/// `dtrun-agent --checkup`: examines this host for `dtrun doctor`, as that says on standard input, until that
/// ends. While it runs, other hosts may try to reach it at a port (rendezvous/doctor/probe_listener.h).
/// \return the exit status
int run_host_doctor();

}  // namespace dtrun::doctor
