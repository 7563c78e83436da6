#include "rendezvous/daemon/state_db.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/milliseconds.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/member_messages.h"
#include "rendezvous/wire/msgpack.h"
#include "rendezvous/wire/rank_messages.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>

namespace dtrun {
namespace {

/// Every byte is written twice: to the log, and from there to the file itself.
constexpr std::size_t kCopies = 2;
/// Kept free for writes that must not fail: membership, and operations that make the store smaller.
constexpr std::size_t kReserveBytes = 2u << 20;
constexpr std::size_t kUnwrittenBytesMax = 64u << 20;
constexpr std::chrono::milliseconds kDiskFullPause{500};
/// A commit takes milliseconds; one that takes longer than this is told to who runs the daemon.
constexpr std::chrono::seconds kSlowWrite{1};

/// What each version of the format has added, from the first.
constexpr std::array kVersions = {R"(
CREATE TABLE job(id BLOB PRIMARY KEY, name BLOB, ranks_min INT, ranks_max INT, join_ms INT,
                 last_call_ms INT, return_ms INT, has_members INT, phase INT, generation INT);
CREATE TABLE member(job BLOB, member INT, name BLOB, slots INT, peer TEXT, server TEXT, port INT,
                    ord INT, accepted INT, assignment BLOB, PRIMARY KEY(job, member));
CREATE TABLE value(job BLOB, key BLOB, value BLOB, revision INT, PRIMARY KEY(job, key));
CREATE TABLE item(job BLOB, key BLOB, item INT, value BLOB, revision INT,
                  PRIMARY KEY(job, key, item));
CREATE TABLE answer(job BLOB, client INT, id INT, reply BLOB, PRIMARY KEY(job, client, id));
CREATE TABLE fence(job BLOB, name BLOB, frame BLOB, PRIMARY KEY(job, name));
)",
                                  R"(
CREATE TABLE failure(job BLOB, name BLOB, round INT, frame BLOB, PRIMARY KEY(job, name, round));
CREATE TABLE group_fence(job BLOB, name BLOB, fence BLOB, round INT, frame BLOB, clients BLOB,
                         PRIMARY KEY(job, name, fence, round));
)",
                                  R"(
CREATE TABLE generation(job BLOB PRIMARY KEY, frame BLOB, failure BLOB);
)",
                                  R"(
CREATE TABLE policy(job BLOB PRIMARY KEY, frame BLOB, restarts INT);
)"};
constexpr int kVersion = static_cast<int>(kVersions.size());

void bind_value(sqlite3_stmt* statement, int at, std::uint64_t value) {
    sqlite3_bind_int64(statement, at, static_cast<sqlite3_int64>(value));
}
void bind_value(sqlite3_stmt* statement, int at, std::string_view value) {
    // An empty blob is not NULL.
    sqlite3_bind_blob64(statement, at, value.data() != nullptr ? value.data() : "", value.size(),
                        SQLITE_STATIC);
}

std::uint64_t to_value(std::uint64_t value) {
    return value;
}
std::string to_value(std::string_view value) {
    return std::string(value);
}
std::string to_value(const JobId& id) {
    return std::string(id.begin(), id.end());
}

