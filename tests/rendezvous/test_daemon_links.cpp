// A whole daemon, and members that speak to it over loopback.

#include "rendezvous/daemon/daemon.h"
#include "rendezvous/links/client.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/job_key.h"
#include "rendezvous/wire/member_messages.h"
#include "rendezvous/wire/msgpack.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/request.h"
#include "rendezvous/wire/sent_frames.h"
#include "rendezvous/wire/store_request.h"
#include "tests/rendezvous/slow_disk.h"
#include "tests/support/catch.h"
#include "tests/support/loop.h"
#include "tests/support/temp_dir.h"

#include <algorithm>
#include <boost/json.hpp>
#include <csignal>

namespace dtrun {
namespace {

struct Fixture {
    explicit Fixture(DaemonOptions options) : daemon(io.get_executor(), std::move(options)) {
        if (auto done = daemon.restore(); !done) FAIL(done.error().message);
        port = daemon.listen({"127.0.0.1"}, 0).value();
        daemon.start();
    }
    static DaemonOptions options(const Secret& secret, std::string state = {}) {
        DaemonOptions options;
        options.secret = secret;
        options.heartbeat_timeout = std::chrono::milliseconds(200);
        options.state_directory = std::move(state);
        return options;
    }
    /// Somebody who looks into the job's store, and says nothing by itself.
    asio::awaitable<std::shared_ptr<Link>> enter(Secret secret, std::string name = "job") {
        Enter enter;
        enter.job_name = name;
        co_return co_await enter_as(secret, enter);
    }
    asio::awaitable<std::shared_ptr<Link>> enter_as(Secret secret, Enter enter) {
        const JobId job = job_id_of(enter.job_name);
        const Credentials credentials{job, job_secret_of(secret, job)};
        const std::vector<std::string> here{"127.0.0.1"};
        const Deadline limit = after(std::chrono::seconds(5));
        auto connection = co_await connect_to_server(here, port, credentials, limit);
        REQUIRE(connection.has_value());
        auto link = std::make_shared<Link>(std::move(*connection));
        enter.member = MemberId{++last_member};
        link->send(encode(enter));
        co_return link;
    }

