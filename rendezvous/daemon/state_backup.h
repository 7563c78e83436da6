#pragma once
// Copies of a daemon's state: dtrun serve --backup and --restore.

#include "base/result.h"
#include "rendezvous/daemon/state_damage.h"

#include <cstddef>
#include <string>
#include <vector>

namespace dtrun {

struct StateBackup {
    StateDamage damage;    ///< of the copy, with what was damaged before
    std::string file;      ///< where it is: FILE, or FILE.damaged
    bool has_sums = true;  ///< false: it is of another format, whose rows could not be checked
};

/// Writes a state as it is at one instant, also while a daemon uses it, to a file, which replaces one of that name when
/// it is complete and whole; a damaged one is left beside it. Errc: invalid_input (it is the state itself), denied,
/// internal
Result<StateBackup> back_up_state(const std::string& directory, const std::string& file);

struct RestoredState {
    std::vector<std::string> jobs;
    std::vector<DamagedJob> damaged;
    std::string replaced;  ///< the file of the state that was there; empty: none was
};

/// Puts a backup, or what is whole of another state directory, into a directory that no daemon uses. Nothing is replaced
/// before all was read. \param replaces  whether a state that is there may be moved aside
/// Errc: invalid_input (there is one), denied, internal
Result<RestoredState> restore_state(const std::string& from, const std::string& directory,
                                    bool replaces);

}  // namespace dtrun