std::uint64_t number(sqlite3_stmt* row, int column) {
    return static_cast<std::uint64_t>(sqlite3_column_int64(row, column));
}
std::string text(sqlite3_stmt* row, int column) {
    const void* bytes = sqlite3_column_blob(row, column);
    const auto size = static_cast<std::size_t>(sqlite3_column_bytes(row, column));
    return bytes != nullptr ? std::string(static_cast<const char*>(bytes), size) : std::string();
}
/// Syncs the parent of a new directory, which holds its name.
void sync_parent(const std::string& directory) {
    const std::size_t slash = directory.find_last_of('/');
    const std::string parent = slash == std::string::npos ? "." : directory.substr(0, slash + 1);
    const Fd opened(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (opened) ::fsync(opened.get());
}

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

/// Who can write to the directory can give the daemon another state, with keys and members of their own.
Result<void> check_owner(const std::string& directory) {
    struct stat found {};
    if (::stat(directory.c_str(), &found) != 0)
        return fail(Errc::denied, "{}: {}", directory, strerror(errno));
    if (found.st_uid != ::geteuid())
        return fail(Errc::denied, "{}: it belongs to user {}, not to the daemon's, {}", directory,
                    found.st_uid, ::geteuid());
    if ((found.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return fail(Errc::denied, "{}: others can write to it; chmod 700", directory);
    return {};
}

std::optional<std::uint64_t> free_on_disk(const std::string& directory) {
    if (SimulatedSystem::current != nullptr) return SimulatedSystem::current->free_bytes(directory);
    struct statvfs disk {};
    if (::statvfs(directory.c_str(), &disk) != 0) return std::nullopt;
    return std::uint64_t{disk.f_bavail} * disk.f_frsize;
}

std::chrono::milliseconds milliseconds(sqlite3_stmt* row, int column) {
    return std::chrono::milliseconds(sqlite3_column_int64(row, column));
}

}  // namespace

/// One job's part of the database.
class StateJournal final : public HubJournal {
public:
    StateJournal(StateDb& db, const JobId& job) : db_(db), job_(job) {}

    void value_set(std::string_view key, std::string_view value, std::uint64_t revision) override {
        db_.run("INSERT OR REPLACE INTO value VALUES(?,?,?,?)", job_, key, value, revision);
    }
    void item_pushed(std::string_view key, std::uint64_t item, std::string_view value,
                     std::uint64_t revision) override {
        db_.run("INSERT OR REPLACE INTO item VALUES(?,?,?,?,?)", job_, key, item, value, revision);
    }
    void item_popped(std::string_view key, std::uint64_t item, std::uint64_t) override {
        db_.run("DELETE FROM item WHERE job=? AND key=? AND item=?", job_, key, item);
    }
    void erased(std::string_view key) override {
        db_.run("DELETE FROM value WHERE job=? AND key=?", job_, key);
        db_.run("DELETE FROM item WHERE job=? AND key=?", job_, key);
    }
    void answered(std::uint64_t client, std::uint64_t id, std::string_view reply) override {
        db_.run("INSERT OR REPLACE INTO answer VALUES(?,?,?,?)", job_, client, id, reply);
    }
    void answer_forgotten(std::uint64_t client, std::uint64_t id) override {
        db_.run("DELETE FROM answer WHERE job=? AND client=? AND id=?", job_, client, id);
    }
    void answers_forgotten(std::uint64_t client, std::uint64_t id) override {
        const std::uint64_t last = std::min<std::uint64_t>(id, INT64_MAX);
        db_.run("DELETE FROM answer WHERE job=? AND client=? AND id<=?", job_, client, last);
    }
    void fence_completed(const Fenced& fenced) override {
        const Bytes frame = encode(fenced);
        db_.run("INSERT OR REPLACE INTO fence VALUES(?,?,?)", job_, std::string_view(fenced.name),
                payload_of(frame));
    }
    void completion_forgotten(std::string_view name) override {
        db_.run("DELETE FROM fence WHERE job=? AND name=?", job_, name);
    }
    void fence_failed(const Fenced& fenced) override {
        const Bytes frame = encode(fenced);
        db_.run("INSERT OR IGNORE INTO failure VALUES(?,?,?,?)", job_,
                std::string_view(fenced.name), fenced.round, payload_of(frame));
    }
    void failure_forgotten(std::string_view name, std::uint64_t round) override {
        db_.run("DELETE FROM failure WHERE job=? AND name=? AND round=?", job_, name, round);
    }
    void group_ended(const GroupFences::Key& key, const GroupFences::End& end) override {
        const auto& [group, name, round] = key;
        const Bytes frame = encode(end.fenced);
        Bytes clients;
        PackWriter out(clients);
        out.array(static_cast<std::uint32_t>(end.clients.size()));
        for (const std::uint64_t client : end.clients) out.uint(client);
        db_.run("INSERT OR REPLACE INTO group_fence VALUES(?,?,?,?,?,?)", job_,
                std::string_view(group), std::string_view(name), round, payload_of(frame),
                std::string_view(clients));
    }
    void group_forgotten(const GroupFences::Key& key) override {
        const auto& [group, name, round] = key;
        db_.run("DELETE FROM group_fence WHERE job=? AND name=? AND fence=? AND round=?", job_,
                std::string_view(group), std::string_view(name), round);
    }
    void began(std::uint64_t) override { db_.forget_generation(job_); }

private:
    StateDb& db_;
    JobId job_;
};

Result<std::unique_ptr<StateDb>> StateDb::open(const std::string& directory) {
    if (::mkdir(directory.c_str(), 0700) == 0)
        sync_parent(directory);
    else if (errno != EEXIST)
        return fail(Errc::denied, "{}: {}", directory, strerror(errno));
    if (const auto ours = check_owner(directory); !ours) return std::unexpected(ours.error());
    const std::string path = directory + "/state.db";
    sqlite3* db = nullptr;
    const mode_t before = ::umask(0077);
    const int opened = sqlite3_open_v2(
        path.c_str(), &db,
        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE,
        nullptr);
    ::umask(before);
    std::unique_ptr<StateDb> state(new StateDb(db, directory));
    if (opened != SQLITE_OK) return fail(Errc::denied, "{}: {}", path, sqlite3_errmsg(db));
    if (const auto done = state->prepare_schema(); !done) return fail(done.error(), "{}", path);
    return state;
}

StateDb::StateDb(sqlite3* db, std::string directory) : db_(db), directory_(std::move(directory)) {}

StateDb::~StateDb() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
    sqlite3_close(db_);
}

Result<void> StateDb::prepare_schema() {
    const auto execute = [this](const char* sql) {
        return sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) == SQLITE_OK;
    };
    // The lock is taken by the first read and kept: a second daemon must not write here.
    const bool ours = execute(
        "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL;"
        "PRAGMA synchronous=FULL; PRAGMA journal_size_limit=16777216; BEGIN IMMEDIATE; COMMIT;");
    if (!ours && (sqlite3_errcode(db_) & 0xff) == SQLITE_BUSY)
        return fail(Errc::denied, "another dtrun serve uses it");
    if (!ours) return fail(Errc::internal, "{}", sqlite3_errmsg(db_));
    int version = 0;
    query("PRAGMA user_version",
          [&](sqlite3_stmt* row) { version = static_cast<int>(number(row, 0)); });
    if (version > kVersion || version < 0)
        return fail(Errc::invalid_input, "its format is {}, this dtrun knows {}", version,
                    kVersion);
    std::string make = "BEGIN;";
    for (int later = version; later < kVersion; ++later)
        make += kVersions[static_cast<std::size_t>(later)];
    make += fmt::format("PRAGMA user_version={}; COMMIT;", kVersion);
    if (version < kVersion && !execute(make.c_str()))
        return fail(Errc::internal, "{}", sqlite3_errmsg(db_));
    return sync_log();
}

