#pragma once

#include <string>
#include <string_view>

namespace dtrun::collectives {

/// The version of the library behind a backend on this host, "Open MPI 4.1.4" or "2.28.9"; "" if
/// it is not here, or if dtrun does not know the backend. The plug-in need not be installed.
///
/// Loads the library and leaves it loaded, which may change what else this process can do: ask in a
/// process of its own.
std::string library_version(std::string_view backend);

// One for each row of backends.def, in version.cpp of the backend's folder.
#define DTRUN_BACKEND(name, ...) std::string name##_library_version();
#include "collectives/backends/backends.def"
#undef DTRUN_BACKEND

}  // namespace dtrun::collectives
