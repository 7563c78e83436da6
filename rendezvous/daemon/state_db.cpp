#include "rendezvous/daemon/state_db.h"

#include "base/log.h"
#include "base/milliseconds.h"
#include "base/simulated.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/member_messages.h"
#include "rendezvous/wire/msgpack.h"
#include "rendezvous/wire/rank_messages.h"

#include <sqlite3.h>
#include <algorithm>
#include <utility>

namespace dtrun {
namespace {

/// Every byte is written twice: to the log, and from there to the file itself.
constexpr std::size_t kCopies = 2;
/// Kept free for writes that must not fail: membership, and operations that make the store smaller.
constexpr std::size_t kReserveBytes = 2u << 20;
constexpr std::size_t kUnwrittenBytesMax = 64u << 20;
/// A commit takes milliseconds; one that takes longer than this is told to who runs the daemon.
constexpr std::chrono::seconds kSlowWrite{1};
/// So that not every change records its revision.
constexpr std::uint64_t kReservedRevisions = 1u << 20;
/// How long the end of a daemon may wait for its disk.
constexpr std::chrono::seconds kLastWrites{5};

/// A restart is given another clock, but for that of the day. 0: never
std::uint64_t unix_ms(Deadline deadline) {
    if (deadline == Deadline::max()) return 0;
    const auto time = since_1970() + (deadline - Clock::now());
    return static_cast<std::uint64_t>(std::chrono::ceil<std::chrono::milliseconds>(time).count());
}

Deadline deadline(std::uint64_t unix_ms) {
    if (unix_ms == 0) return Deadline::max();
    return Clock::now() + (std::chrono::milliseconds(unix_ms) - since_1970());
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

}  // namespace

/// One job's part of the database.
class StateJournal final : public HubJournal {
public:
    StateJournal(StateDb& db, const JobId& job) : db_(db), job_(job) {}