/// The log of a daemon that was killed may have changes that only the system's memory has, and a restart
/// tells of them: moves all to the file, which syncs both.
Result<void> StateDb::sync_log() {
    const int result =
        sqlite3_wal_checkpoint_v2(db_, nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
    // The log itself is synced first. What does not fit into the file stays in it.
    if (result == SQLITE_OK || is_out_of_space(result)) return {};
    return fail(Errc::internal, "{}", sqlite3_errmsg(db_));
}

/// Whether an operation has failed for want of room. SQLite itself knows ENOSPC, but no quotas.
bool StateDb::is_out_of_space(int result) const {
    if ((result & 0xff) == SQLITE_FULL) return true;
    if (result != SQLITE_IOERR_WRITE) return false;
    const int error = last_errno(db_);
    return error == ENOSPC || error == EDQUOT;
}

void StateDb::die(const char* what) {
    const int error = last_errno(db_);
    log::error("--state: {}: {}{}{}; ending, so that nothing is promised that is not kept", what,
               sqlite3_errmsg(db_), error != 0 ? ": " : "", error != 0 ? strerror(error) : "");
    if (SimulatedSystem::current != nullptr) SimulatedSystem::current->exit_process(1);
    ::_exit(1);
}

sqlite3_stmt* StateDb::statement(const char* sql) {
    const auto known = statements_.find(sql);
    if (known != statements_.end()) return known->second;
    sqlite3_stmt* made = nullptr;
    if (sqlite3_prepare_v3(db_, sql, -1, SQLITE_PREPARE_PERSISTENT, &made, nullptr) != SQLITE_OK)
        die(sql);
    return statements_[sql] = made;
}

template <class Row, class... Values>
void StateDb::query(const char* sql, Row row, const Values&... values) {
    sqlite3_stmt* prepared = statement(sql);
    [[maybe_unused]] int at = 0;
    (bind_value(prepared, ++at, values), ...);
    int result = 0;
    while ((result = sqlite3_step(prepared)) == SQLITE_ROW) row(prepared);
    if (result != SQLITE_DONE) die(sql);
    sqlite3_reset(prepared);
    sqlite3_clear_bindings(prepared);
}

template <class... Values>
void StateDb::run(const char* sql, const Values&... values) {
    const auto size_of = [](const auto& value) {
        if constexpr (requires { value.size(); })
            return value.size();
        else
            return sizeof value;
    };
    const std::size_t bytes = sizeof(Statement) + (std::size_t{0} + ... + size_of(values));
    batch_.statements.push_back({sql, {Value(to_value(values))...}});
    batch_.bytes += bytes;
    unwritten_bytes_ += bytes;
}

std::uint64_t StateDb::submit() {
    ++submitted_;
    const std::lock_guard lock(mutex_);
    if (batch_.statements.empty() && queue_.empty() && durable_ == submitted_ - 1) {
        durable_ = submitted_;  // there is nothing to write
        return submitted_;
    }
    if (queue_.empty()) queue_.emplace_back();
    // All waiting batches are merged, as they are written together anyway; else turns without a
    // change would pile up.
    Batch& waiting = queue_.back();
    waiting.number = submitted_;
    waiting.bytes += batch_.bytes;
    std::ranges::move(batch_.statements, std::back_inserter(waiting.statements));
    batch_ = Batch{};
    changed_.notify_all();
    if (thread_.joinable()) return submitted_;
    thread_ = Thread([this] { write_batches(); });
    return submitted_;
}

void StateDb::notify(std::function<void()> on_durable) {
    const std::lock_guard lock(mutex_);
    on_durable_ = std::move(on_durable);
}

void StateDb::commit() {
    const std::uint64_t number = submit();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return durable_ >= number; });
}

