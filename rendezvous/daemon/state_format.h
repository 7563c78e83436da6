#pragma once
// The tables of a daemon's state. Each row that belongs to a job has a sum of all that it has, and each job the number
// of its rows and the sum of their sums, which triggers keep: a row that a disk has changed, or lost, is noticed.

#include <span>
#include <string_view>

struct sqlite3;

namespace dtrun {

/// A table whose rows belong to jobs.
struct StateTable {
    std::string_view name;
    std::string_view job;      ///< the column that has the job's id
    std::string_view columns;  ///< what `sum` is the sum of
};
std::span<const StateTable> state_tables();

/// Makes sum_of(...) known, which statements use: a hash of its arguments and of their types, of 32 bits.
void add_sum_function(sqlite3* db);

/// The format that this dtrun writes.
int state_format();
/// Brings a file of an older format, or an empty one, to this one. \return SQLite's code
int raise_format(sqlite3* db, int from);

}  // namespace dtrun
