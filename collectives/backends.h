#pragma once

#include "base/result.h"
#include "collectives/group.h"

#include <string>
#include <string_view>

namespace dtrun::collectives {

inline constexpr std::string_view kOwnBackend = "dtrun";

/// Loads a backend's plug-in from DTRUN_BACKEND_DIR, else from dtrun/backends beside this library.
/// It is never unloaded, since the library behind it has threads.
/// Errc: not_found (the message says where it was looked for, and why it was not taken); internal (our own one
/// is there, and cannot be loaded)
Result<const BackendPlugin*> load_backend(const std::string& name);

/// Whether a backend is available in this process.
Availability probe_backend(const std::string& name);

}  // namespace dtrun::collectives
