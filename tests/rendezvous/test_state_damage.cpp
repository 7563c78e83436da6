// A state whose disk has changed it: what is whole goes on, and the rest is refused by name.

#include "base/log.h"
#include "rendezvous/daemon/served_job.h"
#include "rendezvous/daemon/state_damage.h"
#include "rendezvous/wire/job_key.h"
#include "rendezvous/wire/store_request.h"
#include "tests/rendezvous/bad_sector.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <fmt/format.h>
#include <sqlite3.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

namespace dtrun {
namespace {

struct Nobody final : Outbox {
    void to_peer(PeerId, FrameType, std::string_view) override {}
    void to_root(FrameType, std::string_view) override {}
};

/// Keeps what is logged away from those who read the test's output.
struct Silence {
    Silence() {
        log::set_sink([](void*, std::string_view) {}, nullptr);
    }
    ~Silence() { log::set_sink(nullptr, nullptr); }
};

constexpr int kJobs = 3;

std::string job_name(int number) {
    return "job " + std::to_string(number);
}

/// Several jobs, with keys and queues of a few pages.
void make_state(const std::string& directory) {
    auto db = StateDb::open(directory);
    if (!db) FAIL(db.error().message);
    for (int number = 0; number < kJobs; ++number) {
        SavedJob record;
        record.id = job_id_of(job_name(number));
        record.name = job_name(number);
        (*db)->save_job(record);
        const auto journal = (*db)->journal(record.id);
        for (std::uint64_t at = 1; at <= 12; ++at) {
            journal->value_set("key" + std::to_string(at), std::string(200, 'v'), {.revision = at});
            journal->item_pushed("queue", at, std::string(at, 'i'), 100 + at);
            journal->answered(5, at, "reply");
        }
        journal->value_set("key3", "again", {.revision = 200});
        journal->item_popped("queue", 1, 201);
        journal->answers_forgotten(5, 6);
    }
    (*db)->commit();
}

/// All that a state tells of its jobs, by name, and who is refused.
struct Told {
    std::map<std::string, std::string> jobs;
    std::map<std::string, std::string> damaged;
};

std::string read_rows(sqlite3* db, const JobId& id) {
    std::string all;
    for (const char* const sql :
         {"SELECT key,value,revision FROM value WHERE job=?1 ORDER BY key",
          "SELECT key,item,value,revision FROM item WHERE job=?1 ORDER BY key,item",
          "SELECT client,id,reply FROM answer WHERE job=?1 ORDER BY id"}) {
        sqlite3_stmt* rows = nullptr;
        REQUIRE(sqlite3_prepare_v2(db, sql, -1, &rows, nullptr) == SQLITE_OK);
        sqlite3_bind_blob(rows, 1, id.data(), static_cast<int>(id.size()), SQLITE_STATIC);
        while (sqlite3_step(rows) == SQLITE_ROW) {
            for (int column = 0; column < sqlite3_column_count(rows); ++column)
                all.append(static_cast<const char*>(sqlite3_column_blob(rows, column)),
                           static_cast<std::size_t>(sqlite3_column_bytes(rows, column))) += '|';
            all += '\n';
        }
        sqlite3_finalize(rows);
    }
    return all;
}

Result<Told> read_state(const std::string& directory) {
    Told told;
    std::vector<SavedJob> jobs;
    {
        auto db = StateDb::open(directory);
        if (!db) return std::unexpected(db.error());
        jobs = (*db)->jobs();
        for (const DamagedJob& job : (*db)->damaged()) told.damaged[job.name] = job.why;
    }
    sqlite3* file = nullptr;
    REQUIRE(sqlite3_open((directory + "/state.db").c_str(), &file) == SQLITE_OK);
    for (const SavedJob& job : jobs) told.jobs[job.name] = read_rows(file, job.id);
    sqlite3_close(file);
    return told;
}

/// As a disk would do it: past all that is kept of sums.
void damage(const std::string& directory, const std::string& sql) {
    sqlite3* file = nullptr;
    REQUIRE(sqlite3_open((directory + "/state.db").c_str(), &file) == SQLITE_OK);
    INFO(sqlite3_errmsg(file));
    REQUIRE(sqlite3_exec(file, ("DROP TRIGGER value_goes; DROP TRIGGER job_goes;" + sql).c_str(),
                         nullptr, nullptr, nullptr) == SQLITE_OK);
    sqlite3_close(file);
}

std::string sql_id(int number) {
    return "x'" + hex(job_id_of(job_name(number))) + "'";
}

}  // namespace

TEST_CASE("a damaged job is refused by name, and all others go on", "[daemon]") {
    const Silence silence;
    const TempDir directory;
    const std::string state = directory.path() + "/state";
    make_state(state);
    const Told before = *read_state(state);
    REQUIRE(before.jobs.size() == kJobs);
    CHECK(before.damaged.empty());

    const std::pair<const char*, const char*> kinds[] = {
        {"UPDATE value SET value=x'6576696c' WHERE key=x'6b657937' AND job=",
         "key \"key7\" is not as it was"},
        {"DELETE FROM value WHERE key=x'6b657937' AND job=", "it has 29 rows, of 30"},
        {"UPDATE value SET value=x'6f6c64', sum=1 WHERE key=x'6b657937' AND job=",
         "key \"key7\" is not as it was"},
        {"DELETE FROM total WHERE job=", "its number of rows is lost"},
        {"DELETE FROM job WHERE id=", "its name is lost"},
    };
    for (const auto& [sql, why] : kinds) {
        INFO(sql);
        const std::string copy = directory.path() + "/copy";
        std::filesystem::remove_all(copy);
        std::filesystem::copy(state, copy);
        damage(copy, sql + sql_id(1));
        const Told told = *read_state(copy);
        REQUIRE(told.damaged.size() == 1);
        CHECK(told.damaged.begin()->first == (told.damaged.contains("") ? "" : job_name(1)));
        CHECK_THAT(told.damaged.begin()->second, Catch::Contains(why));
        REQUIRE(told.jobs.size() == kJobs - 1);
        for (const int other : {0, 2})
            CHECK(told.jobs.at(job_name(other)) == before.jobs.at(job_name(other)));
        CHECK((*read_state(copy)).damaged == told.damaged);  // until it is dropped
        {
            auto db = StateDb::open(copy);
            REQUIRE(db.has_value());
            (*db)->drop_job(job_id_of(job_name(1)));
            (*db)->commit();
        }
        CHECK(read_state(copy)->damaged.empty());
    }
}

TEST_CASE("whatever byte a disk has changed, no job is served as it was not", "[daemon]") {
    const Silence silence;
    const TempDir directory;
    const std::string state = directory.path() + "/state", copy = directory.path() + "/copy";
    make_state(state);
    const Told before = *read_state(state);
    const auto size = static_cast<std::streamoff>(std::filesystem::file_size(state + "/state.db"));
    const char* const seed = std::getenv("DTRUN_SEED");
    std::mt19937 random(seed != nullptr ? static_cast<unsigned>(std::atoi(seed)) : 7);
    int refused = 0, whole = 0, unreadable = 0;
    for (std::streamoff at = 0; at < size; at += 1 + random() % 1'000) {
        std::filesystem::remove_all(copy);
        std::filesystem::copy(state, copy);
        {
            std::fstream file(copy + "/state.db", std::ios::in | std::ios::out | std::ios::binary);
            file.seekg(at);
            const int byte = file.get();
            file.seekp(at);
            file.put(static_cast<char>(byte ^ (1u << random() % 8)));
        }
        INFO("byte " << at);
        const auto told = read_state(copy);
        if (!told) {
            ++unreadable;
            continue;
        }
        for (const auto& [name, rows] : told->jobs) CHECK(before.jobs.at(name) == rows);
        CHECK(told->jobs.size() + told->damaged.size() >= kJobs);
        whole += static_cast<int>(told->jobs.size());
        refused += static_cast<int>(told->damaged.size());
    }
    CHECK(whole > 2 * refused);
    CHECK(refused > unreadable);  // which are those of the tables' own description
}

TEST_CASE("whatever page a disk cannot read, all jobs go on that have nothing on it", "[daemon]") {
    const Silence silence;
    const BadSector disk;
    const TempDir directory;
    const std::string state = directory.path() + "/state", copy = directory.path() + "/copy";
    make_state(state);
    const Told before = *read_state(state);
    const auto size = static_cast<sqlite3_int64>(std::filesystem::file_size(state + "/state.db"));
    int all = 0, some = 0, none = 0;
    for (sqlite3_int64 page = 0; page < size / BadSector::kBytes; ++page) {
        std::filesystem::remove_all(copy);
        std::filesystem::copy(state, copy);
        BadSector::put(copy + "/state.db", page);
        INFO("page " << page);
        const auto told = read_state(copy);
        if (!told) {
            ++none;
            continue;
        }
        for (const auto& [name, rows] : told->jobs) CHECK(before.jobs.at(name) == rows);
        // Those whose names are lost are one here.
        CHECK((told->jobs.size() + told->damaged.size() == kJobs || told->damaged.contains("")));
        ++(told->damaged.empty() ? all : some);
        CHECK(read_state(copy)->jobs == told->jobs);  // from the new file
    }
    WARN(fmt::format("of {} pages, {} damage no job, {} some, and {} are the tables' description",
                     size / BadSector::kBytes, all, some, none));
    CHECK(all > 0);
    CHECK(some > 0);
    CHECK(none < all + some);
}

TEST_CASE("a damaged job whose name is lost is forgotten in time, as nobody can drop it",
          "[daemon]") {
    Nobody out;
    ServedJob::Options options;
    options.damage = "its name is lost";
    options.keep_unused = std::chrono::hours(1);
    const Deadline now = Clock::now();
    ServedJob nameless(job_id_of("job"), options, out, nullptr, now);
    options.name = "job";
    ServedJob named(job_id_of("job"), options, out, nullptr, now);
    for (ServedJob* const job : {&nameless, &named}) job->tick(now + std::chrono::minutes(59));
    CHECK_FALSE(nameless.idle());
    for (ServedJob* const job : {&nameless, &named}) job->tick(now + std::chrono::hours(1));
    CHECK(nameless.idle());
    CHECK_FALSE(named.idle());
}

TEST_CASE("whoever comes to a damaged job is told what to do, and can drop it", "[daemon]") {
    struct Sink final : Outbox {
        void to_peer(PeerId, FrameType, std::string_view payload) override { last = payload; }
        void to_root(FrameType, std::string_view) override {}
        std::string last;
    } out;
    ServedJob::Options options;
    options.damage = "key \"k\" is not as it was";
    const Deadline now = Clock::now();
    ServedJob job(job_id_of("job"), options, out, nullptr, now);
    Enter enter;
    enter.member = MemberId{1};
    enter.job_name = "job";
    enter.slots = 1;
    const auto member = job.enter(1, enter, "", "", now);
    REQUIRE_FALSE(member.has_value());
    CHECK(
        member.error().message ==
        "job job is damaged on the daemon's disk: key \"k\" is not as it was; it is refused until "
        "a backup is restored, or it begins anew: dtrun store drop --job 'job'");
    CHECK_FALSE(job.idle());
    enter.slots = 0;
    REQUIRE(job.enter(2, enter, "", "", now));
    const auto ask = [&](std::uint64_t id, const StoreRequest& request) {
        const Bytes frame = encode_request({5, id, 0}, request, 0);
        return job.frame(2, {FrameType::request, payload_of(frame)}, now);
    };
    CHECK_FALSE(ask(1, {.op = Op::get, .keys = {"k"}}).has_value());
    CHECK(ask(2, {.op = Op::drop}).has_value());
    CHECK(decode_reply(out.last)->header.status == Status::ok);
    CHECK(job.is_dropped());
}

}  // namespace dtrun
