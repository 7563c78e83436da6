#include "worker/agent/demo_rank.h"

#include "base/fd.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/strings.h"
#include "base/text_layout.h"
#include "rendezvous/links/link.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/store_request.h"

#include <sched.h>
#include <unistd.h>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <utility>

namespace dtrun::agent {
namespace {

constexpr int kTimes = 20;                 // of what is measured
constexpr std::uint32_t kRanksShown = 64;  // in larger jobs one rank speaks for its host
constexpr std::string_view kKey = "demo/greeting", kGreeting = "hello";

using Span = std::chrono::duration<double, std::milli>;

std::string time_text(Span all) {
    return fmt::format("{:.2f} ms", all.count() / kTimes);
}

int processors_here() {
    cpu_set_t set;
    return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/// One rank, connected to its agent.
class DemoRank {
public:
    explicit DemoRank(Unix::socket socket) : link_(std::move(socket)) {}

    asio::awaitable<Result<void>> run(Rank rank) {
        TaskGroup writer(co_await asio::this_coro::executor);
        writer.spawn(link_.run_writer());
        auto done = co_await greet(rank);
        if (done) done = co_await meet_all();
        co_await link_.flush();
        link_.close();
        co_await writer.join();
        co_return done;
    }

private:
    /// The next frame of a type. Errc: closed; denied (the agent refuses us)
    asio::awaitable<Result<std::string>> next(FrameType type) {
        for (;;) {
            const auto frame = link_.next();
            if (!frame) co_return std::unexpected(frame.error());
            if (!*frame) {
                const auto received = co_await link_.receive();
                if (!received) co_return fail(received.error(), "the agent of this host");
            } else if ((*frame)->type == FrameType::refuse) {
                const auto refuse = decode<Refuse>((*frame)->payload);
                co_return fail(Errc::denied, "{}", refuse ? refuse->reason : "refused");
            } else if ((*frame)->type == type) {
                co_return std::string((*frame)->payload);
            }
        }
    }

    asio::awaitable<Result<void>> greet(Rank rank) {
        Hello hello;
        hello.rank = rank;
        hello.pid = ::getpid();
        link_.send(encode(hello));
        const auto payload = co_await next(FrameType::welcome);
        if (!payload) co_return std::unexpected(payload.error());
        const auto welcome = decode<Welcome>(*payload);
        if (!welcome) co_return std::unexpected(welcome.error());
        place_ = *welcome;
        const bool is_many = place_.world_size > kRanksShown;
        if (is_many && place_.local_rank > 0) co_return Result<void>{};
        const std::string others =
            is_many ? fmt::format(" with {} others", place_.local_size - 1) : "";
        co_return say(fmt::format("rank {} of {} runs on {}{}: process {}, {}", place_.rank,
                                  place_.world_size, place_.host_name, others, ::getpid(),
                                  plural(static_cast<unsigned>(processors_here()), "processor")));
    }

    asio::awaitable<Result<void>> meet_all() {
        Span meetings{}, exchanges{};
        if (auto done = co_await timed(&DemoRank::meet, meetings); !done) co_return done;
        if (place_.rank == Rank{0}) {
            if (auto done = co_await timed(&DemoRank::exchange, exchanges); !done) co_return done;
            auto told = say(fmt::format(
                "all {} on {} have met, which takes {}; to write a key of the job's store and to "
                "read it takes {}",
                plural(place_.world_size, "rank"), plural(place_.node_count, "host"),
                time_text(meetings), time_text(exchanges)));
            if (!told) co_return told;
        }
        Span last{};
        co_return co_await timed(&DemoRank::meet, last);  // nobody goes before rank 0 is done
    }

    asio::awaitable<Result<void>> timed(asio::awaitable<Result<void>> (DemoRank::*what)(),
                                        Span& span) {
        const auto begin = Clock::now();
        Result<void> done;
        for (int i = 0; done && i < kTimes; ++i) done = co_await (this->*what)();
        span = Clock::now() - begin;
        co_return done;
    }

    /// Comes to a fence of all ranks, and learns that they all have come.
    asio::awaitable<Result<void>> meet() {
        link_.send(encode(Fence{.generation = place_.generation,
                                .name = "demo",
                                .round = round_++,
                                .ranks = 1,
                                .entries = {{place_.rank, place_.host_name}}}));
        const auto payload = co_await next(FrameType::fenced);
        if (!payload) co_return std::unexpected(payload.error());
        const auto fenced = decode<Fenced>(*payload);
        if (!fenced) co_return std::unexpected(fenced.error());
        if (!fenced->complete)
            co_return fail(Errc::closed, "the ranks did not meet: {}", fenced->why);
        if (fenced->entries.size() == place_.world_size) co_return Result<void>{};
        co_return fail(Errc::internal, "{} of {} ranks were at a fence", fenced->entries.size(),
                       place_.world_size);
    }

    asio::awaitable<Result<void>> exchange() {
        const StoreRequest set{.op = Op::set, .keys = {kKey}, .values = {kGreeting}};
        if (auto done = co_await ask(set); !done) co_return std::unexpected(done.error());
        const StoreRequest get{.op = Op::get, .keys = {kKey}};
        const auto reply = co_await ask(get);
        if (!reply) co_return std::unexpected(reply.error());
        if (reply->find(kGreeting) != std::string::npos) co_return Result<void>{};
        co_return fail(Errc::internal, "the store has another value than was written");
    }

    asio::awaitable<Result<std::string>> ask(StoreRequest request) {
        link_.send(encode_request({client_, ++id_}, request, 0));
        const auto payload = co_await next(FrameType::reply);
        if (!payload) co_return std::unexpected(payload.error());
        const auto reply = decode_reply(*payload);
        if (!reply) co_return std::unexpected(reply.error());
        if (reply->header.status != Status::ok)
            co_return fail(Errc::internal, "the store refuses a request");
        co_return std::string(reply->results);
    }

    static Result<void> say(const std::string& text) {
        return write_all(STDOUT_FILENO, text + "\n");
    }

    Link link_;
    Welcome place_;
    std::uint64_t round_ = 0;
    std::uint64_t client_ = random_id();
    std::uint64_t id_ = 0;
};

asio::awaitable<Result<void>> be_rank() {
    const char* const socket = std::getenv("DTRUN_SOCKET");
    const char* const rank = std::getenv("DTRUN_RANK");
    const auto number = to_int(rank == nullptr ? "" : rank, 0, UINT32_MAX - 1);
    if (socket == nullptr || !number)
        co_return fail(Errc::invalid_input, "this is a rank of `dtrun demo`, which starts it");
    std::string name = socket;
    if (name.starts_with('@')) name.front() = '\0';
    Unix::socket connection(co_await asio::this_coro::executor);
    const Unix::endpoint endpoint(name);
    const auto [error] = co_await connection.async_connect(endpoint, use_tuple);
    if (error) co_return fail(Errc::unreachable, "DTRUN_SOCKET: {}", error.message());
    DemoRank demo(std::move(connection));
    const Rank own{static_cast<std::uint32_t>(*number)};
    co_return co_await demo.run(own);
}

}  // namespace

int run_demo_rank() {
    ::signal(SIGPIPE, SIG_IGN);
    log::init("dtrun demo", log::Level::normal);
    asio::io_context io(1);
    Result<void> done;
    asio::co_spawn(io, be_rank(), [&done](std::exception_ptr error, Result<void> result) {
        if (error) std::rethrow_exception(error);
        done = std::move(result);
    });
    io.run();
    if (done) return 0;
    log::error("{}", done.error().message);
    return 1;
}

}  // namespace dtrun::agent
