#include "rendezvous/daemon/state_backup.h"

#include "base/fd.h"
#include "rendezvous/daemon/state_db.h"
#include "rendezvous/daemon/state_files.h"
#include "rendezvous/daemon/state_format.h"

#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

namespace dtrun {
namespace {

namespace fs = std::filesystem;
using OpenDb = std::unique_ptr<sqlite3, decltype(&sqlite3_close)>;

constexpr int kBusyMs = 10'000;  // of a daemon that opens or closes its file
constexpr std::chrono::minutes kCloseLimit{10};

Result<OpenDb> open_db(const std::string& path, int flags) {
    sqlite3* opened = nullptr;
    const mode_t before = ::umask(0077);
    const int result = sqlite3_open_v2(path.c_str(), &opened, flags | SQLITE_OPEN_NOMUTEX, nullptr);
    ::umask(before);
    OpenDb db(opened, &sqlite3_close);
    if (result != SQLITE_OK) return fail(Errc::internal, "{}: {}", path, sqlite3_errmsg(opened));
    sqlite3_busy_timeout(opened, kBusyMs);
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

Result<void> rename_file(const std::string& from, const std::string& to) {
    if (::rename(from.c_str(), to.c_str()) == 0) return {};
    return fail(Errc::internal, "{}: {}", to, strerror(errno));
}

/// Copies a backup, or the files of a state directory, to an empty directory.
Result<void> copy_state(const std::string& from, const std::string& to) {
    std::error_code error;
    if (!fs::is_directory(from)) {
        fs::copy_file(from, to + "/state.db", error);
        if (error) return fail(Errc::invalid_input, "{}: {}", from, error.message());
        return {};
    }
    const auto lock = lock_state(from);
    if (!lock) return fail(lock.error(), "use --backup");
    for (const char* const part : {"state.db", "state.db-wal", "last-commit"}) {
        const std::string file = fmt::format("{}/{}", from, part);
        const bool is_needed = std::string_view(part) == "state.db";
        if (!is_needed && !fs::exists(file)) continue;
        fs::copy_file(file, fmt::format("{}/{}", to, part), error);
        if (error) return fail(Errc::invalid_input, "{}: {}", file, error.message());
    }
    return {};
}

/// Reads all of a state, and leaves in it what is whole.
Result<RestoredState> check_state(const std::string& directory) {
    auto db = StateDb::open(directory);
    if (!db) return std::unexpected(db.error());
    RestoredState found;
    for (SavedJob& job : (*db)->jobs()) found.jobs.push_back(std::move(job.name));
    found.damaged = (*db)->damaged();
    if (!(*db)->stop(after(kCloseLimit)))
        return fail(Errc::internal, "{}: the disk is full, or does not answer", directory);
    return found;
}

/// Moves a state aside, the log first: a file without it is told as one that is too old.
Result<std::string> move_aside(const std::string& directory) {
    std::string replaced;
    for (const std::string log : {"-wal", ""}) {
        const std::string file = directory + "/state.db" + log;
        replaced = directory + "/state.db.replaced" + log;
        std::error_code error;
        fs::remove(replaced, error);
        if (!fs::exists(file)) continue;
        if (auto done = rename_file(file, replaced); !done) return std::unexpected(done.error());
    }
    return replaced;
}

Result<RestoredState> restore_into(const Fd& last_commit, const std::string& from,
                                   const std::string& directory, const std::string& work) {
    if (auto copied = copy_state(from, work); !copied) return std::unexpected(copied.error());
    auto restored = check_state(work);
    if (!restored) return restored;
    if (fs::exists(directory + "/state.db")) {
        auto replaced = move_aside(directory);
        if (!replaced) return std::unexpected(replaced.error());
        restored->replaced = *replaced;
    }
    if (auto done = rename_file(work + "/state.db", directory + "/state.db"); !done)
        return std::unexpected(done.error());
    // Its number was that of the state before.
    if (::ftruncate(last_commit.get(), 0) != 0)
        return fail(Errc::internal, "{}: {}", directory, strerror(errno));
    sync_parent(directory + "/state.db");
    return restored;
}

}  // namespace

Result<std::vector<DamagedJob>> back_up_state(const std::string& directory,
                                              const std::string& file) {
    const auto state = open_db(directory + "/state.db", SQLITE_OPEN_READWRITE);
    if (!state) return std::unexpected(state.error());
    // To close it is no reason to bring the log of a daemon that was killed into the file.
    sqlite3_db_config(state->get(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
    const std::string made = file + ".new";
    std::error_code error;
    fs::remove(made, error);
    std::vector<DamagedJob> damaged;
    {
        const auto copy = open_db(made, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
        if (!copy) return std::unexpected(copy.error());
        if (copy_pages(state->get(), copy->get()) != SQLITE_OK)
            return fail(Errc::internal, "{}: {}", made, sqlite3_errmsg(copy->get()));
        const auto format = format_of(copy->get(), made);
        if (!format) return std::unexpected(format.error());
        if (*format == state_format()) {
            add_sum_function(copy->get());
            auto damage = look_for_damage(copy->get());
            if (!damage) return fail(damage.error(), "{}", directory);
            damaged = std::move(damage->jobs);
        }
    }
    if (auto done = rename_file(made, file); !done) return std::unexpected(done.error());
    sync_parent(file);
    return damaged;
}

Result<RestoredState> restore_state(const std::string& from, const std::string& directory,
                                    bool replaces) {
    if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
        return fail(Errc::denied, "{}: {}", directory, strerror(errno));
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
