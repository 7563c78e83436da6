#pragma once

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "base/threads.h"
#include "rendezvous/daemon/durations.h"

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

struct sqlite3;
struct sqlite3_stmt;

namespace dtrun {

/// The database of a StateDb, and the thread that writes to it.
///
/// A disk may not answer, so the thread shares this, and can be left behind with it. All that touches the disk is
/// done there, but for opening and reading, which come before its first batch.
class StateWriter : public std::enable_shared_from_this<StateWriter> {
public:
    using Value = std::variant<std::uint64_t, std::string>;
    struct Statement {
        const char* sql;
        std::vector<Value> values;
    };
    struct Batch {
        std::uint64_t number = 0;
        std::size_t bytes = 0;
        std::vector<Statement> statements;
    };

    enum class Use : bool {
        to_serve,
        to_copy,  ///< whoever serves the copy is to notice that it is one
    };
    /// Opens or makes the file. Errc: as StateDb::open()
    static Result<std::shared_ptr<StateWriter>> open(const std::string& directory, Use use);
    ~StateWriter();
    StateWriter(const StateWriter&) = delete;
    StateWriter& operator=(const StateWriter&) = delete;

    /// Reads, before anything is submitted.
    template <class Row, class... Values>
    void query(const char* sql, Row row, const Values&... values) {
        if (!try_query(sql, row, values...)) die(sql);
    }

    /// To be written with all that waits. Its number is one more than that of the last one.
    void submit(Batch batch);
    void commit(std::uint64_t number);  ///< waits until it is durable, and the file left alone
    void notify(std::function<void()> on_durable);
    std::uint64_t durable() const { return durable_; }
    void will_write(std::size_t bytes) { unwritten_bytes_ += bytes; }
    std::size_t unwritten_bytes() const { return unwritten_bytes_; }
    /// Written, but not yet in free_bytes().
    std::size_t unlooked_bytes() const { return unlooked_bytes_; }

    bool is_full() const { return disk_full_; }
    /// Free bytes on the disk and in the file, less those that the log will take when it is brought into the
    /// file, when that was last looked at.
    std::uint64_t free_bytes() const;
    /// Whether the file was removed, when that was last looked at. One that was moved is there.
    bool is_removed() const { return is_removed_; }
    /// Has the thread look at the disk, unless it is busy there.
    void look();
    const Durations& commits() const { return commit_times_; }
    /// Of commits, the part that writes the log and syncs it.
    const Durations& fsyncs() const { return fsync_times_; }
    /// Since when the disk has been writing; Deadline::max(): it is not.
    Deadline writing_since() const { return writing_since_; }

    /// Writes what was submitted and closes the file, until the deadline. Idempotent.
    /// \return false: not all is written: the disk is full, or does not answer, and the thread is left behind
    bool stop(Deadline deadline);

private:
    explicit StateWriter(std::string directory);
    std::string file() const { return directory_ + "/state.db"; }
    Result<void> open_file();
    Result<void> prepare_schema();
    Result<void> sync_log();
    void lengthen_log();
    Result<void> look_for_damage();
    std::uint64_t noted_commits() const;
    void make_shrinkable();
    void look_whether_copied();
    void shrink();
    Result<void> failure(int code) const;
    void look_for_lost_commits();
    void note_commit();
    std::uint64_t log_growth();
    std::optional<std::uint64_t> free_on_disk() const;
    template <class Row, class... Values>
    bool try_query(const char* sql, Row row, const Values&... values) {
        const auto bind = [&]([[maybe_unused]] sqlite3_stmt* prepared) {
            [[maybe_unused]] int at = 0;
            (bind_value(prepared, ++at, values), ...);
        };
        return query_rows(sql, bind, row);
    }
    bool query_rows(const char* sql, const std::function<void(sqlite3_stmt*)>& bind,
                    const std::function<void(sqlite3_stmt*)>& row);
    static void bind_value(sqlite3_stmt* statement, int at, std::uint64_t value);
    static void bind_value(sqlite3_stmt* statement, int at, std::string_view value);
    bool is_out_of_space(int result) const;
    int step(const Statement& statement);
    sqlite3_stmt* statement(const char* sql);
    void start_thread();
    void write_batches();
    bool write(const std::deque<Batch>& batches);
    bool try_write(const std::deque<Batch>& batches);
    void tell(std::uint64_t durable);
    void look_after_commit();
    void look_at_disk();
    void look_at_file();
    void close();
    [[noreturn]] void die(const char* what);

    // Used by the opening thread until the writer thread starts, then only by that one.
    sqlite3* db_ = nullptr;
    std::map<std::string, sqlite3_stmt*, std::less<>> statements_;
    const std::string directory_;
    Fd path_;                      ///< the file, as a path; not there in simulations
    bool has_lengthened_ = false;  ///< the log
    std::uint64_t commits_ = 0;    ///< that the file has, since it was made
    /// A file that has the number of the last one, for look_for_lost_commits(), and is locked.
    Fd last_commit_;

    std::atomic<std::uint64_t> durable_{0};
    std::atomic<std::size_t> unwritten_bytes_{0}, unlooked_bytes_{0};
    std::atomic<std::uint64_t> disk_bytes_{0};    ///< free on the disk
    std::atomic<std::uint64_t> file_bytes_{0};    ///< free inside the file
    std::atomic<std::uint64_t> growth_bytes_{0};  ///< log_growth()
    std::atomic<bool> is_removed_{false};
    std::atomic<bool> disk_full_{false};
    std::atomic<bool> has_lost_{false};  ///< what was submitted, at the end
    std::atomic<Deadline> writing_since_{Deadline::max()};
    Durations commit_times_, fsync_times_;
    Mutex mutex_;  ///< guards the members below
    ConditionVariable changed_;
    std::deque<Batch> queue_;
    std::function<void()> on_durable_;
    bool look_ = false;
    bool is_at_work_ = false;  ///< the thread uses the file
    bool stopping_ = false;
    Thread thread_;        ///< started with the first batch
    bool is_kept_ = true;  ///< stop()'s
};

}  // namespace dtrun
