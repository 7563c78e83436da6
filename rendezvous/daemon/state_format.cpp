#include "rendezvous/daemon/state_format.h"

#include <fmt/format.h>
#include <sqlite3.h>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>

namespace dtrun {
namespace {

/// What each version of the format has added, from the first. A sum is made anew only where the one before was right: a
/// damaged row stays one.
constexpr std::array kVersions = {
    R"(
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
)",
    R"(
CREATE TABLE commits(number INT);
INSERT INTO commits VALUES(0);
)",
    // Members of a job of an older version speak its protocol; stores go on.
    R"(
DROP TABLE member; DROP TABLE generation; DROP TABLE policy;
DELETE FROM job WHERE has_members<>0;
DELETE FROM value WHERE job NOT IN (SELECT id FROM job);
DELETE FROM item WHERE job NOT IN (SELECT id FROM job);
DELETE FROM answer WHERE job NOT IN (SELECT id FROM job);
DELETE FROM fence WHERE job NOT IN (SELECT id FROM job);
DELETE FROM failure WHERE job NOT IN (SELECT id FROM job);
DELETE FROM group_fence WHERE job NOT IN (SELECT id FROM job);
CREATE TABLE stores(id BLOB PRIMARY KEY, name BLOB, policy BLOB, record BLOB);
INSERT INTO stores SELECT id, name, x'', x'' FROM job;
DROP TABLE job;
ALTER TABLE stores RENAME TO job;
CREATE TABLE host(job BLOB, host INT, record BLOB, PRIMARY KEY(job, host));
CREATE TABLE member(job BLOB, member INT, record BLOB, PRIMARY KEY(job, member));
)",
    // And what add_sums() gives each table. Rows of no job were never read.
    R"(
DELETE FROM host WHERE job NOT IN (SELECT id FROM job);
DELETE FROM member WHERE job NOT IN (SELECT id FROM job);
DELETE FROM value WHERE job NOT IN (SELECT id FROM job);
DELETE FROM item WHERE job NOT IN (SELECT id FROM job);
DELETE FROM answer WHERE job NOT IN (SELECT id FROM job);
DELETE FROM fence WHERE job NOT IN (SELECT id FROM job);
DELETE FROM failure WHERE job NOT IN (SELECT id FROM job);
DELETE FROM group_fence WHERE job NOT IN (SELECT id FROM job);
CREATE TABLE total(job BLOB PRIMARY KEY, number INT, sum INT) WITHOUT ROWID;
CREATE TABLE damaged(job BLOB PRIMARY KEY, name BLOB, why BLOB);
)",
    R"(
ALTER TABLE value ADD COLUMN owner INT NOT NULL DEFAULT 0;
ALTER TABLE value ADD COLUMN expires INT NOT NULL DEFAULT 0;
ALTER TABLE item ADD COLUMN owner INT NOT NULL DEFAULT 0;
UPDATE value SET sum=sum_of(job,key,value,revision,owner,expires) WHERE sum=sum_of(job,key,value,revision);
UPDATE item SET sum=sum_of(job,key,item,value,revision,owner) WHERE sum=sum_of(job,key,item,value,revision);
)",
    R"(
ALTER TABLE value ADD COLUMN client INT NOT NULL DEFAULT 0;
ALTER TABLE value ADD COLUMN request INT NOT NULL DEFAULT 0;
ALTER TABLE item ADD COLUMN client INT NOT NULL DEFAULT 0;
ALTER TABLE item ADD COLUMN request INT NOT NULL DEFAULT 0;
UPDATE value SET sum=sum_of(job,key,value,revision,owner,expires,client,request)
  WHERE sum=sum_of(job,key,value,revision,owner,expires);
UPDATE item SET sum=sum_of(job,key,item,value,revision,owner,client,request)
  WHERE sum=sum_of(job,key,item,value,revision,owner);
CREATE TABLE reserved(id INTEGER PRIMARY KEY, revision INT);
INSERT INTO reserved SELECT 0, max((SELECT coalesce(max(revision),0) FROM value),
                                   (SELECT coalesce(max(revision),0) FROM item));
)",
    R"(
ALTER TABLE job ADD COLUMN used INT NOT NULL DEFAULT 0;
UPDATE job SET sum=sum_of(id,name,policy,record,used) WHERE sum=sum_of(id,name,policy,record);
CREATE TABLE served(id INTEGER PRIMARY KEY, seconds INT, sum INT);
)"};
constexpr std::size_t kVersionWithSums = 7;