    void value_set(std::string_view key, std::string_view value, const ValueFacts& facts) override {
        db_.run(
            // Not REPLACE: that moves the row to the table's end, so three pages change, not one.
            "INSERT INTO value(job,key,value,revision,owner,expires,client,request,sum)"
            " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,sum_of(?1,?2,?3,?4,?5,?6,?7,?8))"
            " ON CONFLICT(job,key) DO UPDATE SET value=?3,revision=?4,owner=?5,expires=?6,"
            "client=?7,request=?8,sum=excluded.sum",
            job_, key, value, facts.revision, facts.owner, unix_ms(facts.expires),
            facts.given.first, facts.given.second);
        db_.reserve(facts.revision);
    }
    void item_pushed(std::string_view key, std::uint64_t item, std::string_view value,
                     std::uint64_t revision) override {
        db_.run(
            "INSERT OR REPLACE INTO item(job,key,item,value,revision,owner,client,request,sum)"
            " VALUES(?1,?2,?3,?4,?5,0,0,0,sum_of(?1,?2,?3,?4,?5,0,0,0))",
            job_, key, item, value, revision);
        db_.reserve(revision);
    }
    void item_claimed(std::string_view key, std::uint64_t item, const ItemClaim& claim,
                      std::uint64_t revision) override {
        db_.run(
            "UPDATE item SET owner=?1,client=?2,request=?3,"
            "sum=sum_of(job,key,item,value,revision,?1,?2,?3) WHERE job=?4 AND key=?5 AND item=?6",
            claim.owner, claim.given.first, claim.given.second, job_, key, item);
        db_.reserve(revision);
    }
    void item_popped(std::string_view key, std::uint64_t item, std::uint64_t revision) override {
        db_.run("DELETE FROM item WHERE job=? AND key=? AND item=?", job_, key, item);
        db_.reserve(revision);
    }
    void value_erased(std::string_view key, std::uint64_t revision) override {
        db_.run("DELETE FROM value WHERE job=? AND key=?", job_, key);
        db_.reserve(revision);
    }
    void queue_erased(std::string_view key, std::uint64_t revision) override {
        db_.run("DELETE FROM item WHERE job=? AND key=?", job_, key);
        db_.reserve(revision);
    }
    void answered(std::uint64_t client, std::uint64_t id, std::string_view reply) override {
        db_.run("INSERT OR REPLACE INTO answer VALUES(?1,?2,?3,?4,sum_of(?1,?2,?3,?4))", job_,
                client, id, reply);
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
        db_.run("INSERT OR REPLACE INTO fence VALUES(?1,?2,?3,sum_of(?1,?2,?3))", job_,
                std::string_view(fenced.name), payload_of(frame));
    }
    void completion_forgotten(std::string_view name) override {
        db_.run("DELETE FROM fence WHERE job=? AND name=?", job_, name);
    }
    void fence_failed(const Fenced& fenced) override {
        const Bytes frame = encode(fenced);
        db_.run("INSERT OR IGNORE INTO failure VALUES(?1,?2,?3,?4,sum_of(?1,?2,?3,?4))", job_,
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
        db_.run(
            "INSERT OR REPLACE INTO group_fence "
            "VALUES(?1,?2,?3,?4,?5,?6,sum_of(?1,?2,?3,?4,?5,?6))",
            job_, std::string_view(group), std::string_view(name), round, payload_of(frame),
            std::string_view(clients));
    }
    void group_forgotten(const GroupFences::Key& key) override {
        const auto& [group, name, round] = key;
        db_.run("DELETE FROM group_fence WHERE job=? AND name=? AND fence=? AND round=?", job_,
                std::string_view(group), std::string_view(name), round);
    }
    void began(std::uint64_t, std::uint64_t revision) override {
        db_.forget_generation(job_);
        db_.reserve(revision);
    }

private:
    StateDb& db_;
    JobId job_;
};

Result<std::unique_ptr<StateDb>> StateDb::open(const std::string& directory, Use use) {
    auto writer = StateWriter::open(directory, use);
    if (!writer) return std::unexpected(writer.error());
    std::unique_ptr<StateDb> db(new StateDb(std::move(*writer), directory));
    db->writer_->query("SELECT revision FROM reserved",
                       [&](sqlite3_stmt* row) { db->reserved_ = number(row, 0); });
    const auto was_served = [&](sqlite3_stmt* row) {
        const std::chrono::seconds seconds(number(row, 0));
        db->served_before_ = std::max(db->served_before_, seconds);
    };
    db->writer_->query("SELECT seconds FROM served WHERE sum=sum_of(id,seconds)", was_served);
    db->writer_->query("SELECT coalesce(max(used),0) FROM job", was_served);
    db->served_written_ = db->served_before_;
    return db;
}

StateDb::~StateDb() {
    stop(after(kLastWrites));
}

template <class... Values>
void StateDb::run(const char* sql, const Values&... values) {
    const auto size_of = [](const auto& value) {
        if constexpr (requires { value.size(); })
            return value.size();
        else
            return sizeof value;
    };
    const std::size_t bytes =
        sizeof(StateWriter::Statement) + (std::size_t{0} + ... + size_of(values));
    batch_.statements.push_back({sql, {StateWriter::Value(to_value(values))...}});
    batch_.bytes += bytes;
    writer_->will_write(bytes);
}

void StateDb::reserve(std::uint64_t revision) {
    if (revision <= reserved_) return;
    reserved_ = revision + kReservedRevisions;
    run("INSERT OR REPLACE INTO reserved VALUES(0,?)", reserved_);
}

std::chrono::seconds StateDb::served() const {
    return served_before_ +
           std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - opened_);
}

bool StateDb::write_served(std::chrono::seconds step) {
    if (served() < served_written_ + step) return false;
    served_written_ = served();
    run("INSERT OR REPLACE INTO served VALUES(0,?1,sum_of(0,?1))",
        static_cast<std::uint64_t>(served_written_.count()));
    return true;
}

std::uint64_t StateDb::submit() {
    StateWriter::Batch batch = std::exchange(batch_, {});
    batch.number = ++submitted_;
    writer_->submit(std::move(batch));
    return submitted_;
}

void StateDb::commit() {
    writer_->commit(submit());
}

bool StateDb::fits(std::size_t bytes) const {
    // In this order, as the writer moves bytes from one to the other.
    std::size_t promised = bytes + writer_->unwritten_bytes();
    promised += writer_->unlooked_bytes();
    return !writer_->is_full() && writer_->free_bytes() >= kCopies * promised + kReserveBytes;
}

Clock::duration StateDb::writing_for() const {
    const Deadline since = writer_->writing_since();
    return since == Deadline::max() ? Clock::duration(0) : Clock::now() - since;
}

bool StateDb::is_behind() const {
    return writer_->unwritten_bytes() > kUnwrittenBytesMax;
}

void StateDb::tell_of_disk() {
    writer_->look();
    const Deadline now = Clock::now();
    const Deadline since = writer_->writing_since();
    if (told_slow_ && since != told_slow_) {
        log::warn("--state: {}: the disk has taken the changes", directory_);
        told_slow_.reset();
    }
    if (!told_slow_ && since != Deadline::max() && now - since > kSlowWrite) {
        told_slow_ = since;
        log::warn("--state: {}: the disk has been writing for {}: answers wait until it is done",
                  directory_,
                  in_seconds(std::chrono::duration_cast<std::chrono::milliseconds>(now - since)));
    }
    const bool is_removed = writer_->is_removed();
    if (is_removed && !std::exchange(told_removed_, true))
        log::error(
            "--state: {}: its state.db was removed: changes are refused, and jobs will not outlive "
            "this "
            "process; end dtrun serve, and start it again",
            directory_);
    if (is_removed) return;
    const bool is_full = !writer_->is_full() && !fits(told_full_ ? kReserveBytes : 0);
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

void StateDb::save_job(const SavedJob& record) {
    const auto found = recorded_.find(record.id);
    const SavedJob before = found != recorded_.end() ? found->second : SavedJob{};
    std::chrono::seconds used = record.used;
    if (found == recorded_.end() || before.policy != record.policy || before.job != record.job ||
        record.used >= before.used + kServedStep / 2)
        run("INSERT OR REPLACE INTO job(id,name,policy,record,used,sum)"
            " VALUES(?1,?2,?3,?4,?5,sum_of(?1,?2,?3,?4,?5))",
            record.id, std::string_view(record.name), std::string_view(record.policy),
            std::string_view(record.job), static_cast<std::uint64_t>(record.used.count()));
    else
        used = before.used;
    for (std::size_t host = 0; host < record.hosts.size(); ++host)
        if (host >= before.hosts.size() || before.hosts[host] != record.hosts[host])
            run("INSERT OR REPLACE INTO host VALUES(?1,?2,?3,sum_of(?1,?2,?3))", record.id,
                std::uint64_t(host), std::string_view(record.hosts[host]));
    for (const auto& [member, bytes] : before.members)
        if (!record.members.contains(member))
            run("DELETE FROM member WHERE job=? AND member=?", record.id,
                std::to_underlying(member));
    for (const auto& [member, bytes] : record.members) {
        const auto last = before.members.find(member);
        if (last == before.members.end() || last->second != bytes)
            run("INSERT OR REPLACE INTO member VALUES(?1,?2,?3,sum_of(?1,?2,?3))", record.id,
                std::to_underlying(member), std::string_view(bytes));
    }
    SavedJob& recorded = recorded_[record.id] = record;
    recorded.used = used;
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
    run("DELETE FROM host WHERE job=?", job);
    run("DELETE FROM job WHERE id=?", job);
    run("DELETE FROM total WHERE job=?", job);
    run("DELETE FROM damaged WHERE job=?", job);
    recorded_.erase(job);
}

std::vector<SavedJob> StateDb::jobs() {
    std::vector<SavedJob> records;
    writer_->query("SELECT id,name,policy,record,used FROM job", [&](sqlite3_stmt* row) {
        SavedJob& record = records.emplace_back();
        const std::string id = text(row, 0);
        std::copy_n(id.begin(), std::min(id.size(), record.id.size()), record.id.begin());
        record.name = text(row, 1);
        record.policy = text(row, 2);
        record.job = text(row, 3);
        record.used = std::chrono::seconds(number(row, 4));
    });
    for (SavedJob& record : records) {
        const std::string id = to_value(record.id);
        writer_->query(
            "SELECT record FROM host WHERE job=? ORDER BY host",
            [&](sqlite3_stmt* row) { record.hosts.push_back(text(row, 0)); }, id);
        writer_->query(
            "SELECT member,record FROM member WHERE job=?",
            [&](sqlite3_stmt* row) { record.members[MemberId{number(row, 0)}] = text(row, 1); },
            id);
        recorded_[record.id] = record;
    }
    return records;
}

std::vector<DamagedJob> StateDb::damaged() {
    std::vector<DamagedJob> jobs;
    writer_->query("SELECT job,name,why FROM damaged", [&](sqlite3_stmt* row) {
        DamagedJob& job = jobs.emplace_back();
        const std::string id = text(row, 0);
        std::copy_n(id.begin(), std::min(id.size(), job.id.size()), job.id.begin());
        job.name = text(row, 1);
        job.why = text(row, 2);
    });
    return jobs;
}

void StateDb::restore(const JobId& id, Hub& hub, Deadline now) {
    const std::string job = to_value(id);
    writer_->query(
        "SELECT key,value,revision,owner,expires,client,request FROM value WHERE job=?",
        [&](sqlite3_stmt* row) {
            const ValueFacts facts{number(row, 2),
                                   number(row, 3),
                                   deadline(number(row, 4)),
                                   {number(row, 5), number(row, 6)}};
            hub.restore_store().restore_value(text(row, 0), text(row, 1), facts);
        },
        job);
    writer_->query(
        "SELECT key,item,value,owner,client,request FROM item WHERE job=? ORDER BY key,item",
        [&](sqlite3_stmt* row) {
            const ItemClaim claim{number(row, 3), {number(row, 4), number(row, 5)}};
            hub.restore_store().restore_item(text(row, 0), number(row, 1), text(row, 2), claim);
        },
        job);
    hub.end_restore(now);
    writer_->query(
        "SELECT client,id,reply FROM answer WHERE job=? ORDER BY rowid",
        [&](sqlite3_stmt* row) {
            hub.restore_answer(number(row, 0), number(row, 1), text(row, 2), now);
        },
        job);
    const auto fence = [&](sqlite3_stmt* row) {
        if (auto fenced = decode<Fenced>(text(row, 0))) hub.restore_fence(std::move(*fenced));
    };
    writer_->query("SELECT frame FROM fence WHERE job=? ORDER BY rowid", fence, job);
    writer_->query("SELECT frame FROM failure WHERE job=? ORDER BY rowid", fence, job);
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
    writer_->query(
        "SELECT name,fence,round,frame,clients FROM group_fence WHERE job=? ORDER BY rowid", group,
        job);
}

}  // namespace dtrun
