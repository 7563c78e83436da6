// Copies of a daemon's state, and how it becomes smaller again.

#include "base/log.h"
#include "rendezvous/daemon/state_backup.h"
#include "rendezvous/daemon/state_db.h"
#include "rendezvous/wire/job_key.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <sqlite3.h>
#include <chrono>
#include <filesystem>
#include <thread>

namespace dtrun {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<StateDb> open_state(const std::string& directory) {
    auto db = StateDb::open(directory);
    if (!db) FAIL(db.error().message);
    return std::move(*db);
}

void add_job(StateDb& db, const std::string& name) {
    SavedJob record;
    record.id = job_id_of(name);
    record.name = name;
    db.save_job(record);
    db.journal(record.id)->value_set("key", "of " + name, {.revision = 1});
    db.commit();
}

std::vector<std::string> jobs_of(const std::string& directory) {
    std::vector<std::string> names;
    for (const SavedJob& job : open_state(directory)->jobs()) names.push_back(job.name);
    std::ranges::sort(names);
    return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a state is copied while its daemon writes to it, and restored", "[daemon]") {
    log::set_sink([](void*, std::string_view) {}, nullptr);
    const TempDir directory;
    const std::string state = directory.path() + "/state", backup = directory.path() + "/backup";
    const auto db = open_state(state);
    add_job(*db, "one");
    REQUIRE(back_up_state(state, backup)->file == backup);
    add_job(*db, "two");
    CHECK(fs::status(backup).permissions() == fs::perms{0600});

    const std::string elsewhere = directory.path() + "/elsewhere";
    CHECK(restore_state(backup, elsewhere, false)->jobs == Names{"one"});
    std::string told;
    log::set_sink([](void* all, std::string_view line) { *static_cast<std::string*>(all) += line; },
                  &told);
    CHECK(jobs_of(elsewhere) == Names{"one"});
    CHECK_THAT(told, Catch::Contains("it is a copy, or a backup that was put in its place"));
    log::set_sink([](void*, std::string_view) {}, nullptr);
    REQUIRE(back_up_state(state, backup)->file == backup);  // in place of the one before
    const auto refused = restore_state(backup, elsewhere, false);
    REQUIRE_FALSE(refused.has_value());
    CHECK_THAT(refused.error().message, Catch::Contains("has a state already; --replace moves it"));
    CHECK(jobs_of(elsewhere) == Names{"one"});
    const auto replaced = restore_state(backup, elsewhere, true);
    REQUIRE(replaced.has_value());
    CHECK(replaced->jobs.size() == 2);
    CHECK(replaced->replaced == elsewhere + "/state.db.replaced");
    CHECK(jobs_of(elsewhere) == Names{"one", "two"});

    // Neither end of it is one that a daemon uses.
    CHECK_FALSE(restore_state(backup, state, true).has_value());
    const auto used = restore_state(state, elsewhere, true);
    REQUIRE_FALSE(used.has_value());
    CHECK_THAT(used.error().message, Catch::Contains("another dtrun serve uses it"));
    CHECK_FALSE(restore_state(directory.path() + "/nothing", elsewhere, true).has_value());
    CHECK(jobs_of(elsewhere) == Names{"one", "two"});
    log::set_sink(nullptr, nullptr);
}

TEST_CASE("what is whole of a damaged state is restored, and the rest is listed", "[daemon]") {
    log::set_sink([](void*, std::string_view) {}, nullptr);
    const TempDir directory;
    const std::string state = directory.path() + "/state", other = directory.path() + "/other";
    {
        const auto db = open_state(state);
        add_job(*db, "one");
        add_job(*db, "two");
    }
    sqlite3* file = nullptr;
    REQUIRE(sqlite3_open((state + "/state.db").c_str(), &file) == SQLITE_OK);
    REQUIRE(sqlite3_exec(file, "UPDATE value SET value=x'00' WHERE value=CAST('of one' AS BLOB)",
                         nullptr, nullptr, nullptr) == SQLITE_OK);
    sqlite3_close(file);

    const std::string backup = directory.path() + "/backup";
    const auto damaged = back_up_state(state, backup);
    REQUIRE(damaged.has_value());
    REQUIRE(damaged->damage.jobs.size() == 1);
    CHECK(damaged->damage.jobs.front().name == "one");
    CHECK(damaged->file == backup + ".damaged");  // the last good one is kept
    CHECK_FALSE(fs::exists(backup));
    CHECK_FALSE(back_up_state(state, state + "/state.db").has_value());
    const auto restored = restore_state(state, other, false);
    REQUIRE(restored.has_value());
    CHECK(restored->jobs == Names{"two"});
    REQUIRE(restored->damaged.size() == 1);
    CHECK(restored->damaged.front().name == "one");
    CHECK_FALSE(fs::exists(other + "/restoring"));
    CHECK(back_up_state(other, backup)->damage.jobs.size() == 1);  // until it is dropped

    // What was replaced is kept, and is no worse than what it is restored from.
    {
        const auto db = open_state(other);
        add_job(*db, "three");
        fs::copy(other, directory.path() + "/killed");
    }
    const std::string killed = directory.path() + "/killed";
    REQUIRE(restore_state(backup + ".damaged", killed, true).has_value());
    REQUIRE(fs::exists(killed + "/state.db.replaced-wal"));
    const auto again = restore_state(killed + "/state.db.replaced", killed, true);
    REQUIRE(again.has_value());
    CHECK(again->replaced == killed + "/state.db.replaced-2");
    CHECK(jobs_of(killed) == Names{"three", "two"});
    log::set_sink(nullptr, nullptr);
}

TEST_CASE("the file of a state becomes smaller when its jobs go", "[daemon]") {
    const TempDir directory;
    const std::string state = directory.path() + "/state";
    auto db = open_state(state);
    add_job(*db, "stays");
    add_job(*db, "goes");
    const auto journal = db->journal(job_id_of("goes"));
    for (std::uint64_t at = 0; at < 300; ++at)
        journal->value_set("key" + std::to_string(at), std::string(100'000, 'v'), {.revision = at});
    db->commit();
    const auto size = [&] { return fs::file_size(state + "/state.db"); };
    db->drop_job(job_id_of("goes"));
    db->commit();
    CHECK(size() > 25'000'000);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (size() > 9'000'000 && std::chrono::steady_clock::now() < limit) {
        db->tell_of_disk();
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    CHECK(size() <= 9'000'000);
    db.reset();
    CHECK(jobs_of(state) == Names{"stays"});
}

TEST_CASE("ten thousand jobs in turn leave the file of a state as it was", "[daemon]") {
    const TempDir directory;
    const std::string state = directory.path() + "/state";
    auto db = open_state(state);
    std::uintmax_t before = 0;
    for (int turn = 0; turn < 100; ++turn) {
        for (int job = 0; job < 100; ++job) {
            SavedJob record;
            record.name = std::to_string(100 * turn + job);
            record.id = job_id_of(record.name);
            db->save_job(record);
            db->journal(record.id)->value_set("key", std::string(500, 'v'), {.revision = 1});
            if (job >= 20) db->drop_job(record.id);
        }
        for (int job = 0; job < 20; ++job)
            db->drop_job(job_id_of(std::to_string(100 * turn + job)));
        db->commit();
        if (turn == 20) before = fs::file_size(state + "/state.db");
    }
    CHECK(fs::file_size(state + "/state.db") <= before + 100'000);
    db.reset();
    sqlite3* file = nullptr;
    std::string left;
    REQUIRE(sqlite3_open((state + "/state.db").c_str(), &file) == SQLITE_OK);
    const auto take = [](void* text, int, char** values, char**) {
        *static_cast<std::string*>(text) = values[0];
        return 0;
    };
    CHECK(sqlite3_exec(file,
                       "SELECT (SELECT count(*) FROM total) + (SELECT count(*) FROM value) + "
                       "(SELECT count(*) FROM job)",
                       take, &left, nullptr) == SQLITE_OK);
    CHECK(left == "0");
    sqlite3_close(file);
}

}  // namespace dtrun
