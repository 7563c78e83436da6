#pragma once
// What a disk has damaged of a daemon's state, and how the rest goes on.

#include "base/ids.h"
#include "base/result.h"

#include <cstdint>
#include <string>
#include <vector>

struct sqlite3;

namespace dtrun {

/// A job that is not as it was recorded, in part or as a whole.
struct DamagedJob {
    JobId id{};
    std::string name;  ///< empty: it cannot be read
    std::string why;
};

struct StateDamage {
    std::vector<JobId> whole;  ///< jobs that are as they were recorded
    std::vector<DamagedJob> jobs;
    std::string
        structure;  ///< of the file, so that nothing can be written to it: what; empty: none

    bool is_any() const { return !jobs.empty() || !structure.empty(); }
};

/// Reads everything. Errc: internal (not even the names of jobs can be read, or something else than the disk's damage
/// is in the way)
Result<StateDamage> look_for_damage(sqlite3* db);

/// What can be told of a file of another format: whether it can be read at all.
Result<StateDamage> check_structure(sqlite3* db);
/// Jobs of which nothing is left but that they were there.
std::vector<DamagedJob> jobs_marked_damaged(sqlite3* db);

/// Makes a state of the jobs that are whole, and of the names of those that are not. Of the others nothing is read, so
/// that a disk that cannot read a page of them is not in the way. \param commits  how many there were
/// Errc: internal
Result<void> copy_what_is_whole(sqlite3* db, const std::string& path, const StateDamage& damage,
                                std::uint64_t commits);

/// Whether an operation that has ended with this code (an extended one) has found damage, and nothing else.
bool is_damage(int code);

}  // namespace dtrun
