#pragma once

#include <string>
#include <vector>

namespace dtrun {

/// What a program asks of the system before it runs.
struct LinkedLibraries {
    std::string loader{};               ///< that loads it; empty: it needs none
    std::vector<std::string> needed{};  ///< the shared libraries that it names itself, in its order
};

/// Nothing is in it for a script, a static program, one of another kind of CPU (32 bits, bytes in another order),
/// or a file that cannot be read. Names longer than any library's are cut.
/// \param path  of a program
LinkedLibraries linked_libraries(const std::string& path);

}  // namespace dtrun
