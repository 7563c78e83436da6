#pragma once
// The directory of a daemon's state.

#include "base/fd.h"
#include "base/result.h"

#include <string>

namespace dtrun {

/// Who can write to the directory can give the daemon another state, with keys and members of their own.
/// Errc: denied
Result<void> check_owner(const std::string& directory);

/// Syncs the directory that holds a new file's or directory's name.
void sync_parent(const std::string& path);

/// Errc: internal
Result<void> rename_file(const std::string& from, const std::string& to);

/// Puts a database that has no log in the place of `file`, whose old content goes on as `aside`, with its log. Whenever
/// it is broken off, one of them is there, though the old one may have its log with `aside` only; where the file system
/// has no hard links there may be neither. Errc: internal
Result<void> replace_database(const std::string& file, const std::string& made,
                              const std::string& aside);

/// Takes a state directory for this process, until the descriptor is closed; also one that nobody can write to.
/// Errc: denied
Result<Fd> lock_state(const std::string& directory);

}  // namespace dtrun
