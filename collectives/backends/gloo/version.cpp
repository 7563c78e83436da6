#include "base/fd.h"
#include "collectives/backends/backend_facts.h"
#include "collectives/backends/shared_library.h"

namespace dtrun::collectives {

/// The library does not tell its version, so its package is asked.
std::string gloo_library_version() {
    if (!open_any({"libgloo.so.0", "libgloo.so"})) return {};
    const std::string packages = read_file("/var/lib/dpkg/status").value_or("");
    const std::size_t package = packages.find("\nPackage: libgloo0\n");
    const std::size_t version = packages.find("\nVersion: ", package);
    const std::size_t next = packages.find("\nPackage: ", package + 1);
    if (package == packages.npos || version > next) return "libgloo";
    const std::size_t begin = version + std::string_view("\nVersion: ").size();
    return packages.substr(begin, packages.find('\n', begin) - begin);
}

}  // namespace dtrun::collectives
