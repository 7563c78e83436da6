#pragma once

#include "base/fd.h"
#include "base/result.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace dtrun::ranks {

/// Directories that the agent has made, in memory that its guard shares: should the agent be killed, the
/// guard removes them. Should both be killed, as Slurm kills a step, the user's next agent on the host
/// does (sweep_directories()).
class AgentDirectories {
public:
    /// More than there is room for are left where they are.
    /// \param held  what keeps the directory from being swept, open until it is removed
    void add(const std::string& directory, Fd held = {});
    void remove(const std::string& directory);
    /// Deletes all of them, with everything inside.
    void clean() noexcept;

private:
    static constexpr std::size_t kPathBytesMax = 256;
    std::array<std::array<char, kPathBytesMax>, 8> paths_{};  ///< ended by zeros; empty: free
    std::array<int, 8> held_{};                               ///< descriptors of the agent; 0: none
};

/// The one of this process and of those that it forks.
AgentDirectories& agent_directories();

/// Where agents make their directories, and whoever cleans up looks for what they have left.
inline constexpr std::array kDirectoryParents{"/tmp", "/dev/shm"};
/// Of ranks that share memory there.
inline constexpr std::array kMemoryParents{"/dev/shm", "/tmp"};

/// What a directory is for: links and sockets, for which a file system that is full may well have room, or files.
enum class DirectoryUse : std::uint8_t { names, files };

/// Makes one, for this user alone, and holds it: as long as this process lives nobody sweeps it, nor does systemd-tmpfiles.
/// One that is for files is made where some can be written.
/// \param prefix   as directory_prefix() makes it
/// \param parents  in which it may be, the preferred one first. /dev/shm is none for what is needed for long: logind
///                 (RemoveIPC) deletes what its users have there when they have logged out, while batch jobs of theirs run
/// Errc: internal
Result<std::string> make_directory(const std::string& prefix,
                                   const std::array<const char*, 2>& parents = kDirectoryParents,
                                   DirectoryUse use = DirectoryUse::files);
/// Deletes it with everything inside.
void remove_directory(const std::string& directory);

/// How the names of all agents' begin.
inline constexpr std::string_view kDirectoryPrefix = "dtrun-job-";

/// How an agent's begin. Everybody can read them, and the job's id is half of what keeps others out of
/// PMIx: this does not tell it.
/// \param agent  number of the agent that makes them
std::string directory_prefix(const std::string& job, std::uint64_t agent);

/// Deletes what an agent of the job has left on this host that is gone, as its guard is.
/// \return how many directories
int clean_directories(const std::string& job, std::uint64_t agent);

/// Deletes directories of this user's agents in `parent` that no process holds. Others' are not touched,
/// and links are not followed. Where the file system has no locks nothing is deleted.
/// \return how many directories
int sweep_directories(const std::string& parent);

}  // namespace dtrun::ranks
