#include "rendezvous/daemon/state_damage.h"

#include "base/strings.h"
#include "base/text_layout.h"
#include "rendezvous/daemon/state_format.h"
#include "rendezvous/wire/job_key.h"

#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

namespace dtrun {
namespace {

using OpenDb = std::unique_ptr<sqlite3, decltype(&sqlite3_close)>;

std::string_view blob(sqlite3_stmt* row, int column) {
    const void* const bytes = sqlite3_column_blob(row, column);
    const auto size = static_cast<std::size_t>(sqlite3_column_bytes(row, column));
    return bytes != nullptr ? std::string_view(static_cast<const char*>(bytes), size)
                            : std::string_view();
}

JobId job_id(std::string_view bytes) {
    JobId id{};
    std::copy_n(bytes.begin(), std::min(bytes.size(), id.size()), id.begin());
    return id;
}

/// Statements, some of which are used for each job.
class Reader {
public:
    explicit Reader(sqlite3* db) : db_(db) {}
    ~Reader() {
        for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
    }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

    using Row = std::function<void(sqlite3_stmt*)>;
    /// \param values  blobs, one for each parameter \return SQLite's code: SQLITE_DONE, or why it failed
    int run(const std::string& sql, std::initializer_list<std::string_view> values,
            const Row& row = {}) {
        sqlite3_stmt*& statement = statements_[sql];
        if (statement == nullptr)
            if (const int made = sqlite3_prepare_v2(db_, sql.c_str(), -1, &statement, nullptr);
                made != SQLITE_OK) {
                look_at_failure();
                return made;
            }
        int at = 0;
        for (const std::string_view value : values)
            sqlite3_bind_blob64(statement, ++at, value.data() != nullptr ? value.data() : "",
                                value.size(), SQLITE_STATIC);
        int result = 0;
        while ((result = sqlite3_step(statement)) == SQLITE_ROW)
            if (row) row(statement);
        if (result != SQLITE_DONE) look_at_failure();
        sqlite3_reset(statement);
        return result;
    }
    sqlite3* db() const { return db_; }
    /// What was in the way that is no damage; empty: nothing.
    const std::string& hindrance() const { return hindrance_; }
    std::string message() const { return sqlite3_errmsg(db_); }

private:
    void look_at_failure() {
        if (!is_damage(sqlite3_extended_errcode(db_))) hindrance_ = message();
    }

