#include "rendezvous/daemon/state_writer.h"

#include "base/log.h"
#include "base/simulated.h"
#include "base/text_layout.h"
#include "rendezvous/daemon/state_damage.h"
#include "rendezvous/daemon/state_files.h"
#include "rendezvous/daemon/state_format.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace dtrun {
namespace {

constexpr std::chrono::milliseconds kDiskFullPause{500};
constexpr std::uint64_t kPageBytes = 4'096;
/// With less free than this the log is brought into the file after each commit, so that it does not take what
/// the file will need.
constexpr std::uint64_t kTightBytes = 16u << 20;
/// How long the log gets before SQLite brings it into the file, after 1,000 pages with a header each, and begins it anew.
constexpr sqlite3_int64 kLogBytes = 1'024 * (kPageBytes + 24);
/// How long a backup that others make may keep the log from being brought into the file.
constexpr int kBusyMs = 10'000;
/// The file is made smaller, this much a second, when more than this and a quarter of it is free.
constexpr std::uint64_t kShrinkBytes = 8u << 20;
/// A file of an older version is made one that can shrink if it is no larger than this.
constexpr std::uint64_t kConvertedBytesMax = 256u << 20;
/// dtrun's exit code for what is nobody's mistake (docs/EXIT_CODES.md).
constexpr int kExitInternal = 210;

/// errno of the last operation on the log, or else on the file, that has failed; 0: none.
int last_errno(sqlite3* db) {
    int error = 0;
    for (const int which : {SQLITE_FCNTL_JOURNAL_POINTER, SQLITE_FCNTL_FILE_POINTER}) {
        sqlite3_file* file = nullptr;
        sqlite3_file_control(db, "main", which, &file);
        if (error == 0 && file != nullptr && file->pMethods != nullptr)
            file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &error);
    }
    return error;
}

bool sync_file(sqlite3* db, int which) {
    sqlite3_file* file = nullptr;
    sqlite3_file_control(db, "main", which, &file);
    return file != nullptr && file->pMethods != nullptr &&
           file->pMethods->xSync(file, SQLITE_SYNC_NORMAL) == SQLITE_OK;
}

/// A name that no file has yet, on whatever disk SQLite uses.
std::string free_file(const std::string& name) {
    sqlite3_vfs* const files = sqlite3_vfs_find(nullptr);
    std::string free = name;
    int is_there = 0;
    for (int more = 2;
         files->xAccess(files, free.c_str(), SQLITE_ACCESS_EXISTS, &is_there) == SQLITE_OK &&
         is_there != 0;
         ++more)
        free = fmt::format("{}-{}", name, more);
    return free;
}

/// What can be done about a failure of the database; empty: nothing in general.
std::string advice(int code, const std::string& directory) {
    if ((code & 0xff) != SQLITE_CORRUPT && (code & 0xff) != SQLITE_NOTADB) return "";
    return fmt::format(
        "; the state is damaged: restore a backup (dtrun serve --restore FILE --state {0} "
        "--replace), or move {0} away to begin with no jobs; what is left can be read with: "
        "sqlite3 {0}/state.db .recover",
        directory);
}

}  // namespace

void StateWriter::bind_value(sqlite3_stmt* statement, int at, std::uint64_t value) {
    sqlite3_bind_int64(statement, at, static_cast<sqlite3_int64>(value));
}

void StateWriter::bind_value(sqlite3_stmt* statement, int at, std::string_view value) {
    // An empty blob is not NULL.
    sqlite3_bind_blob64(statement, at, value.data() != nullptr ? value.data() : "", value.size(),
                        SQLITE_STATIC);
}