    asio::io_context io;
    Daemon daemon;
    std::uint16_t port = 0;
    std::uint64_t last_member = 0;
};

/// The type of the next frame; nothing: the connection has ended.
asio::awaitable<std::optional<FrameType>> next_frame(Link& link) {
    for (;;) {
        const auto frame = link.next();
        if (!frame) co_return std::nullopt;
        if (*frame) co_return (*frame)->type;
        const auto received = co_await link.receive();
        if (!received) co_return std::nullopt;
    }
}

/// Asks for a large value again and again, while none can be told.
asio::awaitable<bool> ask_for_more_than_is_held(Fixture& it, const Secret& secret) {
    constexpr std::size_t kBytes = 1u << 20;
    constexpr std::uint64_t kRequests = 200;
    const auto link = co_await it.enter(secret);
    TaskGroup writer(it.io.get_executor());
    writer.spawn(link->run_writer());
    const std::string large(kBytes, 'x');
    const StoreRequest set{.op = Op::set, .keys = {"key"}, .values = {large}};
    link->send(encode_request({5, 1, 0}, set, 0));
    std::optional<FrameType> type = FrameType::heartbeat;
    while (type == FrameType::heartbeat) type = co_await next_frame(*link);
    SlowDisk::busy = true;
    const StoreRequest change{.op = Op::add, .keys = {"n"}, .delta = 1};
    link->send(encode_request({5, 2, 0}, change, 0));
    for (std::uint64_t id = 3; id < kRequests; ++id) {
        // Each another value, as equal results are held once.
        const StoreRequest get{.op = Op::append, .keys = {"key"}, .values = {"y"}};
        const StoreRequest look{.op = Op::get, .keys = {"key"}};
        link->send(encode_request({5, id, 0}, id % 2 == 0 ? get : look, 0));
    }
    std::int64_t most = 0;
    Timer timer(it.io);
    for (int times = 0; times < 20; ++times) {
        timer.expires_after(std::chrono::milliseconds(10));
        co_await timer.async_wait(use_tuple);
        const boost::json::value status = boost::json::parse(it.daemon.status(""));
        most = std::max(most, status.at("unsent_bytes").as_int64());
    }
    CHECK(most > std::int64_t{kBytes});
    CHECK(most < std::int64_t{Link::kFullBytes + 4 * kBytes});
    SlowDisk::busy = false;
    for (std::uint64_t replies = 2; replies < kRequests;) {
        const auto next = co_await next_frame(*link);
        REQUIRE(next.has_value());
        replies += *next == FrameType::reply ? 1 : 0;
        if (*next == FrameType::heartbeat) link->send(encode(Heartbeat{}));
    }
    const boost::json::value told = boost::json::parse(it.daemon.status(""));
    CHECK(told.at("clients").as_int64() == 1);
    CHECK(told.at("operations").at("add").as_int64() == 1);
    CHECK(told.at("sent_bytes").as_int64() > told.at("received_bytes").as_int64());
    CHECK(told.at("commits").at("count").as_int64() > 0);
    CHECK(told.at("fsyncs").at("sum_s").to_number<double>() <=
          told.at("commits").at("sum_s").to_number<double>());
    link->close();
    co_await writer.join();
    co_await it.daemon.stop();
    co_return true;
}

asio::awaitable<std::uint32_t> hear_timeout(Fixture& it, const Secret& secret) {
    const auto link = co_await it.enter(secret);
    std::uint32_t timeout_ms = 0;
    while (timeout_ms == 0) {
        const auto frame = link->next();
        REQUIRE(frame.has_value());
        if (!*frame) {
            const auto received = co_await link->receive();
            REQUIRE(received.has_value());
        } else if ((*frame)->type == FrameType::heartbeat) {
            timeout_ms = decode<Heartbeat>((*frame)->payload)->timeout_ms;
        }
    }
    link->close();
    co_await it.daemon.stop();
    co_return timeout_ms;
}

asio::awaitable<bool> write_to_a_slow_disk(Fixture& it, const Secret& secret) {
    const auto link = co_await it.enter(secret);
    SlowDisk::busy = true;
    const StoreRequest set{.op = Op::set, .keys = {"key"}, .values = {"value"}};
    link->send(encode_request({5, 1, 0}, set, 0));
    for (int beats = 0; beats < 3;) {
        const auto type = co_await next_frame(*link);
        REQUIRE(type.has_value());
        CHECK(*type != FrameType::reply);
        beats += *type == FrameType::heartbeat ? 1 : 0;
        link->send(encode(Heartbeat{}));
    }
    SlowDisk::busy = false;
    std::optional<FrameType> type = FrameType::heartbeat;
    while (type == FrameType::heartbeat) type = co_await next_frame(*link);
    CHECK(type == FrameType::reply);
    link->close();
    co_await it.daemon.stop();
    co_return true;
}

/// The id of the next answer.
asio::awaitable<std::uint64_t> next_answer(Link& link) {
    for (;;) {
        const auto frame = link.next();
        REQUIRE(frame.has_value());
        if (!*frame) {
            const auto received = co_await link.receive();
            REQUIRE(received.has_value());
        } else if ((*frame)->type == FrameType::reply) {
            co_return decode_reply((*frame)->payload)->header.id;
        }
    }
}

/// What the next answer says: its status, and its first result if that is a boolean.
asio::awaitable<std::pair<Status, bool>> next_result(Link& link) {
    for (;;) {
        const auto frame = link.next();
        REQUIRE(frame.has_value());
        if (!*frame) {
            const auto received = co_await link.receive();
            REQUIRE(received.has_value());
        } else if ((*frame)->type == FrameType::reply) {
            const auto reply = decode_reply((*frame)->payload);
            REQUIRE(reply.has_value());
            PackReader in(reply->results);
            in.array();
            co_return std::pair(reply->header.status, in.boolean());
        }
    }
}

using Outcome = std::pair<Status, bool>;

asio::awaitable<bool> drop_a_job(Fixture& it, const Secret& secret) {
    const auto first = co_await it.enter(secret);
    first->send(encode_request({5, 1, 0}, {.op = Op::set, .keys = {"k"}, .values = {"v"}}, 0));
    auto result = co_await next_result(*first);
    CHECK(result.first == Status::ok);
    first->send(
        encode_request({5, 2, 0}, {.op = Op::get, .keys = {"later"}, .timeout_ms = kForeverMs}, 0));
    const auto second = co_await it.enter(secret);
    second->send(encode_request({6, 1, 0}, {.op = Op::drop}, 0));
    // Heartbeats that are under way when the job goes are no mistake.
    for (int beats = 0; beats < 3; ++beats) second->send(encode(Heartbeat{}));
    result = co_await next_result(*second);
    CHECK(result == Outcome(Status::ok, true));
    result = co_await next_result(*first);
    CHECK(result.first == Status::stale);
    for (const auto& link : {first, second}) {
        std::optional<FrameType> type = FrameType::heartbeat;
        while (type == FrameType::heartbeat) type = co_await next_frame(*link);
        CHECK_FALSE(type.has_value());
        link->close();
    }
    const auto third = co_await it.enter(secret);
    third->send(encode_request({7, 1, 0}, {.op = Op::get, .keys = {"k"}}, 0));
    result = co_await next_result(*third);
    CHECK(result.first == Status::not_found);
    third->send(encode_request({7, 2, 0}, {.op = Op::drop}, 0));
    result = co_await next_result(*third);
    CHECK(result == Outcome(Status::ok, false));
    third->close();
    co_await it.daemon.stop();
    co_return true;
}

asio::awaitable<bool> fill_two_jobs(Fixture& it, const Secret& secret) {
    const std::string value(600, 'v');
    const StoreRequest set{.op = Op::set, .keys = {"k"}, .values = {value}};
    const auto one = co_await it.enter(secret, "one");
    const auto other = co_await it.enter(secret, "other");
    one->send(encode_request({5, 1, 0}, set, 0));
    auto result = co_await next_result(*one);
    CHECK(result.first == Status::ok);
    other->send(encode_request({6, 1, 0}, set, 0));
    result = co_await next_result(*other);
    CHECK(result.first == Status::refused);
    one->send(encode_request({5, 2, 0}, {.op = Op::erase, .keys = {"k"}}, 0));
    result = co_await next_result(*one);
    CHECK(result.first == Status::ok);
    other->send(encode_request({6, 2, 0}, set, 0));
    result = co_await next_result(*other);
    CHECK(result.first == Status::ok);
    for (const auto& link : {one, other}) link->close();
    co_await it.daemon.stop();
    co_return true;
}

asio::awaitable<bool> change_what_is_watched(Fixture& it, const Secret& secret) {
    constexpr std::uint64_t kChanges = 50;
    const std::string value(600, 'v');
    const StoreRequest set{.op = Op::set, .keys = {"k"}, .values = {value}};
    const auto one = co_await it.enter(secret, "one");
    one->send(encode_request({5, 1, 0}, {.op = Op::watch_prefix, .keys = {""}}, 0));
    auto result = co_await next_result(*one);
    CHECK(result.first == Status::ok);
    for (std::uint64_t id = 2; id < kChanges; ++id) {
        one->send(encode_request({5, id, 0}, set, 0));
        result = co_await next_result(*one);
        CHECK(result.first == Status::ok);
    }
    one->close();
    co_await it.daemon.stop();
    co_return true;
}

asio::awaitable<bool> ask_for_status_beside_a_slow_disk(Fixture& it, const Secret& secret) {
    const auto link = co_await it.enter(secret);
    SlowDisk::busy = true;
    const StoreRequest set{.op = Op::set, .keys = {"key"}, .values = {"value"}};
    link->send(encode_request({5, 1, 0}, set, 0));
    link->send(encode_request({5, 2, 1}, {.op = Op::status}, 0));
    const std::uint64_t first = co_await next_answer(*link);
    CHECK(first == 2);
    SlowDisk::busy = false;
    const std::uint64_t second = co_await next_answer(*link);
    CHECK(second == 1);
    link->close();
    co_await it.daemon.stop();
    co_return true;
}

/// A member whose rank fails again and again, and that never says that it has heard of it.
asio::awaitable<bool> be_deaf_beside_another(Fixture& it, const Secret& secret) {
    constexpr std::uint64_t kGenerations = 600;
    const auto other = co_await it.enter(secret, "other");
    const StoreRequest wait{.op = Op::get, .keys = {"later"}, .timeout_ms = 10};
    other->send(encode_request({5, 1, 0}, wait, 0));
    std::uint64_t answered = co_await next_answer(*other);
    CHECK(answered == 1);
    Enter enter;
    enter.job_name = "deaf";
    enter.slots = 1;
    enter.policy.rank_failures_max = kGenerations;
    const auto deaf = co_await it.enter_as(secret, enter);
    SentFrames said;
    Exited exited;
    exited.pid = exited.code = 1;
    for (std::uint64_t generation = 1; generation < kGenerations; ++generation) {
        deaf->send(said.add(encode(exited)));
        deaf->send(said.add(encode(Paused{generation + 1})));
    }
    std::optional<FrameType> type = FrameType::heartbeat;
    while (type && type != FrameType::stop) type = co_await next_frame(*deaf);
    CHECK(type == FrameType::stop);
    other->send(encode_request({5, 2, 0}, wait, 0));
    answered = co_await next_answer(*other);
    CHECK(answered == 2);
    for (const auto& link : {deaf, other}) link->close();
    co_await it.daemon.stop();
    co_return true;
}

/// Reads until the daemon has closed the link.
asio::awaitable<void> read_to_end(std::shared_ptr<Link> link, bool& ended) {
    for (;;) {
        const auto type = co_await next_frame(*link);
        if (!type) break;
    }
    ended = true;
}

asio::awaitable<bool> be_silent_two_ways(Fixture& it, const Secret& secret) {
    const auto stopped = co_await it.enter(secret);
    const auto silent = co_await it.enter(secret);
    stopped->send(encode(SignalRanks{SIGTSTP}));
    bool stopped_ended = false, silent_ended = false;
    TaskGroup readers(it.io.get_executor());
    readers.spawn(read_to_end(stopped, stopped_ended));
    co_await read_to_end(silent, silent_ended);
    CHECK_FALSE(stopped_ended);
    // Now it runs again, as far as the daemon knows, and its silence counts.
    stopped->send(encode(SignalRanks{SIGCONT}));
    co_await readers.join();
    CHECK(stopped_ended);
    co_await it.daemon.stop();
    co_return true;
}

}  // namespace

TEST_CASE("a daemon's heartbeats say what its heartbeat timeout is", "[daemon]") {
    const Secret secret = Secret::random();
    Fixture it(Fixture::options(secret));
    CHECK(run_to_end(it.io, hear_timeout(it, secret)) == 200);
}

TEST_CASE("a daemon whose disk is slow answers later, and its heartbeats go on", "[daemon]") {
    const TempDir directory;
    const SlowDisk disk;
    const Secret secret = Secret::random();
    Fixture it(Fixture::options(secret, directory.path() + "/state"));
    run_to_end(it.io, write_to_a_slow_disk(it, secret));
}

TEST_CASE("a job that is dropped is gone, also from the disk, when the answer comes", "[daemon]") {
    const TempDir directory;
    const std::string state = directory.path() + "/state";
    const Secret secret = Secret::random();
    {
        DaemonOptions options = Fixture::options(secret, state);
        options.heartbeat_timeout = std::chrono::minutes(1);  // who says nothing is not lost
        Fixture it(options);
        run_to_end(it.io, drop_a_job(it, secret));
    }
    auto db = StateDb::open(state);
    if (!db) FAIL(db.error().message);
    CHECK((*db)->jobs().empty());
}

TEST_CASE("the stores of all jobs together have a limit, and what is erased makes room",
          "[daemon]") {
    const Secret secret = Secret::random();
    DaemonOptions options = Fixture::options(secret);
    options.store_bytes_max = 1'000;
    options.heartbeat_timeout = std::chrono::minutes(1);  // who says nothing is not lost
    Fixture it(options);
    run_to_end(it.io, fill_two_jobs(it, secret));
}

TEST_CASE("changes that are remembered for watches keep nobody from writing", "[daemon]") {
    const Secret secret = Secret::random();
    DaemonOptions options = Fixture::options(secret);
    options.store_bytes_max = 10'000;
    options.heartbeat_timeout = std::chrono::minutes(1);  // who says nothing is not lost
    Fixture it(options);
    run_to_end(it.io, change_what_is_watched(it, secret));
}

TEST_CASE("a daemon says how it is while its disk is slow", "[daemon]") {
    const TempDir directory;
    const SlowDisk disk;
    const Secret secret = Secret::random();
    Fixture it(Fixture::options(secret, directory.path() + "/state"));
    run_to_end(it.io, ask_for_status_beside_a_slow_disk(it, secret));
}

TEST_CASE("a daemon with a slow disk does not hear who asks for more than it may hold",
          "[daemon]") {
    const TempDir directory;
    const SlowDisk disk;
    const Secret secret = Secret::random();
    Fixture it(Fixture::options(secret, directory.path() + "/state"));
    run_to_end(it.io, ask_for_more_than_is_held(it, secret));
}

TEST_CASE("a daemon gives up who is silent, but not who was stopped by its user", "[daemon]") {
    const Secret secret = Secret::random();
    Fixture it(Fixture::options(secret));
    run_to_end(it.io, be_silent_two_ways(it, secret));
}

TEST_CASE("a member that does not hear what it is told stops no timer of another job", "[daemon]") {
    const Secret secret = Secret::random();
    DaemonOptions options = Fixture::options(secret);
    options.heartbeat_timeout = std::chrono::minutes(1);  // who says nothing is not lost
    Fixture it(options);
    run_to_end(it.io, be_deaf_beside_another(it, secret));
}

}  // namespace dtrun
