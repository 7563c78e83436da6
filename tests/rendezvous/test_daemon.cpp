// What a daemon keeps on disk, and how it is found again.

#include "base/crypto.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/simulated.h"
#include "rendezvous/daemon/served_job.h"
#include "rendezvous/daemon/state_format.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/job_key.h"
#include "rendezvous/wire/member_messages.h"
#include "rendezvous/wire/msgpack.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/request.h"
#include "rendezvous/wire/store_request.h"
#include "tests/rendezvous/slow_disk.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <sqlite3.h>
#include <unistd.h>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

namespace dtrun {
namespace {

struct Sink final : Outbox {
    void to_peer(PeerId, FrameType type, std::string_view payload) override {
        sent.push_back({type, std::string(payload)});
    }
    void to_root(FrameType, std::string_view) override {}
    std::vector<std::pair<FrameType, std::string>> sent;
};

void ask(Hub& hub, std::uint64_t id, const StoreRequest& request, Deadline now = {}) {
    const auto behind = static_cast<std::uint32_t>(id - 1);  // nothing was answered yet
    const Bytes frame = encode_request({5, id, behind}, request, 0);
    REQUIRE(hub.from_peer(
        1, {FrameType::request, std::string_view(frame).substr(FrameHeader::kBytes)}, now));
}

}  // namespace

TEST_CASE("what was committed is there again, what was not has not happened", "[daemon]") {
    const TempDir directory;
    const JobId id = job_id_of("job");
    HubOptions options;
    options.reconnects = true;
    {
        auto db = StateDb::open(directory.path() + "/state");
        REQUIRE(db.has_value());
        const auto journal = (*db)->journal(id);
        Sink out;
        Hub hub(out, options, journal.get());
        hub.add_peer(1, PeerKind::subtree, kNoRank);
        ask(hub, 1, {.op = Op::set, .keys = {"key"}, .values = {{"a\0b", 3}}});
        ask(hub, 2, {.op = Op::push, .keys = {"queue"}, .values = {"first"}});
        ask(hub, 3, {.op = Op::push, .keys = {"queue"}, .values = {"second"}});
        ask(hub, 4, {.op = Op::set, .keys = {"empty"}, .values = {""}});
        SavedJob record;
        record.id = id;
        record.name = "job";
        record.policy = "a policy";
        record.job = Bytes("of \0 its members", 17);
        record.hosts = {"one", "another"};
        record.members[MemberId{77}] = "somebody";
        (*db)->save_job(record);
        (*db)->commit();
        ask(hub, 5, {.op = Op::set, .keys = {"late"}, .values = {"lost"}});
        // No commit: as if it were killed here.
    }
    auto db = StateDb::open(directory.path() + "/state");
    REQUIRE(db.has_value());
    const auto jobs = (*db)->jobs();
    REQUIRE(jobs.size() == 1);
    CHECK(jobs[0].id == id);
    CHECK(jobs[0].name == "job");
    CHECK(jobs[0].policy == "a policy");
    CHECK(jobs[0].job == Bytes("of \0 its members", 17));
    CHECK(jobs[0].hosts == std::vector<Bytes>{"one", "another"});
    CHECK(jobs[0].members == std::map<MemberId, Bytes>{{MemberId{77}, "somebody"}});

    Sink out;
    Hub hub(out, options, nullptr);
    (*db)->restore(id, hub, {});
    CHECK(hub.store().size() == 3);
    hub.add_peer(1, PeerKind::subtree, kNoRank);
    // Sent again: answered again, and not done again.
    ask(hub, 3, {.op = Op::push, .keys = {"queue"}, .values = {"second"}});
    ask(hub, 6, {.op = Op::length, .keys = {"queue"}});
    const auto reply = decode_reply(out.sent.back().second);
    PackReader in(reply->results);
    in.array();
    CHECK(in.uint() == 2);
    (*db)->drop_job(id);
    (*db)->commit();
    CHECK((*db)->jobs().empty());
}

namespace {

/// A job of which a daemon keeps nothing, and what it says.
struct Job {
    Job() : job(job_id_of("job"), options(), out, nullptr, now) {}
    static ServedJob::Options options() {
        ServedJob::Options options;
        options.name = "job";
        return options;
    }
    void enter(PeerId peer, MemberId member, std::uint32_t slots = 0) {
        Enter enter;
        enter.member = member;
        enter.job_name = "job";
        enter.slots = slots;
        REQUIRE(job.enter(peer, enter, "", "", now));
    }
    void leave(PeerId peer) {
        const Bytes frame = SentFrames().add(encode(Leave{true, ""}));
        CHECK_FALSE(job.frame(peer, {FrameType::numbered, payload_of(frame)}, now));
    }
    void ask(PeerId peer, std::uint64_t client, std::uint64_t id, const StoreRequest& request) {
        const Bytes frame = encode_request({client, id, 0}, request, 0);
        REQUIRE(job.frame(peer, {FrameType::request, payload_of(frame)}, now));
    }
    Status last_status() const { return decode_reply(out.sent.back().second)->header.status; }