Result<std::shared_ptr<StateWriter>> StateWriter::open(const std::string& directory, Use use) {
    if (::mkdir(directory.c_str(), 0700) == 0)
        sync_parent(directory);
    else if (errno != EEXIST)
        return fail(Errc::denied, "{}: {}", directory, strerror(errno));
    if (const auto ours = check_owner(directory); !ours) return std::unexpected(ours.error());
    // Not SQLite's own lock, which would keep others from reading, too.
    Result<Fd> lock = Fd();
    if (SimulatedSystem::current == nullptr) lock = lock_state(directory);
    if (!lock) return std::unexpected(lock.error());
    std::shared_ptr<StateWriter> state(new StateWriter(directory));
    state->last_commit_ = std::move(*lock);
    const std::string path = state->file();
    if (const auto opened = state->open_file(); !opened) return fail(opened.error(), "{}", path);
    if (const auto done = state->look_for_damage(); !done) return fail(done.error(), "{}", path);
    state->make_shrinkable();
    // The locks of a file that is open as a path only are not lost when that is closed.
    if (SimulatedSystem::current == nullptr)
        state->path_.reset(::open(path.c_str(), O_PATH | O_CLOEXEC));
    if (use == Use::to_serve) state->look_whether_copied();
    state->look_for_lost_commits();
    state->look_at_file();
    state->look_at_disk();
    return state;
}

StateWriter::StateWriter(std::string directory) : directory_(std::move(directory)) {}

StateWriter::~StateWriter() {
    close();
}

/// Closing may write, too.
void StateWriter::close() {
    for (const auto& [sql, statement] : std::exchange(statements_, {})) sqlite3_finalize(statement);
    sqlite3_close(std::exchange(db_, nullptr));
}

bool StateWriter::stop(Deadline deadline) {
    {
        const std::lock_guard lock(mutex_);
        if (std::exchange(stopping_, true)) return is_kept_;
        on_durable_ = nullptr;
        start_thread();
    }
    changed_.notify_all();
    const bool has_ended = thread_.join_until(deadline);
    return is_kept_ = has_ended && !has_lost_;
}

Result<void> StateWriter::open_file() {
    const mode_t before = ::umask(0077);
    const int opened = sqlite3_open_v2(
        file().c_str(), &db_,
        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE,
        nullptr);
    ::umask(before);
    if (opened != SQLITE_OK) return fail(Errc::denied, "{}", sqlite3_errmsg(db_));
    return prepare_schema();
}

Result<void> StateWriter::prepare_schema() {
    const auto execute = [this](const char* sql) {
        return sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) == SQLITE_OK;
    };
    // The log's index is in our own memory then. One in a mapped file would stop the whole process, not its writer
    // alone, where the disk does not answer.
    (void)execute("PRAGMA locking_mode=EXCLUSIVE");
    sqlite3_busy_timeout(db_, kBusyMs);
    const bool ours = execute(
        "PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
        "PRAGMA journal_size_limit=16777216; PRAGMA recursive_triggers=ON;"
        "BEGIN IMMEDIATE; COMMIT;");
    if (!ours && (sqlite3_errcode(db_) & 0xff) == SQLITE_BUSY)
        return fail(Errc::denied, "another dtrun serve uses it");
    if (!ours) return failure(sqlite3_errcode(db_));
    int version = 0;
    const bool is_known = try_query(
        "PRAGMA user_version", [&](sqlite3_stmt* row) { version = sqlite3_column_int(row, 0); });
    if (!is_known) return failure(sqlite3_errcode(db_));
    if (version > state_format() || version < 0)
        return fail(Errc::internal, "its format is {}, this dtrun knows {}", version,
                    state_format());
    add_sum_function(db_);
    if (raise_format(db_, version) != SQLITE_OK) return failure(sqlite3_errcode(db_));
    const bool is_counted = try_query("SELECT number FROM commits", [this](sqlite3_stmt* row) {
        commits_ = static_cast<std::uint64_t>(sqlite3_column_int64(row, 0));
    });
    if (!is_counted && !is_damage(sqlite3_extended_errcode(db_)))
        return failure(sqlite3_errcode(db_));
    if (!is_counted) commits_ = noted_commits();
    return sync_log();
}