constexpr StateTable kTables[] = {
    {"job", "id", "id,name,policy,record,used"},
    {"host", "job", "job,host,record"},
    {"member", "job", "job,member,record"},
    {"value", "job", "job,key,value,revision,owner,expires,client,request"},
    {"item", "job", "job,key,item,value,revision,owner,client,request"},
    {"answer", "job", "job,client,id,reply"},
    {"fence", "job", "job,name,frame"},
    {"failure", "job", "job,name,round,frame"},
    {"group_fence", "job", "job,name,fence,round,frame,clients"},
};

/// What a table had when sums came.
std::string_view first_columns(const StateTable& table) {
    if (table.name == "job") return "id,name,policy,record";
    if (table.name == "value") return "job,key,value,revision";
    if (table.name == "item") return "job,key,item,value,revision";
    return table.columns;
}

std::string add_sums(const StateTable& table) {
    return fmt::format(R"(
ALTER TABLE {0} ADD COLUMN sum INT;
UPDATE {0} SET sum=sum_of({2});
INSERT INTO total SELECT {1},count(*),sum(sum) FROM {0} WHERE true GROUP BY {1}
  ON CONFLICT(job) DO UPDATE SET number=number+excluded.number, sum=sum+excluded.sum;
CREATE TRIGGER {0}_comes AFTER INSERT ON {0} BEGIN
  INSERT INTO total VALUES(new.{1},1,new.sum)
    ON CONFLICT(job) DO UPDATE SET number=number+1, sum=sum+excluded.sum;
END;
CREATE TRIGGER {0}_goes AFTER DELETE ON {0} BEGIN
  UPDATE total SET number=number-1, sum=sum-old.sum WHERE job=old.{1};
END;
CREATE TRIGGER {0}_changes AFTER UPDATE ON {0} BEGIN
  UPDATE total SET sum=sum-old.sum+new.sum WHERE job=new.{1};
END;
)",
                       table.name, table.job, first_columns(table));
}

/// Each step gives different results for different words, so a change in one word always shows in the 64 bits.
std::uint64_t mix(std::uint64_t sum, std::uint64_t word) {
    sum = (sum ^ word) * 0x9e37'79b9'7f4a'7c15;
    return sum ^ (sum >> 32);
}

std::uint64_t mix_bytes(std::uint64_t sum, const char* bytes, std::size_t size) {
    std::uint64_t word = 0;
    for (; size >= sizeof word; bytes += sizeof word, size -= sizeof word) {
        std::memcpy(&word, bytes, sizeof word);
        sum = mix(sum, word);
    }
    if (size == 0) return sum;
    word = 0;
    std::memcpy(&word, bytes, size);
    return mix(sum, word);
}

void sum_of(sqlite3_context* context, int count, sqlite3_value** values) {
    std::uint64_t sum = 0;
    for (int at = 0; at < count; ++at) {
        const int type = sqlite3_value_type(values[at]);
        sum = mix(sum, static_cast<std::uint64_t>(type));
        if (type == SQLITE_INTEGER) {
            sum = mix(sum, static_cast<std::uint64_t>(sqlite3_value_int64(values[at])));
            continue;
        }
        // The bytes first: they decide how many there are.
        const void* const bytes = sqlite3_value_blob(values[at]);
        const auto size = static_cast<std::size_t>(sqlite3_value_bytes(values[at]));
        sum = mix_bytes(mix(sum, size), static_cast<const char*>(bytes), size);
    }
    // Of 32 bits, so that the sums of many rows fit into an integer of SQLite.
    sqlite3_result_int64(context, static_cast<std::int64_t>(mix(sum, 0) & 0xffff'ffff));
}

}  // namespace

std::span<const StateTable> state_tables() {
    return kTables;
}

void add_sum_function(sqlite3* db) {
    sqlite3_create_function(db, "sum_of", -1, SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS,
                            nullptr, sum_of, nullptr, nullptr);
}

int state_format() {
    return static_cast<int>(kVersions.size());
}

int raise_format(sqlite3* db, int from) {
    if (from == state_format()) return SQLITE_OK;
    std::string make = "BEGIN;";
    for (auto later = static_cast<std::size_t>(from); later < kVersions.size(); ++later) {
        make += kVersions[later];
        if (later + 1 != kVersionWithSums) continue;
        for (const StateTable& table : kTables) make += add_sums(table);
    }
    make += fmt::format("PRAGMA user_version={}; COMMIT;", state_format());
    return sqlite3_exec(db, make.c_str(), nullptr, nullptr, nullptr);
}

}  // namespace dtrun
