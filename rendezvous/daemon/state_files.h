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

/// Takes a state directory for this process, until the descriptor is closed. Errc: denied
Result<Fd> lock_state(const std::string& directory);

}  // namespace dtrun