    Sink out;
    Deadline now = Clock::now();
    ServedJob job;
};

}  // namespace

TEST_CASE("whose something is, and how long it lives, is there again after a restart", "[daemon]") {
    using namespace std::chrono_literals;
    const TempDir directory;
    const JobId id = job_id_of("job");
    HubOptions options;
    options.reconnects = true;
    const Deadline now = Clock::now();
    const auto answers = [&](Hub& hub, Sink& out, const StoreRequest& request) {
        const Bytes frame = encode_request({9, out.sent.size() + 1}, request, 0);
        REQUIRE(hub.from_peer(1, {FrameType::request, payload_of(frame)}, now));
        return decode_reply(out.sent.back().second)->header.status;
    };
    {
        auto db = StateDb::open(directory.path() + "/state");
        REQUIRE(db.has_value());
        const auto journal = (*db)->journal(id);
        Sink out;
        Hub hub(out, options, journal.get());
        hub.add_peer(1, PeerKind::subtree, kNoRank);
        ask(hub, 1, {.op = Op::own});
        ask(hub, 2, {.op = Op::put, .keys = {"mine"}, .values = {""}, .owner = 5});
        ask(hub, 3, {.op = Op::put, .keys = {"brief"}, .values = {""}, .ttl_ms = 20'000}, now);
        for (const std::uint64_t item : {4, 5, 6})
            ask(hub, item, {.op = Op::push, .keys = {"q"}, .values = {"item"}});
        for (const std::uint64_t item : {7, 8})
            ask(hub, item, {.op = Op::claim, .keys = {"q"}, .owner = 5});
        ask(hub, 9, {.op = Op::give_back, .keys = {"q"}, .number = 3, .owner = 5});
        (*db)->save_job({id, "job", {}, {}, {}, {}});
        (*db)->commit();
    }
    auto db = StateDb::open(directory.path() + "/state");
    REQUIRE(db.has_value());
    Sink out;
    Hub hub(out, options, nullptr);
    (*db)->restore(id, hub, now);
    hub.add_peer(1, PeerKind::subtree, kNoRank);
    CHECK(hub.store().owners() == std::vector<std::uint64_t>{5});
    CHECK(hub.store().size() == 3);
    // Two items are free, and one comes back when its owner does not.
    CHECK(answers(hub, out, {.op = Op::pop, .keys = {"q"}}) == Status::ok);
    CHECK(answers(hub, out, {.op = Op::pop, .keys = {"q"}}) == Status::ok);
    CHECK(answers(hub, out, {.op = Op::pop, .keys = {"q"}}) == Status::not_found);
    hub.expire(now + 11s);
    CHECK(answers(hub, out, {.op = Op::get, .keys = {"mine"}}) == Status::not_found);
    CHECK(answers(hub, out, {.op = Op::pop, .keys = {"q"}}) == Status::ok);
    CHECK(answers(hub, out, {.op = Op::get, .keys = {"brief"}}) == Status::ok);
    hub.expire(now + 21s);
    CHECK(hub.store().size() == 0);
}

TEST_CASE("what was given to a request that nobody has heard of is taken back after a restart",
          "[daemon]") {
    const TempDir directory;
    const JobId id = job_id_of("job");
    HubOptions options;
    options.reconnects = true;
    Sink out;
    {
        auto db = StateDb::open(directory.path() + "/state");
        REQUIRE(db.has_value());
        const auto journal = (*db)->journal(id);
        Hub hub(out, options, journal.get());
        hub.add_peer(1, PeerKind::subtree, kNoRank);
        ask(hub, 1, {.op = Op::own});
        for (const std::uint64_t item : {2, 3})
            ask(hub, item, {.op = Op::push, .keys = {"q"}, .values = {"item"}});
        ask(hub, 4, {.op = Op::lock, .keys = {"l"}, .values = {""}, .owner = 5});
        ask(hub, 5, {.op = Op::claim, .keys = {"q"}, .owner = 5});
        ask(hub, 6, {.op = Op::claim, .keys = {"q"}, .owner = 5});
        (*db)->save_job({id, "job", {}, {}, {}, {}});
        (*db)->commit();
    }
    auto db = StateDb::open(directory.path() + "/state");
    REQUIRE(db.has_value());
    Hub hub(out, options, nullptr);
    (*db)->restore(id, hub, {});
    hub.add_peer(1, PeerKind::subtree, kNoRank);
    ask(hub, 7, {.op = Op::own});
    ask(hub, 8, {.op = Op::cancel, .number = 4, .owner = 5});
    ask(hub, 9, {.op = Op::cancel, .number = 6, .owner = 5});
    CHECK(hub.store().size() == 1);
    ask(hub, 10, {.op = Op::length, .keys = {"q"}});
    PackReader in(decode_reply(out.sent.back().second)->results);
    in.array();
    CHECK(in.uint() == 1);
}

TEST_CASE("tokens grow over restarts and dropped jobs, also when the clock is set back",
          "[daemon]") {
    const TempDir directory;
    const JobId id = job_id_of("job");
    std::uint64_t last = 0;
    {
        auto db = StateDb::open(directory.path() + "/state");
        REQUIRE(db.has_value());
        const auto ahead = since_1970() + std::chrono::hours(24 * 365);
        last = static_cast<std::uint64_t>(ahead.count()) / 1'000;
        (*db)->reserve(last);
        (*db)->commit();
    }
    for (int round = 0; round < 4; ++round) {
        auto db = StateDb::open(directory.path() + "/state");
        REQUIRE(db.has_value());
        Sink out;
        ServedJob job(id, Job::options(), out, db->get(), Clock::now());
        Enter enter;
        enter.member = MemberId{7};
        enter.job_name = "job";
        REQUIRE(job.enter(1, enter, "", "", Clock::now()));
        const auto say = [&](std::uint64_t number, const StoreRequest& request) {
            const Bytes frame = encode_request({5, number, 0}, request, 0);
            REQUIRE(job.frame(1, {FrameType::request, payload_of(frame)}, Clock::now()));
            PackReader in(decode_reply(out.sent.back().second)->results);
            in.array();
            return in.uint();
        };
        say(1, {.op = Op::own});
        const std::uint64_t token =
            say(2, {.op = Op::lock, .keys = {"l"}, .values = {""}, .owner = 5});
        CHECK(token > last);
        say(3, {.op = Op::erase, .keys = {"l"}});
        last = token + 1;
        if (round == 1) (*db)->drop_job(id);
        (*db)->commit();
    }
}

TEST_CASE("an item whose taker has lost its connection is not lost with the job", "[daemon]") {
    Job it;
    it.enter(1, MemberId{11});
    it.ask(1, 5, 1, {.op = Op::push, .keys = {"queue"}, .values = {"item"}});
    it.enter(2, MemberId{12});
    it.ask(2, 6, 1, {.op = Op::pop, .keys = {"queue"}});
    CHECK(it.last_status() == Status::ok);
    it.job.closed(1, it.now);
    it.job.closed(2, it.now);  // before the answer was read
    CHECK_FALSE(it.job.idle());
    it.enter(3, MemberId{12});
    it.ask(3, 6, 1, {.op = Op::pop, .keys = {"queue"}});
    CHECK(it.last_status() == Status::ok);
    const Bytes gone = encode(Gone{6});
    REQUIRE(it.job.frame(3, {FrameType::gone, payload_of(gone)}, it.now));
    it.job.closed(3, it.now);
    it.job.tick(it.now + std::chrono::seconds(100));  // those that had been answered over others
    CHECK(it.job.idle());
}

TEST_CASE("a job that has ended gives its name free although others look into its store",
          "[daemon]") {
    Job it;
    it.enter(1, MemberId{11}, 1);
    it.enter(2, MemberId{12});
    CHECK_FALSE(it.job.is_over());
    it.leave(1);
    it.job.closed(1, it.now);
    CHECK_FALSE(it.job.idle());
    CHECK(it.job.is_over());
    it.ask(2, 6, 1, {.op = Op::get, .keys = {"key"}, .timeout_ms = kForeverMs});
    it.job.retire();
    CHECK(it.last_status() == Status::stale);
}

TEST_CASE("a job that has members is not dropped", "[daemon]") {
    Job it;
    it.enter(1, MemberId{11}, 1);
    it.enter(2, MemberId{12});
    it.ask(2, 6, 1, {.op = Op::drop});
    CHECK(it.last_status() == Status::refused);
    CHECK_FALSE(it.job.is_over());

    it.leave(1);
    it.ask(2, 6, 3, {.op = Op::drop});
    CHECK(it.last_status() == Status::ok);
    CHECK(it.job.is_dropped());
}

TEST_CASE("a store that nobody is connected to is forgotten after the time it is kept",
          "[daemon]") {
    constexpr std::chrono::hours kKept{1};
    Sink out;
    const Deadline start = Clock::now();
    ServedJob::Options options = Job::options();
    options.keep_unused = kKept;
    ServedJob job(job_id_of("job"), options, out, nullptr, start);
    Enter enter;
    enter.member = MemberId{11};
    enter.job_name = "job";
    REQUIRE(job.enter(1, enter, "", "", start));
    const Bytes set = encode_request({5, 1, 0}, {.op = Op::set, .keys = {"k"}, .values = {"v"}}, 0);
    REQUIRE(job.frame(1, {FrameType::request, payload_of(set)}, start));
    job.tick(start + 2 * kKept);
    CHECK(job.describe(start + 2 * kKept).if_contains("unused_s") == nullptr);
    const Deadline left = start + 2 * kKept;
    job.closed(1, left);
    CHECK(job.next_deadline() <= left + kKept);
    CHECK(job.describe(left + std::chrono::seconds(90)).at("unused_s").as_int64() == 90);
    job.tick(left + kKept - std::chrono::seconds(1));
    CHECK_FALSE(job.idle());
    job.tick(left + kKept);
    CHECK(job.idle());
    CHECK(job.next_deadline() == Deadline::max());

    // Somebody who comes before it is dropped keeps it, and for as long as the first time.
    REQUIRE(job.enter(2, enter, "", "", left + kKept));
    job.closed(2, left + kKept);
    CHECK_FALSE(job.idle());
    CHECK(job.next_deadline() <= left + 2 * kKept);
    job.tick(left + 2 * kKept);
    CHECK(job.idle());
}

TEST_CASE("a disk that is slow or full keeps nobody from recording, and loses nothing",
          "[daemon]") {
    const TempDir directory;
    const SlowDisk disk;
    const JobId id = job_id_of("job");
    SavedJob record;
    record.id = id;
    record.name = "job";
    HubOptions options;
    options.reconnects = true;
    {
        auto db = StateDb::open(directory.path() + "/state");
        if (!db) FAIL(db.error().message);
        const auto journal = (*db)->journal(id);
        Sink out;
        Hub hub(out, options, journal.get());
        hub.add_peer(1, PeerKind::subtree, kNoRank);
        (*db)->save_job(record);
        (*db)->commit();

        SlowDisk::busy = true;
        ask(hub, 1, {.op = Op::set, .keys = {"slow"}, .values = {"1"}});
        const std::uint64_t first = (*db)->submit();
        ask(hub, 2, {.op = Op::set, .keys = {"later"}, .values = {"2"}});
        const std::uint64_t second = (*db)->submit();
        CHECK((*db)->durable() < first);
        SlowDisk::busy = false;
        (*db)->commit();
        CHECK((*db)->durable() > second);

        CHECK((*db)->fits(1'000));
        SlowDisk::full = true;
        ask(hub, 3, {.op = Op::set, .keys = {"full"}, .values = {"3"}});
        const std::uint64_t third = (*db)->submit();
        while ((*db)->fits(1'000)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        CHECK((*db)->durable() < third);
        SlowDisk::full = false;
        (*db)->commit();
        CHECK((*db)->fits(1'000));

        SlowDisk::over_quota = true;
        ask(hub, 4, {.op = Op::set, .keys = {"quota"}, .values = {"4"}});
        (void)(*db)->submit();
        while ((*db)->fits(1'000)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        SlowDisk::over_quota = false;
        (*db)->commit();
        CHECK((*db)->stop(after(std::chrono::minutes(1))));
    }
    auto db = StateDb::open(directory.path() + "/state");
    if (!db) FAIL(db.error().message);
    Sink out;
    Hub hub(out, options, nullptr);
    (*db)->restore(id, hub, {});
    CHECK(hub.store().size() == 4);
}

TEST_CASE("what a full disk has not taken at the end of a daemon is not told as kept", "[daemon]") {
    const TempDir directory;
    const SlowDisk disk;
    auto db = StateDb::open(directory.path() + "/state");
    if (!db) FAIL(db.error().message);
    SavedJob record;
    record.id = job_id_of("job");
    SlowDisk::full = true;
    (*db)->save_job(record);
    (void)(*db)->submit();
    CHECK_FALSE((*db)->stop(after(std::chrono::minutes(1))));
    SlowDisk::full = false;
}

TEST_CASE("a disk that does not answer keeps no daemon from ending", "[daemon]") {
    const TempDir directory;
    const SlowDisk disk;
    const std::string state = directory.path() + "/state";
    SavedJob record;
    record.id = job_id_of("job");
    {
        auto db = StateDb::open(state);
        if (!db) FAIL(db.error().message);
        SlowDisk::busy = true;
        (*db)->save_job(record);
        (void)(*db)->submit();
        while (SlowDisk::syncs_waiting == 0)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        CHECK_FALSE((*db)->stop(Clock::now()));
        CHECK_FALSE((*db)->stop(Clock::now()));
    }
    CHECK_FALSE(StateDb::open(state).has_value());  // whom it has left behind has it still
    SlowDisk::busy = false;
    Result<std::unique_ptr<StateDb>> again;
    while (!(again = StateDb::open(state)))
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK((*again)->jobs().size() == 1);
}

TEST_CASE("a state directory into which others can write is refused, and so is another user's",
          "[daemon]") {
    const TempDir directory;
    const std::string state = directory.path() + "/state";
    std::filesystem::create_directory(state);
    std::filesystem::permissions(state, std::filesystem::perms{0770});
    const auto shared = StateDb::open(state);
    REQUIRE_FALSE(shared.has_value());
    CHECK_THAT(shared.error().message, Catch::Contains("others can write to it; chmod 700"));
    std::filesystem::permissions(state, std::filesystem::perms{0750});
    CHECK(StateDb::open(state).has_value());
    if (::geteuid() != 0) return;  // only root can give it away
    REQUIRE(::chown(state.c_str(), 12'345, 0) == 0);
    const auto foreign = StateDb::open(state);
    REQUIRE_FALSE(foreign.has_value());
    CHECK_THAT(foreign.error().message, Catch::Contains("it belongs to user 12345"));
}

TEST_CASE("who runs a daemon is told that its disk is slow, and when it is well again",
          "[daemon]") {
    const TempDir directory;
    const SlowDisk disk;
    Deadline now{std::chrono::hours(1)};
    Clock::simulated = &now;
    std::vector<std::string> told;
    log::set_sink(
        [](void* lines, std::string_view line) {
            static_cast<std::vector<std::string>*>(lines)->emplace_back(line);
        },
        &told);
    auto db = StateDb::open(directory.path() + "/state");
    if (!db) FAIL(db.error().message);
    SavedJob record;
    record.id = job_id_of("job");
    SlowDisk::busy = true;
    (*db)->save_job(record);
    (void)(*db)->submit();
    while (SlowDisk::syncs_waiting == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    (*db)->tell_of_disk();
    CHECK(told.empty());
    for (int second = 0; second < 5; ++second) {
        now += std::chrono::seconds(2);
        (*db)->tell_of_disk();
    }
    SlowDisk::busy = false;
    (*db)->commit();
    (*db)->tell_of_disk();
    (*db)->tell_of_disk();
    log::set_sink(nullptr, nullptr);
    Clock::simulated = nullptr;
    REQUIRE(told.size() == 2);
    CHECK_THAT(told[0], Catch::Contains("the disk has been writing for 2 s: answers wait"));
    CHECK_THAT(told[1], Catch::Contains("the disk has taken the changes"));
}

TEST_CASE("what has not changed is not written again", "[daemon]") {
    const TempDir directory;
    const SlowDisk disk;
    SavedJob record;
    record.id = job_id_of("job");
    record.name = "job";
    record.members[MemberId{7}] = "s1";
    auto db = StateDb::open(directory.path() + "/state");
    if (!db) FAIL(db.error().message);
    (*db)->save_job(record);
    (*db)->commit();
    const int before = SlowDisk::writes;
    CHECK(before > 0);
    (*db)->save_job(record);
    (*db)->commit();
    CHECK(SlowDisk::writes == before);
    record.job = "2";
    (*db)->save_job(record);
    (*db)->commit();
    CHECK(SlowDisk::writes > before);
}

TEST_CASE("what a killed daemon had only written is synced before anybody hears of it",
          "[daemon]") {
    const TempDir directory;
    const std::string state = directory.path() + "/state";
    SavedJob record;
    record.id = job_id_of("job");
    record.name = "job";
    {
        auto db = StateDb::open(state);
        REQUIRE(db.has_value());
        (*db)->save_job(record);
        (*db)->commit();
        // What SIGKILL would leave.
        std::filesystem::copy(state, directory.path() + "/left");
    }
    CHECK(std::filesystem::file_size(directory.path() + "/left/state.db-wal") > 0);
    auto db = StateDb::open(directory.path() + "/left");
    REQUIRE(db.has_value());
    CHECK(std::filesystem::file_size(directory.path() + "/left/state.db-wal") == 0);
    CHECK((*db)->jobs().size() == 1);
}

TEST_CASE("a log does not become longer with every commit", "[daemon]") {
    const TempDir directory;
    const std::string log = directory.path() + "/state.db-wal";
    auto db = StateDb::open(directory.path());
    REQUIRE(db.has_value());
    SavedJob record;
    record.id = job_id_of("job");
    std::set<std::uintmax_t> sizes;
    for (int commit = 0; commit < 300; ++commit) {
        record.job = std::to_string(commit);
        (*db)->save_job(record);
        (*db)->commit();
        sizes.insert(std::filesystem::file_size(log));
    }
    CHECK(sizes.size() == 1);
}

namespace {

/// What is logged while it lives.
struct LogLines {
    LogLines() {
        log::set_sink(
            [](void* lines, std::string_view line) {
                static_cast<std::vector<std::string>*>(lines)->emplace_back(line);
            },
            &lines);
    }
    ~LogLines() { log::set_sink(nullptr, nullptr); }
    std::vector<std::string> lines;
};

void flip_a_byte(const std::string& file, std::streamoff at) {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(at);
    const int byte = bytes.get();
    bytes.seekp(at);
    bytes.put(static_cast<char>(byte ^ 1));
}

/// How much has been written of a log that is longer: its header, and pages with a header each.
std::streamoff written_bytes(const std::string& log) {
    const std::string bytes = read_file(log).value();
    const std::size_t page = 4'096 + 24, header = 32;
    const std::size_t last = bytes.find_last_not_of('\0');
    return static_cast<std::streamoff>(header + (last - header) / page * page + page);
}

}  // namespace

TEST_CASE("who starts a daemon on a damaged log is told what is missing", "[daemon]") {
    const TempDir directory;
    const std::string state = directory.path() + "/state", left = directory.path() + "/left";
    SavedJob record;
    record.id = job_id_of("job");
    std::streamoff whole = 0;
    {
        auto db = StateDb::open(state);
        REQUIRE(db.has_value());
        for (std::uint64_t generation = 1; generation <= 5; ++generation) {
            record.job = std::to_string(generation);
            (*db)->save_job(record);
            (*db)->commit();
            if (generation == 3) whole = written_bytes(state + "/state.db-wal");
        }
        std::filesystem::copy(state, left);  // what SIGKILL would leave
    }
    {
        const std::string sound = directory.path() + "/sound";
        std::filesystem::copy(left, sound);
        const LogLines told;
        CHECK(StateDb::open(sound).has_value());
        REQUIRE(told.lines.size() == 1);
        CHECK_THAT(told.lines[0], Catch::Contains("it is a copy"));
        CHECK(StateDb::open(sound).has_value());
        CHECK(told.lines.size() == 1);
    }
    flip_a_byte(left + "/state.db-wal", whole + 100);
    const LogLines told;
    {
        auto db = StateDb::open(left);
        REQUIRE(db.has_value());
        CHECK((*db)->jobs().at(0).job == "3");
    }
    REQUIRE(told.lines.size() == 2);
    CHECK_THAT(told.lines[1], Catch::Contains("the last 2 commits, of which programs were told"));
    CHECK(StateDb::open(left).has_value());
    CHECK(told.lines.size() == 2);  // it is told once
}

TEST_CASE("who starts a daemon on a damaged file is told what can be done", "[daemon]") {
    const TempDir directory;
    const std::string state = directory.path() + "/state";
    {
        auto db = StateDb::open(state);
        REQUIRE(db.has_value());
    }
    flip_a_byte(state + "/state.db", 3);  // "SQLite format 3"
    const auto db = StateDb::open(state);
    REQUIRE_FALSE(db.has_value());
    CHECK_THAT(db.error().message,
               Catch::Contains(
                   "; the state is damaged: restore a backup (dtrun serve --restore FILE --state " +
                   state));
}

TEST_CASE("a state that is removed under its daemon is told as that, and not as a full disk",
          "[daemon]") {
    const TempDir directory;
    const std::string state = directory.path() + "/state", away = directory.path() + "/away";
    auto db = StateDb::open(state);
    REQUIRE(db.has_value());
    const LogLines told;
    SavedJob record;
    record.id = job_id_of("job");
    std::filesystem::rename(state, away);
    (*db)->save_job(record);
    (*db)->commit();
    (*db)->tell_of_disk();
    CHECK((*db)->fits(1'000));
    CHECK_FALSE((*db)->is_removed());  // what is written is there, elsewhere
    CHECK(told.lines.empty());
    std::filesystem::remove_all(away);
    while (!(*db)->is_removed()) {
        (*db)->tell_of_disk();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    (*db)->tell_of_disk();
    (*db)->tell_of_disk();
    REQUIRE(told.lines.size() == 1);
    CHECK_THAT(told.lines[0], Catch::Contains("its state.db was removed"));
}

TEST_CASE("the stores of an older version are taken over, and jobs with members are not",
          "[daemon]") {
    const TempDir directory;
    std::filesystem::create_directories(directory.path() + "/state");
    sqlite3* old = nullptr;
    REQUIRE(sqlite3_open((directory.path() + "/state/state.db").c_str(), &old) == SQLITE_OK);
    const char* schema =
        "CREATE TABLE job(id BLOB PRIMARY KEY, name BLOB, ranks_min INT, ranks_max INT, join_ms "
        "INT,"
        "last_call_ms INT, return_ms INT, has_members INT, phase INT, generation INT);"
        "CREATE TABLE member(job BLOB, member INT, name BLOB, slots INT, peer TEXT, server TEXT,"
        "port INT, ord INT, accepted INT, assignment BLOB, PRIMARY KEY(job, member));"
        "CREATE TABLE value(job BLOB, key BLOB, value BLOB, revision INT, PRIMARY KEY(job, key));"
        "CREATE TABLE item(job BLOB, key BLOB, item INT, value BLOB, revision INT,"
        "PRIMARY KEY(job, key, item));"
        "CREATE TABLE answer(job BLOB, client INT, id INT, reply BLOB,"
        "PRIMARY KEY(job, client, id));"
        "CREATE TABLE fence(job BLOB, name BLOB, frame BLOB, PRIMARY KEY(job, name));"
        "INSERT INTO job VALUES(x'00112233445566778899aabbccddeeff','j',4,4,1,1,1,1,3,1);"
        "INSERT INTO value VALUES(x'00112233445566778899aabbccddeeff','k','v',1);"
        "INSERT INTO job VALUES(x'10112233445566778899aabbccddeeff','store',1,1,1,1,1,0,0,0);"
        "INSERT INTO value VALUES(x'10112233445566778899aabbccddeeff','k','v',8000000000000000);"
        "PRAGMA user_version=1;";
    REQUIRE(sqlite3_exec(old, schema, nullptr, nullptr, nullptr) == SQLITE_OK);
    sqlite3_close(old);
    auto db = StateDb::open(directory.path() + "/state");
    REQUIRE(db.has_value());
    REQUIRE((*db)->jobs().size() == 1);
    CHECK((*db)->reserved() == 8'000'000'000'000'000);
    const SavedJob record = (*db)->jobs()[0];
    CHECK(record.name == "store");
    CHECK(record.policy.empty());
    Sink out;
    Hub hub(out, {}, nullptr);
    (*db)->restore(record.id, hub, {});
    CHECK(hub.store().size() == 1);
    (*db)->journal(record.id)->fence_failed({0, "f", 0, false, "why", {}});
    (*db)->commit();
}

TEST_CASE("owners of the version before keep what they have", "[daemon]") {
    const TempDir directory;
    const std::string state = directory.path() + "/state";
    const JobId id = job_id_of("job");
    {
        auto db = StateDb::open(state);
        REQUIRE(db.has_value());
        (*db)->save_job({id, "job", {}, {}, {}, {}});
        const auto journal = (*db)->journal(id);
        journal->value_set("mine", "1", {77, 5});
        journal->item_pushed("q", 78, "item", 78);
        journal->item_claimed("q", 78, {5, {5, 1}}, 79);
        (*db)->commit();
    }
    sqlite3* old = nullptr;
    REQUIRE(sqlite3_open((state + "/state.db").c_str(), &old) == SQLITE_OK);
    add_sum_function(old);
    const char* before =
        "ALTER TABLE value DROP COLUMN client; ALTER TABLE value DROP COLUMN request;"
        "ALTER TABLE item DROP COLUMN client; ALTER TABLE item DROP COLUMN request;"
        "UPDATE value SET sum=sum_of(job,key,value,revision,owner,expires);"
        "UPDATE item SET sum=sum_of(job,key,item,value,revision,owner);"
        "ALTER TABLE job DROP COLUMN used; UPDATE job SET sum=sum_of(id,name,policy,record);"
        "DROP TABLE reserved; DROP TABLE served; PRAGMA user_version=8;";
    REQUIRE(sqlite3_exec(old, before, nullptr, nullptr, nullptr) == SQLITE_OK);
    sqlite3_close(old);
    auto db = StateDb::open(state);
    REQUIRE(db.has_value());
    CHECK((*db)->damaged().empty());
    CHECK((*db)->reserved() == 78);
    Sink out;
    Hub hub(out, {}, nullptr);
    (*db)->restore(id, hub, {});
    CHECK(hub.store().size() == 2);
    CHECK(hub.store().owners() == std::vector<std::uint64_t>{5});
    (*db)->journal(id)->item_claimed("q", 78, {6, {6, 1}}, 80);
    (*db)->commit();
    db->reset();
    db = StateDb::open(state);
    REQUIRE(db.has_value());
    CHECK((*db)->damaged().empty());
    CHECK((*db)->jobs().size() == 1);
}

TEST_CASE("when a job was used is written down once an hour", "[daemon]") {
    const TempDir directory;
    const JobId id = job_id_of("job");
    for (const auto& [said, kept] :
         {std::pair(100, 100), std::pair(200, 100), std::pair(3700, 3700)}) {
        {
            auto db = StateDb::open(directory.path());
            REQUIRE(db.has_value());
            (void)(*db)->jobs();
            SavedJob job{id, "job", {}, {}, {}, {}};
            job.used = std::chrono::seconds(said);
            (*db)->save_job(job);
            (*db)->commit();
        }
        auto db = StateDb::open(directory.path());
        REQUIRE(db.has_value());
        CHECK((*db)->damaged().empty());
        CHECK((*db)->jobs().at(0).used == std::chrono::seconds(kept));
    }
}

TEST_CASE("who used a store has time to come back to a daemon that starts again", "[daemon]") {
    const TempDir directory;
    SavedJob used_long_ago{job_id_of("long ago"), "long ago", {}, {}, {}, {}};
    SavedJob used_of_late{job_id_of("of late"), "of late", {}, {}, {}, {}};
    used_long_ago.used = std::chrono::seconds(100);
    used_of_late.used = std::chrono::hours(10);
    {
        auto db = StateDb::open(directory.path());
        REQUIRE(db.has_value());
        for (const SavedJob& job : {used_long_ago, used_of_late}) {
            (*db)->save_job(job);
            (*db)->journal(job.id)->value_set("key", "value", {77});
        }
        (*db)->commit();
    }
    auto db = StateDb::open(directory.path());
    REQUIRE(db.has_value());
    CHECK((*db)->served() >= used_of_late.used);
    const auto unused = [&](const SavedJob& record) {
        ServedJob::Options options = Job::options();
        options.keep_unused = std::chrono::hours(3);
        Sink out;
        const Deadline now = Clock::now();
        const ServedJob job(record, options, out, **db, now, std::chrono::seconds(15));
        return std::chrono::duration_cast<std::chrono::seconds>(job.next_deadline() - now);
    };
    CHECK(unused(used_long_ago) == std::chrono::seconds(15));
    CHECK(unused(used_of_late) == std::chrono::hours(3));
}

TEST_CASE("a state directory serves one daemon at a time, and none of another format", "[daemon]") {
    const TempDir directory;
    {
        const auto first = StateDb::open(directory.path() + "/state");
        REQUIRE(first.has_value());
        const auto second = StateDb::open(directory.path() + "/state");
        REQUIRE_FALSE(second.has_value());
        CHECK(second.error().message.find("another dtrun serve uses it") != std::string::npos);
    }
    CHECK(StateDb::open(directory.path() + "/state").has_value());
    std::filesystem::create_directories(directory.path() + "/text");
    directory.write("text/state.db", "this is no database, but long enough to be taken for one");
    CHECK_FALSE(StateDb::open(directory.path() + "/text").has_value());
}

TEST_CASE("a secret that could be guessed is refused", "[daemon]") {
    const std::string digits = "f4a1c09b83d2e67554fe0912ab37c8d0";
    CHECK(secret_of_text(digits + " \r\n")->bytes()[0] == sha256(digits)[0]);
    for (const std::string& poor :
         {std::string("cluster-password"), digits.substr(1) + "\n", std::string(64, 'a'),
          std::string("12121212121212121212121212121212"), digits + std::string(65'536, 'a')}) {
        const auto secret = secret_of_text(poor);
        REQUIRE_FALSE(secret.has_value());
        CHECK(
            secret.error().message ==
            "a secret has 32 to 65536 bytes, 8 different ones at least: make it with `openssl rand "
            "-hex 32`");
    }
}

TEST_CASE("the key of a job follows from its name and the daemon's secret", "[daemon]") {
    const Secret one{std::array<std::uint8_t, 32>{1}}, two{std::array<std::uint8_t, 32>{2}};
    CHECK(job_id_of("a") == job_id_of("a"));
    CHECK(job_id_of("a") != job_id_of("b"));
    const auto key = [](const Secret& secret, const char* name) {
        return hex(job_secret_of(secret, job_id_of(name)).bytes());
    };
    CHECK(key(one, "a") == key(one, "a"));
    CHECK(key(one, "a") != key(one, "b"));
    CHECK(key(one, "a") != key(two, "a"));
    // Other languages must come to the same.
    CHECK(hex(job_id_of("train")) == "6a464a8dce78c9d7e4aac5f647750b03");
    CHECK(key(one, "train") == "47a57b498c4953e0a72e321e56a2b6fc8da8f9e31c60f916ed9c4606cd3706d4");
}

}  // namespace dtrun
