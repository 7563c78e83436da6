#include "rendezvous/daemon/state_backup.h"

#include "base/fd.h"
#include "rendezvous/daemon/state_db.h"
#include "rendezvous/daemon/state_files.h"
#include "rendezvous/daemon/state_format.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

namespace dtrun {
namespace {

namespace fs = std::filesystem;
using OpenDb = std::unique_ptr<sqlite3, decltype(&sqlite3_close)>;

constexpr std::chrono::minutes kCloseLimit{10};

Result<OpenDb> open_db(const std::string& path, int flags) {
    sqlite3* opened = nullptr;
    const mode_t before = ::umask(0077);
    const int result = sqlite3_open_v2(path.c_str(), &opened, flags | SQLITE_OPEN_NOMUTEX, nullptr);
    ::umask(before);
    OpenDb db(opened, &sqlite3_close);
    if (result != SQLITE_OK) return fail(Errc::internal, "{}: {}", path, sqlite3_errmsg(opened));
    return db;
}

Result<int> format_of(sqlite3* db, const std::string& path) {
    sqlite3_stmt* statement = nullptr;
    const char* const sql = "PRAGMA user_version";
    const bool is_read = sqlite3_prepare_v2(db, sql, -1, &statement, nullptr) == SQLITE_OK &&
                         sqlite3_step(statement) == SQLITE_ROW;
    const int format = is_read ? sqlite3_column_int(statement, 0) : 0;
    sqlite3_finalize(statement);
    if (!is_read) return fail(Errc::internal, "{}: {}", path, sqlite3_errmsg(db));
    return format;
}

Result<void> copy_private(const std::string& from, const std::string& to) {
    std::error_code error;
    fs::copy_file(from, to, fs::copy_options::overwrite_existing, error);
    if (!error) fs::permissions(to, fs::perms{0600}, error);
    if (error) return fail(Errc::invalid_input, "{}: {}", from, error.message());
    return {};
}

/// What is another one when the log of a state has begun anew: its header, or, while it is empty, when the file was
/// written.
std::string log_stamp(const std::string& file) {
    std::string header(32, '\0');
    const Fd log(::open((file + "-wal").c_str(), O_RDONLY | O_CLOEXEC));
    const ssize_t size = log ? ::read(log.get(), header.data(), header.size()) : 0;
    if (size > 0) return header;
    struct stat found {};
    if (::stat(file.c_str(), &found) != 0) return "";
    return fmt::format("{} {}.{}", found.st_size, found.st_mtim.tv_sec, found.st_mtim.tv_nsec);
}

/// Copies the file of a state and its log while a daemon writes to them. What is brought from the log into the file stays
/// in the log until that begins anew: if it has not, the log that was copied last mends what was copied half.
Result<void> copy_while_written(const std::string& file, const std::string& made) {
    constexpr int kAttempts = 100;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        const std::string before = log_stamp(file);
        if (auto done = copy_private(file, made); !done) return done;
        std::error_code error;
        fs::remove(made + "-wal", error);
        if (fs::exists(file + "-wal"))
            if (auto done = copy_private(file + "-wal", made + "-wal"); !done) return done;
        if (log_stamp(file) == before) return {};
    }
    return fail(Errc::internal, "{}: it changes faster than it can be copied", file);
}

/// Brings the log into the file, which is all there is then.
Result<void> end_log(sqlite3* db, const std::string& path) {
    const char* const sql = "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=DELETE";
    if (sqlite3_exec(db, sql, nullptr, nullptr, nullptr) == SQLITE_OK && !fs::exists(path + "-wal"))
        return {};
    return fail(Errc::internal, "{}: {}", path, sqlite3_errmsg(db));
}

/// Copies a backup, or the file of a state, with its log, to an empty directory.
Result<void> copy_state(const std::string& from, const std::string& to) {
    fs::path file = from;
    if (fs::is_directory(file)) file /= "state.db";
    const bool is_state = file.filename() == "state.db";
    const std::string directory = file.has_parent_path() ? file.parent_path().string() : ".";
    Result<Fd> lock = Fd();
    if (is_state && fs::exists(directory + "/last-commit")) lock = lock_state(directory);
    if (!lock) return fail(lock.error(), "use --backup");
    if (auto done = copy_private(file.string(), to + "/state.db"); !done) return done;
    const std::string log = file.string() + "-wal";
    if (fs::exists(log))
        if (auto done = copy_private(log, to + "/state.db-wal"); !done) return done;
    if (!*lock) return {};
    return copy_private(directory + "/last-commit", to + "/last-commit");
}

/// Reads all of a state, and leaves in it what is whole.
Result<RestoredState> check_state(const std::string& directory) {
    auto db = StateDb::open(directory, StateDb::Use::to_copy);
    if (!db) return std::unexpected(db.error());
    RestoredState found;
    for (SavedJob& job : (*db)->jobs()) found.jobs.push_back(std::move(job.name));
    found.damaged = (*db)->damaged();
    if (!(*db)->stop(after(kCloseLimit)))
        return fail(Errc::internal, "{}: the disk is full, or does not answer", directory);
    return found;
}

/// A name that no file has yet.
std::string free_name(const std::string& name) {
    std::string free = name;
    for (int more = 2; fs::exists(free) || fs::exists(free + "-wal"); ++more)
        free = fmt::format("{}-{}", name, more);
    return free;
}

/// Root restores for the user to whom the directory belongs.
Result<void> give_to_owner(const std::string& directory, const std::string& file,
                           const Fd& last_commit) {
    struct stat found {};
    if (::geteuid() != 0 || ::stat(directory.c_str(), &found) != 0) return {};
    if (::chown(file.c_str(), found.st_uid, found.st_gid) == 0 &&
        ::fchown(last_commit.get(), found.st_uid, found.st_gid) == 0)
        return {};
    return fail(Errc::internal, "{}: {}", file, strerror(errno));
}

Result<RestoredState> restore_into(const Fd& last_commit, const std::string& from,
                                   const std::string& directory, const std::string& work) {
    const std::string made = work + "/state.db";
    if (auto copied = copy_state(from, work); !copied) return std::unexpected(copied.error());
    auto restored = check_state(work);
    if (!restored) return restored;
    std::error_code error;
    if (fs::exists(made + "-wal") && fs::file_size(made + "-wal", error) > 0)
        return fail(Errc::internal, "{}: its log does not fit into its file: is the disk full?",
                    made);
    if (auto done = give_to_owner(directory, made, last_commit); !done)
        return std::unexpected(done.error());
    const std::string file = directory + "/state.db", aside = free_name(file + ".replaced");
    if (fs::exists(file)) restored->replaced = aside;
    if (auto done = replace_database(file, made, aside); !done)
        return std::unexpected(done.error());
    // Its number was that of the state before.
    if (::ftruncate(last_commit.get(), 0) != 0)
        return fail(Errc::internal, "{}: {}", directory, strerror(errno));
    return restored;
}

Result<StateBackup> copy_and_check(const std::string& directory, const std::string& made) {
    if (auto done = copy_while_written(directory + "/state.db", made); !done)
        return std::unexpected(done.error());
    const auto copy = open_db(made, SQLITE_OPEN_READWRITE);
    if (!copy) return std::unexpected(copy.error());
    if (auto done = end_log(copy->get(), made); !done) return std::unexpected(done.error());
    const auto format = format_of(copy->get(), made);
    if (!format) return std::unexpected(format.error());
    StateBackup backup;
    backup.has_sums = *format == state_format();
    add_sum_function(copy->get());
    auto damage = backup.has_sums ? look_for_damage(copy->get()) : check_structure(copy->get());
    if (!damage) return fail(damage.error(), "{}", directory);
    backup.damage = std::move(*damage);
    for (DamagedJob& job : jobs_marked_damaged(copy->get()))
        backup.damage.jobs.push_back(std::move(job));
    return backup;
}

/// Whether a file is one of a state itself.
bool is_of_state(const fs::path& file, const std::string& directory) {
    std::error_code error;
    const fs::path parent = file.has_parent_path() ? file.parent_path() : fs::path(".");
    const std::string name = file.filename().string();
    return fs::equivalent(parent, directory, error) &&
           (name.starts_with("state.db") || name == "last-commit");
}

}  // namespace

