#pragma once

#include "base/fd.h"
#include "base/result.h"

#include <sys/types.h>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::control {

/// Folders in which control sockets of our user's jobs may be, the preferred one first: dtrun/ in
/// XDG_RUNTIME_DIR, where that is set; /tmp/dtrun-UID, which somebody else may have made before; and one in the
/// home directory that is this machine's, until it is booted again. An XDG_RUNTIME_DIR of logind (/run/user/UID) comes
/// last: it is emptied when the user's last session ends, which a job in a batch system's hands, or under nohup, outlives.
/// \param runtime_dir  XDG_RUNTIME_DIR, or empty. \param home  HOME, or empty
std::vector<std::string> control_folders(std::string_view runtime_dir, std::string_view home);

/// Whether it is a folder of our own that nobody else can enter. Errc: not_found, denied, internal
Result<void> check_private_folder(const std::string& folder);

/// Makes the folder, and in the home directory those above it, unless it is there. Errc: denied (it is somebody else's, a link, or lets
/// others in), internal
Result<void> make_private_folder(const std::string& folder);

/// A job whose head listens.
struct JobSocket {
    std::string job;     ///< its id, in hexadecimal digits
    std::string path;    ///< of the socket
    pid_t head = 0;      ///< the dtrun that listens
    std::string name{};  ///< that its user has given it; empty: none
};

/// As `limit_ms` of a view: it is answered when the job has ended, with how, and without its hosts and ranks.
inline constexpr std::uint32_t kUntilTheEnd = 0xffff'ffff;

inline constexpr std::string_view kSocketSuffix = ".sock";
/// A socket is called after its job: "3f2a….sock", or "3f2a….train.sock".
std::string socket_name(std::string_view job, std::string_view name);

/// Gives a job of this user its name on this machine, as long as what is returned is held.
/// Errc: invalid_input (another job has it)
Result<Fd> hold_name(std::string_view name, const std::vector<JobSocket>& running);

/// The jobs whose heads listen in these folders, in the order of their ids. Sockets at which nobody
/// listens any more are removed; folders that are not ours alone are passed over.
std::vector<JobSocket> running_jobs(const std::vector<std::string>& folders);

/// The job that a person means: by its name, its id, a begin of that, or the pid of its dtrun; without a word
/// the only one. Errc: invalid_input (none, or several, which the message lists)
Result<JobSocket> choose_job(const std::vector<JobSocket>& jobs, std::string_view word);

}  // namespace dtrun::control
