#pragma once

#include "base/ids.h"
#include "base/result.h"
#include "rendezvous/hub.h"
#include "rendezvous/membership.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

struct sqlite3;
struct sqlite3_stmt;

namespace dtrun {

/// What a daemon must know of a job to go on with it.
struct JobRecord {
    JobId id{};
    std::string name;
    MembershipOptions options;  ///< less the plan
    bool has_members = false;   ///< else only a store
    Membership::Phase phase{};
    std::uint64_t generation = 0;
    std::map<MemberId, Membership::Seat> seats;
};

/// A daemon's state on disk, in SQLite's write-ahead log: what is not committed has not happened, a
/// torn end is dropped, and commit() returns when the disk has it.
///
/// Thread: one. A disk that fails ends the process: nothing could be promised any more.
class StateDb {
public:
    /// Opens or makes DIR/state.db; only one process can have it.
    /// Errc: denied, invalid_input (made by a version that this one does not know), internal
    static Result<std::unique_ptr<StateDb>> open(const std::string& directory);
    ~StateDb();
    StateDb(const StateDb&) = delete;
    StateDb& operator=(const StateDb&) = delete;

    std::vector<JobRecord> jobs();
    /// Gives a hub back its store, answers and fences.
    void restore(const JobId& job, Hub& hub, Deadline now);

    void save_job(const JobRecord& record);
    void drop_job(const JobId& job);
    /// Where the hub of a job keeps what it must.
    std::unique_ptr<HubJournal> journal(const JobId& job);

    bool dirty() const { return dirty_; }
    void commit();

private:
    friend class StateJournal;
    explicit StateDb(sqlite3* db);
    Result<void> prepare_schema();
    /// Runs a statement with values bound in order; the others take none.
    template <class... Values>
    void run(const char* sql, const Values&... values);
    template <class Row, class... Values>
    void query(const char* sql, Row row, const Values&... values);
    sqlite3_stmt* statement(const char* sql);
    void forget_generation(const JobId& job);
    void begin();
    [[noreturn]] void die(const char* what);

    sqlite3* db_;
    std::map<std::string, sqlite3_stmt*, std::less<>> statements_;
    bool dirty_ = false;
};

}  // namespace dtrun
