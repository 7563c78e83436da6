#pragma once

#include "base/result.h"
#include "collectives/group.h"

#include <string>

namespace dtrun::collectives {

/// The plug-in for a backend: from DTRUN_BACKEND_DIR, else dtrun/backends beside this library. Once
/// loaded it stays, since the libraries behind have threads.
/// Errc: not_found (the message says where it was looked for, and why it was not taken)
Result<const BackendPlugin*> load_backend(const std::string& name);

/// Whether it can be had in this process.
Availability probe_backend(const std::string& name);

}  // namespace dtrun::collectives
