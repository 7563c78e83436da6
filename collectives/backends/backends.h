#pragma once

#include "base/result.h"
#include "collectives/backends/plugin_import.h"

#include <string>
#include <string_view>

namespace dtrun::collectives {

inline constexpr std::string_view kOwnBackend = "dtrun";

/// Our own backend, which is part of this library, or that of a plug-in, out of one of plugin_folders().
/// Errc: not_found (the message says where it was looked for, why it was not taken, and what to do)
Result<Backend> load_backend(const std::string& name);

/// Whether who lacks a backend is told how to get it.
enum class Advice { none, given };
/// Whether a backend is available in this process.
Availability probe_backend(const std::string& name, Advice advice);

}  // namespace dtrun::collectives
