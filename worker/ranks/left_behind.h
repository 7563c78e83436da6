#pragma once

#include "base/result.h"

#include <array>
#include <cstdint>
#include <string>

namespace dtrun::ranks {

/// Directories that the agent has made, in memory that its guard shares: should the agent be killed, the
/// guard removes them.
class LeftBehind {
public:
    /// More than there is room for are left where they are.
    void add(const std::string& directory);
    void remove(const std::string& directory);
    /// Deletes all of them, with everything inside.
    void clean() noexcept;

private:
    static constexpr std::size_t kPathBytesMax = 256;
    std::array<std::array<char, kPathBytesMax>, 8> paths_{};  ///< ended by zeros; empty: free
};

/// The one of this process and of those that it forks.
LeftBehind& left_behind();

/// Where agents make their directories: in memory, if that can be used.
inline constexpr std::array kDirectoryParents{"/dev/shm", "/tmp"};

/// Makes one, for this user alone. \param prefix  as directory_prefix() makes it. Errc: internal
Result<std::string> make_directory(const std::string& prefix);
/// Deletes it with everything inside.
void remove_directory(const std::string& directory);

/// How their names begin. Everybody can read them, and the job's id is half of what keeps others out of
/// PMIx: this does not tell it.
/// \param agent  number of the agent that makes them
std::string directory_prefix(const std::string& job, std::uint64_t agent);

/// Deletes what an agent of the job has left on this host that is gone, as its guard is.
/// \return how many directories
int clean_directories(const std::string& job, std::uint64_t agent);

}  // namespace dtrun::ranks