/// Files that older versions have made never become smaller; to change that all is written anew.
void StateWriter::make_shrinkable() {
    std::int64_t is_shrinkable = 0, pages = 0;
    query("PRAGMA auto_vacuum",
          [&](sqlite3_stmt* row) { is_shrinkable = sqlite3_column_int64(row, 0); });
    if (is_shrinkable != 0) return;
    query("PRAGMA page_count", [&](sqlite3_stmt* row) { pages = sqlite3_column_int64(row, 0); });
    if (static_cast<std::uint64_t>(pages) * kPageBytes <= kConvertedBytesMax &&
        sqlite3_exec(db_, "VACUUM", nullptr, nullptr, nullptr) == SQLITE_OK)
        return (void)sync_log();
    log::warn(
        "--state: {0}: state.db is of an older version, and keeps its size when jobs go; to "
        "change that, stop dtrun serve and run: sqlite3 {0}/state.db 'PRAGMA auto_vacuum=2; "
        "VACUUM'",
        directory_);
}

/// Gives room that is free in the file back to the disk, little by little.
void StateWriter::shrink() {
    std::uint64_t pages = 0;
    if (file_bytes_ < kShrinkBytes) return;
    query("PRAGMA page_count", [&](sqlite3_stmt* row) {
        pages = static_cast<std::uint64_t>(sqlite3_column_int64(row, 0));
    });
    if (file_bytes_ < pages * kPageBytes / 4) return;
    const std::string sql = fmt::format("PRAGMA incremental_vacuum({})", kShrinkBytes / kPageBytes);
    writing_since_ = Clock::now();
    const int result = sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr);
    if (result != SQLITE_OK && !is_out_of_space(result)) die("incremental_vacuum");
    sqlite3_wal_checkpoint_v2(db_, nullptr, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
    writing_since_ = Deadline::max();
    look_at_file();
}

/// Jobs that are whole go on although the disk has damaged others: in a new file, as SQLite can neither write to a
/// damaged one nor drop what is in it.
Result<void> StateWriter::look_for_damage() {
    const auto damage = dtrun::look_for_damage(db_);
    if (!damage) return failure(sqlite3_errcode(db_));
    if (!damage->is_any()) return {};
    const std::string aside =
        free_file(fmt::format("{}/state.db.damaged-{}", directory_, commits_));
    const std::string whole = aside + "-whole";
    if (auto made = copy_what_is_whole(db_, whole, *damage, commits_); !made) return made;
    close();
    if (auto done = replace_database(file(), whole, aside); !done) return done;
    const std::string what = damage->jobs.empty() ? "no job, but the file: " + damage->structure
                                                  : plural(damage->jobs.size(), "job");
    log::error("--state: {}: the disk has damaged {}; all others go on; the file as it was is {}",
               directory_, what, aside);
    return open_file();
}

Result<void> StateWriter::failure(int code) const {
    return fail(Errc::internal, "{}{}", sqlite3_errmsg(db_), advice(code, directory_));
}