/// The writer thread: writes all batches submitted meanwhile as one transaction.
void StateDb::write_batches() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
        if (queue_.empty()) return;
        const std::deque<Batch> batches = std::exchange(queue_, {});
        lock.unlock();
        const bool written = write(batches);
        lock.lock();
        if (!written) return;  // the disk is full, and StateDb is being destroyed
        for (const Batch& batch : batches) unwritten_bytes_ -= batch.bytes;
        durable_ = batches.back().number;
        changed_.notify_all();
        if (on_durable_) on_durable_();
    }
}

/// \return false if the disk is full and StateDb is being destroyed
bool StateDb::write(const std::deque<Batch>& batches) {
    const auto try_once = [&] {
        writing_since_ = Clock::now();
        const bool written = try_write(batches);
        writing_since_ = kNotWriting;
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
bool StateDb::try_write(const std::deque<Batch>& batches) {
    const auto done = [this](const Statement& statement) {
        const int result = step(statement);
        if (result != SQLITE_DONE && !is_out_of_space(result)) die(statement.sql);
        return result == SQLITE_DONE;
    };
    const auto write_all = [&] {
        if (!done({"BEGIN", {}})) return false;
        for (const Batch& batch : batches)
            if (!std::ranges::all_of(batch.statements, done)) return false;
        return done({"COMMIT", {}});
    };
    if (!write_all()) {
        if (sqlite3_get_autocommit(db_) == 0) (void)step({"ROLLBACK", {}});
        return false;
    }
    query("PRAGMA freelist_count", [this](sqlite3_stmt* row) {
        constexpr std::uint64_t kPageBytes = 4'096;
        free_bytes_ = number(row, 0) * kPageBytes;
    });
    return true;
}

/// \return SQLite's code: SQLITE_DONE, or why it failed
int StateDb::step(const Statement& statement) {
    sqlite3_stmt* prepared = this->statement(statement.sql);
    int at = 0;
    for (const Value& value : statement.values)
        std::visit([&](const auto& one) { bind_value(prepared, ++at, one); }, value);
    const int result = sqlite3_step(prepared);
    sqlite3_reset(prepared);
    sqlite3_clear_bindings(prepared);
    return result;
}

bool StateDb::fits(std::size_t bytes) const {
    const auto free = free_on_disk(directory_);
    return !disk_full_ && free &&
           *free + free_bytes_ >= kCopies * (bytes + unwritten_bytes_) + kReserveBytes;
}

bool StateDb::is_behind() const {
    return unwritten_bytes_ > kUnwrittenBytesMax;
}

void StateDb::tell_of_disk() {
    const Deadline now = Clock::now();
    const Deadline since = writing_since_;
    if (told_slow_ && since != told_slow_) {
        log::warn("--state: {}: the disk has taken the changes", directory_);
        told_slow_.reset();
    }
    if (!told_slow_ && since != kNotWriting && now - since > kSlowWrite) {
        told_slow_ = since;
        log::warn("--state: {}: the disk has been writing for {}: answers wait until it is done",
                  directory_,
                  in_seconds(std::chrono::duration_cast<std::chrono::milliseconds>(now - since)));
    }
    const bool is_full = !disk_full_ && !fits(told_full_ ? kReserveBytes : 0);
    if (is_full == std::exchange(told_full_, is_full)) return;
    if (is_full)
        log::error("--state: {}: the disk is full: changes are refused until it has room",
                   directory_);
    else
        log::warn("--state: {}: the disk has room again", directory_);
}

std::unique_ptr<HubJournal> StateDb::journal(const JobId& job) {
    return std::make_unique<StateJournal>(*this, job);
}

void StateDb::save_job(const JobRecord& record) {
    const MembershipOptions& options = record.options;
    const auto ms = [](std::chrono::milliseconds span) {
        return static_cast<std::uint64_t>(span.count());
    };
    const Membership::State& state = record.membership;
    Recorded& recorded = recorded_[record.id];
    std::string job_row =
        fmt::format("{} {} {} {} {} {} {} {} {}", record.name, options.ranks_min, options.ranks_max,
                    ms(options.join_timeout), ms(options.last_call), ms(options.return_limit),
                    record.has_members, static_cast<int>(state.phase), state.generation);
    if (recorded.job != job_row) {
        recorded.job = std::move(job_row);
        run("INSERT OR REPLACE INTO job VALUES(?,?,?,?,?,?,?,?,?,?)", record.id,
            std::string_view(record.name), std::uint64_t(options.ranks_min),
            std::uint64_t(options.ranks_max), ms(options.join_timeout), ms(options.last_call),
            ms(options.return_limit), std::uint64_t(record.has_members),
            static_cast<std::uint64_t>(state.phase), state.generation);
    }
    save_policy(record);
    save_generation(record.id, state);
    std::erase_if(recorded.members, [&](const auto& row) {
        if (state.seats.contains(row.first)) return false;
        run("DELETE FROM member WHERE job=? AND member=?", record.id,
            std::to_underlying(row.first));
        return true;
    });
    for (const auto& [id, seat] : state.seats) {
        const Member& member = seat.member;
        Assign assignment;
        assignment.ranks = seat.ranks;
        assignment.node_rank = seat.node_rank;
        assignment.peers = member.addresses;
        const Bytes ranks = encode(assignment);
        std::string row =
            fmt::format("{} {} {} {} {} {} {} {}", member.name, member.slots, member.peer_address,
                        member.server_address, member.free_port, seat.order, seat.accepted, ranks);
        std::string& before = recorded.members[id];
        if (before == row) continue;
        before = std::move(row);
        run("INSERT OR REPLACE INTO member VALUES(?,?,?,?,?,?,?,?,?,?)", record.id,
            std::to_underlying(id), std::string_view(member.name), std::uint64_t(member.slots),
            std::string_view(member.peer_address), std::string_view(member.server_address),
            std::uint64_t(member.free_port), seat.order, seat.accepted, payload_of(ranks));
    }
}

/// Limits of the job beyond those in its row, as the frame in which its first member has sent them.
void StateDb::save_policy(const JobRecord& record) {
    const MembershipOptions& options = record.options;
    Enter enter;
    enter.allowed = options.allowed;
    enter.elastic_timeout_ms = to_ms(options.elastic_timeout);
    enter.resets_max = options.resets_max.value_or(Enter::kAny);
    enter.restarts_max = options.restarts_max.value_or(Enter::kAny);
    const Bytes frame = encode(enter);
    const std::uint64_t restarts = record.membership.restarts;
    std::string row = fmt::format("{} {}", restarts, frame);
    std::string& before = recorded_[record.id].policy;
    if (before == row) return;
    before = std::move(row);
    run("INSERT OR REPLACE INTO policy VALUES(?,?,?)", record.id, payload_of(frame), restarts);
}

void StateDb::save_generation(const JobId& job, const Membership::State& state) {
    const Bytes frame = encode(state.common);
    std::string row = fmt::format("{} {}", state.failure, frame);
    std::string& before = recorded_[job].generation;
    if (before == row) return;
    before = std::move(row);
    run("INSERT OR REPLACE INTO generation VALUES(?,?,?)", job, payload_of(frame),
        std::string_view(state.failure));
}

void StateDb::forget_generation(const JobId& job) {
    run("DELETE FROM value WHERE job=?", job);
    run("DELETE FROM item WHERE job=?", job);
    run("DELETE FROM answer WHERE job=?", job);
    run("DELETE FROM fence WHERE job=?", job);
    run("DELETE FROM failure WHERE job=?", job);
}

void StateDb::drop_job(const JobId& job) {
    forget_generation(job);
    run("DELETE FROM member WHERE job=?", job);
    run("DELETE FROM group_fence WHERE job=?", job);
    run("DELETE FROM generation WHERE job=?", job);
    run("DELETE FROM policy WHERE job=?", job);
    run("DELETE FROM job WHERE id=?", job);
    recorded_.erase(job);
}

std::vector<JobRecord> StateDb::jobs() {
    std::vector<JobRecord> records;
    query("SELECT * FROM job", [&](sqlite3_stmt* row) {
        JobRecord& record = records.emplace_back();
        const std::string id = text(row, 0);
        std::copy_n(id.begin(), std::min(id.size(), record.id.size()), record.id.begin());
        record.name = text(row, 1);
        record.options.ranks_min = static_cast<std::uint32_t>(number(row, 2));
        record.options.ranks_max = static_cast<std::uint32_t>(number(row, 3));
        record.options.join_timeout = milliseconds(row, 4);
        record.options.last_call = milliseconds(row, 5);
        record.options.return_limit = milliseconds(row, 6);
        record.has_members = number(row, 7) != 0;
        record.membership.phase = static_cast<Membership::Phase>(number(row, 8));
        record.membership.generation = number(row, 9);
    });
    for (JobRecord& record : records) {
        query(
            "SELECT member,name,slots,peer,server,port,ord,accepted,assignment FROM member "
            "WHERE job=?",
            [&](sqlite3_stmt* row) {
                Membership::Seat& seat = record.membership.seats[MemberId{number(row, 0)}];
                seat.member = {
                    text(row, 1), static_cast<std::uint32_t>(number(row, 2)), text(row, 3),
                    text(row, 4), static_cast<std::uint16_t>(number(row, 5)), {}};
                seat.order = number(row, 6);
                seat.accepted = number(row, 7);
                if (auto assignment = decode<Assign>(text(row, 8))) {
                    seat.ranks = std::move(assignment->ranks);
                    seat.node_rank = assignment->node_rank;
                    seat.member.addresses = std::move(assignment->peers);
                }
            },
            to_value(record.id));
        query(
            "SELECT frame,restarts FROM policy WHERE job=?",
            [&](sqlite3_stmt* row) {
                if (auto enter = decode<Enter>(text(row, 0))) {
                    MembershipOptions& options = record.options;
                    options.allowed = std::move(enter->allowed);
                    options.elastic_timeout = std::chrono::milliseconds(enter->elastic_timeout_ms);
                    if (enter->resets_max != Enter::kAny) options.resets_max = enter->resets_max;
                    if (enter->restarts_max != Enter::kAny)
                        options.restarts_max = enter->restarts_max;
                }
                record.membership.restarts = static_cast<std::uint32_t>(number(row, 1));
            },
            to_value(record.id));
        query(
            "SELECT frame,failure FROM generation WHERE job=?",
            [&](sqlite3_stmt* row) {
                if (auto common = decode<Assign>(text(row, 0)))
                    record.membership.common = std::move(*common);
                record.membership.failure = text(row, 1);
            },
            to_value(record.id));
        // Empty rows to compare with: the next save_job() writes all members again.
        for (const auto& [member, seat] : record.membership.seats)
            recorded_[record.id].members[member];
    }
    return records;
}

void StateDb::restore(const JobId& id, Hub& hub, Deadline now) {
    const std::string job = to_value(id);
    query(
        "SELECT key,value,revision FROM value WHERE job=?",
        [&](sqlite3_stmt* row) {
            hub.restore_store().restore_value(text(row, 0), text(row, 1), number(row, 2));
        },
        job);
    query(
        "SELECT key,item,value,revision FROM item WHERE job=? ORDER BY key,item",
        [&](sqlite3_stmt* row) {
            hub.restore_store().restore_item(text(row, 0), number(row, 1), text(row, 2),
                                             number(row, 3));
        },
        job);
    query(
        "SELECT client,id,reply FROM answer WHERE job=? ORDER BY rowid",
        [&](sqlite3_stmt* row) {
            hub.restore_answer(number(row, 0), number(row, 1), text(row, 2), now);
        },
        job);
    const auto fence = [&](sqlite3_stmt* row) {
        if (auto fenced = decode<Fenced>(text(row, 0))) hub.restore_fence(std::move(*fenced));
    };
    query("SELECT frame FROM fence WHERE job=? ORDER BY rowid", fence, job);
    query("SELECT frame FROM failure WHERE job=? ORDER BY rowid", fence, job);
    const auto group = [&](sqlite3_stmt* row) {
        auto fenced = decode<Fenced>(text(row, 3));
        if (!fenced) return;
        GroupFences::End end{std::move(*fenced), {}};
        const std::string clients = text(row, 4);
        PackReader in(clients);
        for (std::uint32_t left = in.array(); in.ok() && left > 0; --left)
            end.clients.insert(in.uint());
        hub.restore_group({text(row, 0), text(row, 1), number(row, 2)}, std::move(end));
    };
    query("SELECT name,fence,round,frame,clients FROM group_fence WHERE job=? ORDER BY rowid",
          group, job);
}

}  // namespace dtrun