Result<StateBackup> back_up_state(const std::string& directory, const std::string& file) {
    if (is_of_state(file, directory))
        return fail(Errc::invalid_input, "{} is a file of the state itself", file);
    std::string made = file + ".XXXXXX";
    if (!Fd(::mkostemp(made.data(), O_CLOEXEC)))
        return fail(Errc::denied, "{}: {}", file, strerror(errno));
    auto backup = copy_and_check(directory, made);
    if (backup) {
        const bool is_whole = !backup->damage.is_any();
        backup->file = is_whole ? file : file + ".damaged";
        if (auto done = rename_file(made, backup->file); !done)
            backup = std::unexpected(done.error());
        sync_parent(file);
    }
    std::error_code error;
    if (!backup) fs::remove(made, error);
    fs::remove(made + "-wal", error);
    return backup;
}

Result<RestoredState> restore_state(const std::string& from, const std::string& directory,
                                    bool replaces) {
    if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
        return fail(Errc::denied, "{}: {}", directory, strerror(errno));
    if (const auto ours = check_owner(directory); ::geteuid() != 0 && !ours)
        return std::unexpected(ours.error());
    const auto lock = lock_state(directory);
    if (!lock) return std::unexpected(lock.error());
    if (!replaces && fs::exists(directory + "/state.db"))
        return fail(Errc::invalid_input,
                    "{} has a state already; --replace moves it to state.db.replaced", directory);
    const std::string work = directory + "/restoring";
    std::error_code error;
    fs::remove_all(work, error);
    if (::mkdir(work.c_str(), 0700) != 0)
        return fail(Errc::denied, "{}: {}", work, strerror(errno));
    auto restored = restore_into(*lock, from, directory, work);
    fs::remove_all(work, error);
    return restored;
}

}  // namespace dtrun