/// A file keeps its number and the time at which it was made when it is moved, and a copy has others: what the file was is
/// written into it. Two daemons with copies of one state serve the same jobs, and know nothing of each other.
void StateWriter::look_whether_copied() {
    struct statx found {};
    if (SimulatedSystem::current != nullptr ||
        ::statx(path_.get(), "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &found) != 0)
        return;
    const std::uint64_t mixed = (found.stx_ino * 0x9e37'79b9'7f4a'7c15) ^
                                (static_cast<std::uint64_t>(found.stx_btime.tv_sec) << 30) ^
                                found.stx_btime.tv_nsec;
    const auto mark = static_cast<std::int32_t>((mixed >> 32) ^ mixed) | 1;
    std::int32_t was = 0;
    query("PRAGMA application_id", [&](sqlite3_stmt* row) { was = sqlite3_column_int(row, 0); });
    if (was == mark) return;
    if (was != 0)
        log::warn(
            "--state: {}: it is a copy, or a backup that was put in its place: if a daemon "
            "serves the other one still, programs that go from one to the other are told "
            "what is not true",
            directory_);
    (void)sqlite3_exec(db_, fmt::format("PRAGMA application_id={}", mark).c_str(), nullptr, nullptr,
                       nullptr);
    (void)sync_log();
}

/// A damaged log ends, for SQLite, where the damage begins, as if nothing had followed. So the number of the last
/// commit stands in a file of its own, which is written later and not synced: it never has a number of what
/// was not on disk.
void StateWriter::look_for_lost_commits() {
    if (SimulatedSystem::current != nullptr) return;
    const std::uint64_t last = noted_commits();
    if (last > commits_)
        log::error(
            "--state: {}: the state is older than it was: the last {} commits, of which programs "
            "were told, "
            "are not there; its log, state.db-wal, is damaged, or is not the one of this state.db",
            directory_, last - commits_);
    note_commit();
}

/// What note_commit() has last written; 0: nothing.
std::uint64_t StateWriter::noted_commits() const {
    char text[32]{};
    if (!last_commit_ || ::pread(last_commit_.get(), text, sizeof text - 1, 0) < 0) return 0;
    return std::strtoull(text, nullptr, 10);
}

void StateWriter::note_commit() {
    const std::string text = fmt::format("{:<20}\n", commits_);
    if (last_commit_) (void)!::pwrite(last_commit_.get(), text.data(), text.size(), 0);
}

/// By how many bytes the file will grow when the log is brought into it.
std::uint64_t StateWriter::log_growth() {
    std::uint64_t wanted = 0;
    query("PRAGMA page_count", [&](sqlite3_stmt* row) {
        wanted = static_cast<std::uint64_t>(sqlite3_column_int64(row, 0)) * kPageBytes;
    });
    sqlite3_file* file = nullptr;
    sqlite3_int64 size = 0;
    sqlite3_file_control(db_, "main", SQLITE_FCNTL_FILE_POINTER, &file);
    if (file == nullptr || file->pMethods == nullptr ||
        file->pMethods->xFileSize(file, &size) != SQLITE_OK)
        return 0;
    return wanted - std::min(wanted, static_cast<std::uint64_t>(size));
}

std::uint64_t StateWriter::free_bytes() const {
    const std::uint64_t free = disk_bytes_ + file_bytes_;
    return free - std::min<std::uint64_t>(free, growth_bytes_);
}

/// The log of a daemon that was killed may have changes that only the system's memory has, and a restart
/// tells of them: moves all to the file, which syncs both.
Result<void> StateWriter::sync_log() {
    const int result =
        sqlite3_wal_checkpoint_v2(db_, nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
    // Who makes a backup needs the log as it is.
    if ((result & 0xff) == SQLITE_BUSY && sync_file(db_, SQLITE_FCNTL_JOURNAL_POINTER)) return {};
    // The log itself is synced first. What does not fit into the file stays in it.
    if (result == SQLITE_OK || is_out_of_space(result)) return {};
    return failure(result);
}

/// Makes the log as long as it will be. What is written over takes a disk one write; what makes a file longer takes those
/// of the file system's journal as well, at every commit.
void StateWriter::lengthen_log() {
    if (SimulatedSystem::current != nullptr || disk_bytes_ < kTightBytes) return;
    sqlite3_file* log = nullptr;
    sqlite3_file_control(db_, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log);
    if (log == nullptr || log->pMethods == nullptr) return;
    sqlite3_int64 begin = 0;
    if (log->pMethods->xFileSize(log, &begin) != SQLITE_OK) return;
    const std::string zeros(64u << 10, '\0');
    const int bytes = static_cast<int>(zeros.size());
    for (sqlite3_int64 at = begin; at < kLogBytes; at += bytes) {
        if (log->pMethods->xWrite(log, zeros.data(), bytes, at) == SQLITE_OK) continue;
        (void)log->pMethods->xTruncate(log, begin);  // the disk is full
        return;
    }
    (void)log->pMethods->xSync(log, SQLITE_SYNC_NORMAL);
}

/// Whether an operation has failed for want of room. SQLite itself knows ENOSPC, but no quotas.
bool StateWriter::is_out_of_space(int result) const {
    if ((result & 0xff) == SQLITE_FULL) return true;
    if (result != SQLITE_IOERR_WRITE) return false;
    const int error = last_errno(db_);
    return error == ENOSPC || error == EDQUOT;
}

void StateWriter::die(const char* what) {
    const int error = last_errno(db_);
    log::error("--state: {}: {}: {}{}{}{}; ending, so that nothing is promised that is not kept",
               directory_, what, sqlite3_errmsg(db_), error != 0 ? ": " : "",
               error != 0 ? strerror(error) : "", advice(sqlite3_errcode(db_), directory_));
    if (SimulatedSystem::current != nullptr) SimulatedSystem::current->exit_process(kExitInternal);
    ::_exit(kExitInternal);
}

/// \return nullptr: it cannot be made
sqlite3_stmt* StateWriter::statement(const char* sql) {
    const auto known = statements_.find(sql);
    if (known != statements_.end()) return known->second;
    sqlite3_stmt* made = nullptr;
    if (sqlite3_prepare_v3(db_, sql, -1, SQLITE_PREPARE_PERSISTENT, &made, nullptr) != SQLITE_OK)
        return nullptr;
    return statements_[sql] = made;
}

/// \return whether all rows were read
bool StateWriter::query_rows(const char* sql, const std::function<void(sqlite3_stmt*)>& bind,
                             const std::function<void(sqlite3_stmt*)>& row) {
    sqlite3_stmt* prepared = statement(sql);
    if (prepared == nullptr) return false;
    bind(prepared);
    int result = 0;
    while ((result = sqlite3_step(prepared)) == SQLITE_ROW) row(prepared);
    if (result != SQLITE_DONE) return false;
    sqlite3_reset(prepared);
    sqlite3_clear_bindings(prepared);
    return true;
}

void StateWriter::submit(Batch batch) {
    std::unique_lock lock(mutex_);
    if (batch.statements.empty() && queue_.empty() && durable_ == batch.number - 1) {
        durable_ = batch.number;  // there is nothing to write
        return;
    }
    if (queue_.empty()) queue_.emplace_back();
    // All waiting batches are merged, as they are written together anyway; else turns without a
    // change would pile up.
    Batch& waiting = queue_.back();
    waiting.number = batch.number;
    waiting.bytes += batch.bytes;
    std::ranges::move(batch.statements, std::back_inserter(waiting.statements));
    start_thread();
    lock.unlock();  // or who is woken would wait for it
    changed_.notify_all();
}

/// With mutex_ held.
void StateWriter::start_thread() {
    if (!thread_.joinable())
        thread_ = Thread([self = shared_from_this()] { self->write_batches(); });
}

void StateWriter::notify(std::function<void()> on_durable) {
    const std::lock_guard lock(mutex_);
    on_durable_ = std::move(on_durable);
}

void StateWriter::commit(std::uint64_t number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return durable_ >= number && !is_at_work_; });
}

void StateWriter::look() {
    const std::lock_guard lock(mutex_);
    look_ = true;
    start_thread();
    changed_.notify_all();
}

/// The writer thread: writes all batches submitted meanwhile as one transaction.
void StateWriter::write_batches() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return stopping_ || look_ || !queue_.empty(); });
        if (queue_.empty() && stopping_) break;
        const bool may_shrink = std::exchange(look_, false);
        const std::deque<Batch> batches = std::exchange(queue_, {});
        is_at_work_ = true;
        lock.unlock();
        if (!batches.empty() && !write(batches)) {  // the disk is full, and this is to end
            lock.lock();
            is_at_work_ = false;
            has_lost_ = true;
            break;
        }
        if (!batches.empty()) {
            for (const Batch& batch : batches) {
                unlooked_bytes_ += batch.bytes;  // what is promised must have room besides
                unwritten_bytes_ -= batch.bytes;
            }
            tell(batches.back().number);  // also those that were kept waiting by unwritten_bytes()
            look_after_commit();
        }
        look_at_disk();
        if (batches.empty() && may_shrink) shrink();
        unlooked_bytes_ = 0;
        lock.lock();
        is_at_work_ = false;
        if (!batches.empty()) changed_.notify_all();
    }
    lock.unlock();
    close();
}