    sqlite3* db_;
    std::string hindrance_;
    std::map<std::string, sqlite3_stmt*, std::less<>> statements_;
};

std::string_view bytes_of(const JobId& id) {
    return {reinterpret_cast<const char*>(id.data()), id.size()};
}

std::string name_of(Reader& reader, const JobId& id) {
    std::string name;
    (void)reader.run("SELECT name FROM job WHERE id=?", {bytes_of(id)},
                     [&](sqlite3_stmt* row) { name = blob(row, 0); });
    return job_id_of(name) == id ? name : "";
}

/// What a row is called, where users have named it.
std::string row_name(Reader& reader, const StateTable& table, const JobId& id) {
    std::string key;
    if (table.name == "value" || table.name == "item")
        (void)reader.run(fmt::format("SELECT key FROM {} WHERE job=? AND sum IS NOT sum_of({})",
                                     table.name, table.columns),
                         {bytes_of(id)}, [&](sqlite3_stmt* row) { key = blob(row, 0); });
    return key.empty() ? fmt::format("a row of its table \"{}\"", table.name)
                       : fmt::format("key \"{}\"", escaped(key));
}

/// Whether no row can have vanished from a table, as far as its pages tell.
bool is_sound(Reader& reader, const StateTable& table) {
    std::string found;
    const auto take = [&](sqlite3_stmt* row) { found = blob(row, 0); };
    const std::string sql = fmt::format("PRAGMA quick_check({})", table.name);
    return reader.run(sql, {}, take) == SQLITE_DONE && found == "ok";
}

/// What is wrong with a job; empty: nothing.
std::string damage_of(Reader& reader, const JobId& id) {
    std::int64_t number = 0, sum = 0, jobs = 0;
    for (const StateTable& table : state_tables()) {
        std::int64_t wrong = 0;
        const auto add = [&](sqlite3_stmt* row) {
            if (table.name == "job") jobs = sqlite3_column_int64(row, 0);
            number += sqlite3_column_int64(row, 0);
            sum += sqlite3_column_int64(row, 1);
            wrong = sqlite3_column_int64(row, 2);
        };
        const std::string sql =
            fmt::format("SELECT count(*),sum(sum),sum(sum IS NOT sum_of({2})) FROM {0} WHERE {1}=?",
                        table.name, table.job, table.columns);
        if (reader.run(sql, {bytes_of(id)}, add) != SQLITE_DONE)
            return fmt::format("its table \"{}\" cannot be read: {}", table.name, reader.message());
        if (wrong != 0) return fmt::format("{} is not as it was", row_name(reader, table, id));
    }
    std::optional<std::pair<std::int64_t, std::int64_t>> total;
    const auto take = [&](sqlite3_stmt* row) {
        total.emplace(sqlite3_column_int64(row, 0), sqlite3_column_int64(row, 1));
    };
    if (reader.run("SELECT number,sum FROM total WHERE job=?", {bytes_of(id)}, take) !=
        SQLITE_DONE) {
        std::string why = fmt::format("its number of rows cannot be read: {}", reader.message());
        // Then the numbers are the damage, of many jobs; all rows are as they were.
        const auto sound = [&](const StateTable& table) { return is_sound(reader, table); };
        return jobs == 1 && std::ranges::all_of(state_tables(), sound) ? "" : why;
    }
    if (!total) return "its number of rows is lost";
    if (jobs != 1) return "its name is lost";
    if (number != total->first)
        return fmt::format("it has {}, of {}",
                           plural(static_cast<unsigned long long>(number), "row"), total->first);
    return sum == total->second ? "" : "rows of it are not those that were last written";
}

/// All jobs of which something tells.
std::optional<std::set<JobId>> all_jobs(Reader& reader) {
    std::set<JobId> jobs;
    const auto add = [&](sqlite3_stmt* row) { jobs.insert(job_id(blob(row, 0))); };
    const bool has_names = reader.run("SELECT id FROM job", {}, add) == SQLITE_DONE;
    const bool has_totals = reader.run("SELECT job FROM total", {}, add) == SQLITE_DONE;
    if (!has_names && !has_totals) return std::nullopt;
    return jobs;
}

/// An empty state; a file of that name is removed.
Result<OpenDb> open_new(const std::string& path) {
    sqlite3_vfs* const files = sqlite3_vfs_find(nullptr);
    (void)files->xDelete(files, path.c_str(), 0);
    sqlite3* made = nullptr;
    const mode_t before = ::umask(0077);
    const int opened =
        sqlite3_open_v2(path.c_str(), &made,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
    ::umask(before);
    OpenDb db(made, &sqlite3_close);
    if (opened != SQLITE_OK) return fail(Errc::internal, "{}: {}", path, sqlite3_errmsg(made));
    (void)sqlite3_exec(made, "PRAGMA auto_vacuum=INCREMENTAL", nullptr, nullptr, nullptr);
    return db;
}

/// What jobs have is enough to go on without.
constexpr const char* kCopyIfReadable[] = {
    "INSERT OR REPLACE INTO whole.reserved SELECT * FROM main.reserved",
    "INSERT OR REPLACE INTO whole.served SELECT * FROM main.served",
};

/// Copies to the attached database "whole".
int copy_jobs(Reader& reader, const StateDamage& damage, std::uint64_t commits) {
    const std::vector<DamagedJob> before =
        jobs_marked_damaged(reader.db());  // as far as it is read
    int result = reader.run("BEGIN", {});
    if (result == SQLITE_DONE)
        result = reader.run(fmt::format("UPDATE whole.commits SET number={}", commits), {});
    for (const JobId& id : damage.whole)
        for (const StateTable& table : state_tables())
            if (result == SQLITE_DONE)
                result = reader.run(fmt::format("INSERT INTO whole.{0} SELECT * FROM main.{0} "
                                                "WHERE {1}=? ORDER BY rowid",
                                                table.name, table.job),
                                    {bytes_of(id)});
    for (const auto* const jobs : {&before, &damage.jobs})
        for (const DamagedJob& job : *jobs)
            if (result == SQLITE_DONE)
                result = reader.run("INSERT OR REPLACE INTO whole.damaged VALUES(?,?,?)",
                                    {bytes_of(job.id), job.name, job.why});
    if (result == SQLITE_DONE) result = reader.run("COMMIT", {});
    if (sqlite3_get_autocommit(reader.db()) == 0) (void)reader.run("ROLLBACK", {});
    // Where these cannot be read SQLite takes back all that is done together with it.
    for (const char* const sql : kCopyIfReadable)
        if (result == SQLITE_DONE) (void)reader.run(sql, {});
    return result;
}

}  // namespace

bool is_damage(int code) {
    static constexpr int kNone[] = {SQLITE_NOMEM,     SQLITE_BUSY,     SQLITE_LOCKED,  SQLITE_FULL,
                                    SQLITE_INTERRUPT, SQLITE_CANTOPEN, SQLITE_READONLY};
    if ((code & 0xff) == SQLITE_IOERR)
        return code == SQLITE_IOERR_READ || code == SQLITE_IOERR_SHORT_READ;
    return std::ranges::find(kNone, code & 0xff) == std::end(kNone);
}

Result<StateDamage> look_for_damage(sqlite3* db) {
    Reader reader(db);
    const auto ids = all_jobs(reader);
    if (!ids) return fail(Errc::internal, "{}", reader.message());
    StateDamage damage;
    for (const JobId& id : *ids) {
        std::string why = damage_of(reader, id);
        if (why.empty())
            damage.whole.push_back(id);
        else
            damage.jobs.push_back({id, name_of(reader, id), std::move(why)});
    }
    const auto structure = check_structure(db);
    if (!structure) return structure;
    damage.structure = structure->structure;
    if (!reader.hindrance().empty()) return fail(Errc::internal, "{}", reader.hindrance());
    return damage;
}

Result<StateDamage> check_structure(sqlite3* db) {
    Reader reader(db);
    StateDamage damage;
    const auto take = [&](sqlite3_stmt* row) { damage.structure = blob(row, 0); };
    if (reader.run("PRAGMA quick_check(1)", {}, take) != SQLITE_DONE)
        damage.structure = reader.message();
    if (!reader.hindrance().empty()) return fail(Errc::internal, "{}", reader.hindrance());
    if (damage.structure == "ok") damage.structure.clear();
    return damage;
}

std::vector<DamagedJob> jobs_marked_damaged(sqlite3* db) {
    Reader reader(db);
    std::vector<DamagedJob> jobs;
    (void)reader.run("SELECT job,name,why FROM damaged", {}, [&](sqlite3_stmt* row) {
        jobs.push_back(
            {job_id(blob(row, 0)), std::string(blob(row, 1)), std::string(blob(row, 2))});
    });
    return jobs;
}

Result<void> copy_what_is_whole(sqlite3* db, const std::string& path, const StateDamage& damage,
                                std::uint64_t commits) {
    const auto failed = [](sqlite3* which) {
        return fail(Errc::internal, "what is whole cannot be saved: {}", sqlite3_errmsg(which));
    };
    const auto whole = open_new(path);
    if (!whole) return std::unexpected(whole.error());
    add_sum_function(whole->get());
    if (raise_format(whole->get(), 0) != SQLITE_OK) return failed(whole->get());
    {
        Reader reader(db);
        if (reader.run("ATTACH ? AS whole", {path}) != SQLITE_DONE) return failed(db);
        if (copy_jobs(reader, damage, commits) != SQLITE_DONE) return failed(db);
    }
    if (sqlite3_exec(db, "DETACH whole", nullptr, nullptr, nullptr) != SQLITE_OK) return failed(db);
    return {};
}

}  // namespace dtrun