/// All up to this batch is on disk: what waits for that goes on, while this thread does what is not as urgent.
void StateWriter::tell(std::uint64_t durable) {
    std::unique_lock lock(mutex_);
    durable_ = durable;
    if (on_durable_) on_durable_();
    lock.unlock();
    changed_.notify_all();
}

std::optional<std::uint64_t> StateWriter::free_on_disk() const {
    if (SimulatedSystem::current != nullptr)
        return SimulatedSystem::current->free_bytes(directory_);
    struct statvfs disk {};
    if (::fstatvfs(path_.get(), &disk) != 0) return std::nullopt;
    return std::uint64_t{disk.f_bavail} * disk.f_frsize;
}

/// After a commit: looks how much room it has left.
void StateWriter::look_after_commit() {
    writing_since_ = Clock::now();
    if (disk_bytes_ < kTightBytes)  // without success, it is tried after the next commit
        sqlite3_wal_checkpoint_v2(db_, nullptr, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
    look_at_file();
    writing_since_ = Deadline::max();
}

/// A disk that does not answer this is as slow as one that does not write.
void StateWriter::look_at_disk() {
    writing_since_ = Clock::now();
    disk_bytes_ = free_on_disk().value_or(0);
    struct stat file {};
    is_removed_ = ::fstat(path_.get(), &file) == 0 && file.st_nlink == 0;
    writing_since_ = Deadline::max();
}

/// \return false if the disk is full and this is to end
bool StateWriter::write(const std::deque<Batch>& batches) {
    const auto try_once = [&] {
        writing_since_ = Clock::now();
        if (!std::exchange(has_lengthened_, true)) lengthen_log();
        const bool written = try_write(batches);
        writing_since_ = Deadline::max();
        return written;
    };
    while (!try_once()) {
        if (!disk_full_.exchange(true))
            log::error("--state: {}: the disk is full: answers wait until it has room", directory_);
        std::unique_lock lock(mutex_);
        const Deadline again = after(kDiskFullPause);
        if (changed_.wait_until(lock, again, [this] { return stopping_; })) return false;
    }
    if (disk_full_.exchange(false)) log::warn("--state: {}: the disk has room again", directory_);
    return true;
}

/// \return whether the batches are on disk; false: the disk is full, and nothing was written
bool StateWriter::try_write(const std::deque<Batch>& batches) {
    const auto done = [this](const Statement& statement) {
        const int result = step(statement);
        if (result != SQLITE_DONE && !is_out_of_space(result)) die(statement.sql);
        return result == SQLITE_DONE;
    };
    const Deadline begun = Clock::now();
    Deadline recorded{};
    const auto write_all = [&] {
        if (!done({"BEGIN", {}})) return false;
        for (const Batch& batch : batches)
            if (!std::ranges::all_of(batch.statements, done)) return false;
        if (!done({"UPDATE commits SET number=?", {Value(commits_ + 1)}})) return false;
        recorded = Clock::now();
        return done({"COMMIT", {}});
    };
    if (!write_all()) {
        if (sqlite3_get_autocommit(db_) == 0) (void)step({"ROLLBACK", {}});
        return false;
    }
    commit_times_.add(Clock::now() - begun);
    fsync_times_.add(Clock::now() - recorded);
    ++commits_;
    note_commit();  // before anybody is told of it, or a damaged log might not be told of one day
    return true;
}

void StateWriter::look_at_file() {
    growth_bytes_ = log_growth();
    query("PRAGMA freelist_count", [this](sqlite3_stmt* row) {
        file_bytes_ = static_cast<std::uint64_t>(sqlite3_column_int64(row, 0)) * kPageBytes;
    });
}

/// \return SQLite's code: SQLITE_DONE, or why it failed
int StateWriter::step(const Statement& statement) {
    sqlite3_stmt* prepared = this->statement(statement.sql);
    if (prepared == nullptr) return sqlite3_errcode(db_);
    int at = 0;
    for (const Value& value : statement.values)
        std::visit([&](const auto& one) { bind_value(prepared, ++at, one); }, value);
    const int result = sqlite3_step(prepared);
    sqlite3_reset(prepared);
    sqlite3_clear_bindings(prepared);
    return result;
}

}  // namespace dtrun
