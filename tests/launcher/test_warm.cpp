// Log-ins that stay for later jobs: when one is taken, by whom, and when it is left.
#include "launcher/cli/flags.h"
#include "launcher/holder/held_host.h"
#include "launcher/holder/holder.h"
#include "launcher/warm/holder_client.h"
#include "launcher/warm/warm_hosts.h"
#include "launcher/warm/warm_key.h"
#include "launcher/warm/warm_place.h"
#include "rendezvous/wire/message.h"
#include "tests/support/catch.h"
#include "tests/support/loop.h"
#include "tests/support/temp_dir.h"
#include "tests/support/virtual_time.h"

#include <sys/stat.h>
#include <deque>
#include <set>

namespace dtrun {
namespace {

using namespace warm;
using std::chrono::milliseconds;
using std::chrono::minutes;

/// A keeper in memory: agents that it starts say who they are, and end with their input.
class FakeKeeper final : public transport::Channel {
public:
    struct Ways {
        bool silent = false;       ///< it starts nothing
        bool fails = false;        ///< what it starts does not become an agent
        bool takes_input = true;   ///< else write() does not return
        bool ends = true;          ///< when it is to, else not
        bool is_reachable = true;  ///< else the log-in does not end
        bool is_booting = false;   ///< nothing listens at its port yet
        int logins = 0;
        int begun = 0;        ///< log-ins, also such that do not end
        std::string secrets;  ///< all that agents have been told
        FakeKeeper* last = nullptr;
    };
    FakeKeeper(const asio::any_io_executor& executor, Ways& ways)
        : ways_(ways), news_(executor, Timer::time_point::max()) {
        ways.last = this;
        ++ways.logins;
        said_ = fmt::format("dtrun-agent {} build\n", kProtocolVersion);
    }
    ~FakeKeeper() override {
        if (ways_.last == this) ways_.last = nullptr;
    }

    asio::awaitable<Result<std::size_t>> read(std::span<char> into, Deadline) override {
        while (said_.empty() && !ended_ && !closed_) co_await news_.async_wait(use_tuple);
        if (closed_) co_return fail(Errc::cancelled, "closed");
        const std::size_t n = said_.copy(into.data(), into.size());
        said_.erase(0, n);
        co_return n;
    }
    asio::awaitable<Result<void>> write(std::string_view bytes, Deadline) override {
        while (!ways_.takes_input && !closed_) co_await news_.async_wait(use_tuple);
        heard_ += bytes;
        std::string_view rest = heard_;
        for (auto frame = next_frame(rest); frame && *frame; frame = next_frame(rest))
            take(*decode<WarmStream>((*frame)->payload));
        heard_.erase(0, heard_.size() - rest.size());
        co_return Result<void>{};
    }
    std::string take_errors() override { return {}; }
    asio::awaitable<std::string> ending(Deadline) override { co_return std::string(); }
    void close() noexcept override {
        closed_ = true;
        news_.cancel();
    }
    void end_here() {
        ended_ = true;
        news_.cancel();
    }
    void look() { news_.cancel(); }

private:
    void take(const WarmStream& said) {
        if (ways_.silent) return;
        if (said.event == WarmEvent::open && ways_.fails) {
            say(said.stream, WarmEvent::errors, "no room for a process\n");
            say(said.stream, WarmEvent::output_end);
            return say(said.stream, WarmEvent::exited, "it cannot be started");
        }
        if (said.event == WarmEvent::open)
            say(said.stream, WarmEvent::output, fmt::format("agent {}\n", said.stream));
        if (said.event == WarmEvent::input) ways_.secrets += said.bytes;
        if (said.event != WarmEvent::input_end) return;
        if (said.stream == 0 && !ways_.ends) return;
        if (said.stream == 0) return end_here();
        say(said.stream, WarmEvent::output_end);
        say(said.stream, WarmEvent::exited, "ended with exit code 0");
    }
    void say(std::uint32_t stream, WarmEvent event, std::string_view bytes = {}) {
        WarmStream said;
        said.stream = stream;
        said.event = event;
        said.bytes = bytes;
        said_ += encode(said);
        news_.cancel();
    }

    Ways& ways_;
    Timer news_;
    std::string said_, heard_;
    bool ended_ = false, closed_ = false;
};

WarmRequest release_of(std::vector<std::string> hosts) {
    WarmRequest request;
    request.wish = WarmWish::release;
    request.hosts = std::move(hosts);
    return request;
}

/// A holder of hosts "s1" to "sN" with the keys "key of s1" and so on, in a folder of its own.
class HeldHere {
public:
    /// \param unreachable  the host whose log-in does not end; 0: none
    /// \param booting      those that nothing listens on yet, which are awaited for a minute
    explicit HeldHere(int hosts, milliseconds keep = minutes(10), int unreachable = 0,
                      const std::set<int>& booting = {}) {
        ::chmod(folder_.path().c_str(), 0700);
        std::vector<holder::Holder::Host> held;
        for (int i = 1; i <= hosts; ++i) {
            const std::string name = fmt::format("s{}", i);
            FakeKeeper::Ways& ways = keepers[name];
            ways.is_reachable = i != unreachable;
            ways.is_booting = booting.contains(i);
            const auto open = [this, &ways](Deadline, std::function<void(const char*)>)
                -> asio::awaitable<Result<std::unique_ptr<transport::Channel>>> {
                ++ways.begun;
                Timer forever(io.get_executor(), Timer::time_point::max());
                if (ways.is_booting) co_return fail(Errc::unreachable, "connection refused");
                while (!ways.is_reachable) co_await forever.async_wait(asio::use_awaitable);
                std::unique_ptr<transport::Channel> channel =
                    std::make_unique<FakeKeeper>(io.get_executor(), ways);
                co_return channel;
            };
            held.push_back({name, "key of " + name, "", open, [] { return "10.0.0.9"; }});
        }
        holder::Holder::Options options;
        options.patience.connect_timeout = std::chrono::seconds(5);
        options.keep = keep;
        options.patience.wait_for_hosts = minutes(booting.empty() ? 0 : 1);
        options.log_ins_at_once = log_ins_at_once;
        holder.emplace(io.get_executor(), std::move(held), options);
        REQUIRE(holder->listen(folder_.path()).has_value());
        const auto has_tried = [this] {
            tried = true;
            if (is_abandoned) holder->release_all();
        };
        asio::co_spawn(io, holder->run(has_tried), [this](std::exception_ptr error) {
            if (error) std::rethrow_exception(error);
            over = true;
        });
    }
    ~HeldHere() {
        if (over) return;
        jobs.clear();
        for (auto& [name, ways] : keepers) ways.takes_input = ways.ends = true;
        static_cast<void>(ask(release_of({})));
        io.restart();
        while (!over && io.run_one_for(std::chrono::seconds(5)) > 0) {
        }
        CHECK(over);
    }

    std::optional<WarmAgent> take(const std::string& host) {
        const auto sockets = holder_sockets({folder_.path()});
        WarmHosts warm(io.get_executor(), sockets, {});
        return run_to_end(io, warm.take("key of " + host));
    }
    std::vector<std::string> sockets() const { return holder_sockets({folder_.path()}); }
    std::vector<HeldStatus> ask(WarmRequest request) {
        const auto sockets = holder_sockets({folder_.path()});
        if (sockets.empty()) return {};
        const auto told = run_to_end(
            io, ask_holders({sockets.front()}, std::move(request), after(std::chrono::seconds(5))));
        return told.front().answer ? told.front().answer->hosts : std::vector<HeldStatus>{};
    }
    /// Asks, and does not wait for the answer.
    std::shared_ptr<std::optional<std::vector<HeldStatus>>> begin_to_ask(WarmRequest request) {
        auto told = std::make_shared<std::optional<std::vector<HeldStatus>>>();
        asio::co_spawn(io,
                       ask_holders(holder_sockets({folder_.path()}), std::move(request),
                                   after(std::chrono::seconds(5))),
                       [told](std::exception_ptr error, const std::vector<HolderAnswer>& all) {
                           if (error) std::rethrow_exception(error);
                           if (all.front().answer) *told = all.front().answer->hosts;
                       });
        return told;
    }
    HeldStatus status(const std::string& host) {
        for (const HeldStatus& each : ask({}))
            if (each.host == host) return each;
        return {};
    }
    std::string first_words(WarmAgent& agent) {
        std::array<char, 64> bytes;
        const auto n = run_to_end(io, agent.channel->read(bytes, after(std::chrono::seconds(5))));
        return n ? std::string(bytes.data(), *n) : n.error().message;
    }
    /// Until nothing is left to be done but to wait, however slow the machine is.
    void settle() { dtrun::settle(io, milliseconds(20)); }

    std::map<std::string, FakeKeeper::Ways> keepers;
    asio::io_context io{1};
    std::optional<holder::Holder> holder;
    std::vector<WarmAgent> jobs;
    bool over = false;
    bool tried = false;
    bool is_abandoned = false;  ///< as by Ctrl-C at `dtrun hold`

    static constexpr unsigned log_ins_at_once = 2;

private:
    TempDir folder_;
};

}  // namespace

TEST_CASE("a held host is left when no job was there for its time, or when it is released",
          "[warm]") {
    const Deadline used = Clock::now();
    holder::HoldTerms terms{minutes(10), used};
    CHECK(terms.ends(0) == used + minutes(10));
    CHECK(terms.ends(1) == Deadline::max());
    terms.released = true;
    CHECK(terms.ends(0) <= used);
    CHECK(terms.ends(2) == Deadline::max());
}

TEST_CASE("a log-in is taken for another only if all words of both are the same", "[warm]") {
    Host host;
    host.name = "s1";
    transport::SshOptions options;
    transport::SshSettings settings;
    settings.host = "s1";
    settings.user = "ann";
    LogInWords words{host, options, &settings, "build", "", ""};
    const std::string key = warm_key(words);
    CHECK(key == warm_key(words));
    std::set<std::string> keys{key};
    const auto differs = [&] { return keys.insert(warm_key(words)).second; };
    const auto with = [&](auto& member, auto value) {
        const auto before = member;
        member = value;
        CHECK(differs());
        member = before;
    };
    with(host.name, "s2");
    with(host.user, "bob");
    with(host.port, 2222);
    with(host.address, "10.0.0.1");
    with(host.identity_file, "/k");
    with(options.port, 2222);
    with(options.identity_file, "/k");
    with(options.accept_new_host_keys, true);
    with(options.command, std::vector<std::string>{"ssh", "-J", "gate"});
    with(settings.host, "10.0.0.2");
    with(settings.user, "bob");
    with(settings.port, 2222);
    with(settings.identities, std::vector<std::string>{"/k"});
    with(settings.known_hosts, std::vector<std::string>{"/h"});
    with(settings.known_as, "s");
    with(settings.ciphers, "aes256-gcm@openssh.com");
    with(settings.new_host_keys, transport::NewHostKeys::anything);
    with(settings.only_ssh, "proxyjump gate (/root/.ssh/config:7)");
    with(words.build, "other build");
    with(words.batch_job, "SLURM_JOB_ID=1");
    with(words.ssh_files, "of an ssh that has another Match exec");
    CHECK_FALSE(words.is_by_ssh());
    words.settings = nullptr;
    CHECK(words.is_by_ssh());
    CHECK(differs());
}

TEST_CASE("times are seconds, minutes or hours", "[warm]") {
    using cli::parse_time_span;
    const milliseconds most = std::chrono::hours(24);
    CHECK(parse_time_span("90", most) == std::chrono::seconds(90));
    CHECK(parse_time_span("90s", most) == std::chrono::seconds(90));
    CHECK(parse_time_span("10m", most) == minutes(10));
    CHECK(parse_time_span("24h", most) == std::chrono::hours(24));
    for (const char* const text :
         {"", "m", "0", "-1m", "25h", "1.5h", "1d", "99999999999999999999h"}) {
        CAPTURE(text);
        CHECK_FALSE(parse_time_span(text, most).has_value());
    }
}

TEST_CASE("two jobs at once have an agent each in one log-in, and neither hears of the other",
          "[warm]") {
    HeldHere held(2);
    auto one = held.take("s1"), other = held.take("s1");
    REQUIRE(one.has_value());
    REQUIRE(other.has_value());
    CHECK(one->seen_as == "10.0.0.9");
    CHECK(held.first_words(*one) == "agent 1\n");
    CHECK(held.first_words(*other) == "agent 2\n");
    CHECK(held.keepers["s1"].logins == 1);
    CHECK(held.status("s1").jobs == 2);
    REQUIRE(run_to_end(held.io, one->channel->write("secret", Deadline::max())).has_value());
    held.settle();
    CHECK(held.keepers["s1"].secrets == "secret");
    // Its agent ends with the job, and the other one's goes on.
    one.reset();
    held.settle();
    CHECK(held.status("s1").jobs == 1);
    REQUIRE(run_to_end(held.io, other->channel->write("!", Deadline::max())).has_value());
    other.reset();
    held.settle();
    CHECK(held.status("s1").jobs == 0);
    CHECK(held.status("s1").taken == 2);
    CHECK_FALSE(held.take("s3").has_value());
}

TEST_CASE("a host that says nothing is not waited for, and logged into again in the background",
          "[warm]") {
    HeldHere held(2);
    REQUIRE(held.take("s1").has_value());
    held.keepers["s1"].silent = true;
    const Deadline began = Clock::now();
    CHECK_FALSE(held.take("s1").has_value());
    CHECK(Clock::now() - began < std::chrono::seconds(3));
    held.settle();
    CHECK(held.status("s1").state == HeldState::gone);
    CHECK(held.take("s2").has_value());
}

TEST_CASE("a host whose keeper has ended is not offered to jobs", "[warm]") {
    HeldHere held(2);
    auto job = held.take("s1");
    REQUIRE(job.has_value());
    CHECK(held.first_words(*job) == "agent 1\n");
    held.keepers["s1"].last->end_here();
    held.settle();
    CHECK(held.status("s1").state == HeldState::gone);
    CHECK(held.status("s1").why == "its keeper has ended");
    CHECK(held.first_words(*job) == "the holder has ended");
    CHECK_FALSE(held.take("s1").has_value());
    CHECK(held.take("s2").has_value());
}

TEST_CASE(
    "released hosts are left at once, those with jobs after these, and the holder ends with the "
    "last",
    "[warm]") {
    HeldHere held(3);
    auto job = held.take("s2");
    REQUIRE(job.has_value());
    const auto left = held.ask(release_of({"s1", "s2"}));
    REQUIRE(left.size() == 2);
    CHECK(left[0].state == HeldState::gone);
    CHECK(left[1].jobs == 1);
    CHECK(held.keepers["s1"].last == nullptr);
    CHECK_FALSE(held.take("s2").has_value());
    CHECK(held.first_words(*job) == "agent 1\n");
    job.reset();
    held.settle();
    CHECK(held.keepers["s2"].last == nullptr);
    CHECK(held.take("s3").has_value());
    held.settle();
    CHECK_FALSE(held.over);
    CHECK(held.ask(release_of({})).size() == 1);
    held.settle();
    CHECK(held.over);
    CHECK_FALSE(held.take("s3").has_value());
}

TEST_CASE("held hosts that nobody uses are left by themselves", "[warm]") {
    HeldHere held(2, milliseconds(300));
    auto job = held.take("s1");
    REQUIRE(job.has_value());
    CHECK(runs_until(held.io, [&] { return held.keepers["s2"].last == nullptr; }));
    CHECK(held.status("s1").jobs == 1);
    job.reset();
    CHECK(runs_until(held.io, [&] { return held.over; }));
}

TEST_CASE("an agent that does not start is refused at once, and its log-in stays", "[warm]") {
    HeldHere held(1);
    REQUIRE(held.take("s1").has_value());
    held.keepers["s1"].fails = true;
    const Deadline began = Clock::now();
    CHECK_FALSE(held.take("s1").has_value());
    CHECK(Clock::now() - began < std::chrono::seconds(1));
    held.keepers["s1"].fails = false;
    CHECK(held.take("s1").has_value());
    CHECK(held.keepers["s1"].logins == 1);
}

TEST_CASE("hosts are left in time, and given to jobs, while another is still logged into",
          "[warm]") {
    HeldHere held(3, milliseconds(300), 2);
    CHECK(held.take("s1").has_value());
    const auto are_left = [&] {
        return held.keepers["s1"].last == nullptr && held.keepers["s3"].last == nullptr;
    };
    CHECK(runs_until(held.io, are_left));
    CHECK_FALSE(held.tried);
    CHECK(held.status("s2").state == HeldState::logging_in);
}

TEST_CASE("a release ends a log-in that goes on, and one that waits for its turn", "[warm]") {
    HeldHere held(4, minutes(10), 1);
    held.keepers["s2"].is_reachable = false;
    held.settle();
    CHECK(held.keepers["s4"].begun == 0);  // two at once
    const Deadline began = Clock::now();
    const auto left = held.ask(release_of({"s1", "s2", "s4"}));
    CHECK(Clock::now() - began < std::chrono::seconds(2));
    CHECK(left.size() == 3);
    for (const HeldStatus& host : left) {
        CHECK(host.state == HeldState::gone);
        CHECK(host.why == "released");
    }
    held.settle();
    CHECK(held.tried);
    CHECK(held.keepers["s4"].begun == 0);
    CHECK(held.take("s3").has_value());
}

TEST_CASE("a job waits for a log-in that has not had its turn, and is told when there will be none",
          "[warm]") {
    HeldHere held(3, minutes(10), 1);
    held.keepers["s2"].is_reachable = false;
    held.settle();
    const auto job = std::make_shared<std::optional<bool>>();
    WarmHosts warm(held.io.get_executor(), held.sockets(), {});
    asio::co_spawn(held.io, warm.take("key of s3"),
                   [job](std::exception_ptr error, const std::optional<WarmAgent>& agent) {
                       if (error) std::rethrow_exception(error);
                       *job = agent.has_value();
                   });
    held.settle();
    CHECK_FALSE(job->has_value());
    SECTION("its turn comes") {
        CHECK(held.ask(release_of({"s1"})).size() == 1);
        held.settle();
        CHECK(*job == true);
    }
    SECTION("it is released before") {
        static_cast<void>(held.ask(release_of({"s3"})));
        held.settle();
        CHECK(*job == false);
    }
}

TEST_CASE(
    "hosts that are not there yet are awaited, and neither other hosts nor jobs wait for them",
    "[warm]") {
    HeldHere held(4, minutes(10), 0, {1, 2});  // two log-ins at once
    held.settle();
    CHECK(held.keepers["s4"].logins == 1);
    CHECK_FALSE(held.tried);
    const Deadline began = Clock::now();
    CHECK_FALSE(held.take("s1").has_value());  // the job has a patience of its own
    CHECK(held.take("s4").has_value());
    CHECK(Clock::now() - began < std::chrono::seconds(1));
    held.keepers["s1"].is_booting = false;
    held.io.restart();
    while (held.keepers["s1"].logins == 0) held.io.run_one();
    held.settle();
    CHECK(held.take("s1").has_value());
    CHECK_FALSE(held.tried);
    CHECK(held.ask(release_of({"s2"})).size() == 1);
    held.settle();
    CHECK(held.tried);
    CHECK(held.keepers["s2"].logins == 0);
}

TEST_CASE("log-ins to awaited hosts have turns, the first ones and those that follow", "[warm]") {
    VirtualTime time;
    asio::io_context io(1);
    int at_once = 0, most = 0, begun = 0;
    bool over = false;
    const auto open = [&](Deadline, std::function<void(const char*)>)
        -> asio::awaitable<Result<std::unique_ptr<transport::Channel>>> {
        ++begun;
        most = std::max(most, ++at_once);
        Timer answer(io, after(milliseconds(700)));
        co_await answer.async_wait(use_tuple);
        --at_once;
        co_return fail(Errc::timed_out, "no answer");
    };
    std::vector<holder::Holder::Host> hosts;
    for (int i = 0; i < 40; ++i)
        hosts.push_back(
            {fmt::format("s{}", i), fmt::format("key {}", i), "", open, [] { return ""; }});
    holder::Holder::Options options;
    options.patience.connect_timeout = std::chrono::seconds(1);
    options.patience.wait_for_hosts = minutes(1);
    options.log_ins_at_once = 4;
    holder::Holder holder(io.get_executor(), std::move(hosts), options);
    asio::co_spawn(io, holder.run([] {}), [&over](std::exception_ptr error) {
        if (error) std::rethrow_exception(error);
        over = true;
    });
    time.run(
        io, [&over] { return over; }, time.now() + minutes(2));
    CHECK(most == 4);
    CHECK(begun > 300);  // 60 s of four at once, 0.7 s each
}

TEST_CASE("a host that is given up is told with how long it was tried, and by which option",
          "[warm]") {
    using std::chrono::seconds;
    const auto [code, wait, tries_min, why] = GENERATE(table<Errc, int, int, std::string>({
        {Errc::unreachable, 60, 10, "no; tried for 60 s (--wait-for-hosts)"},
        {Errc::closed, 60, 10, "no; tried for 60 s (--wait-for-hosts)"},
        {Errc::closed, 0, 3, "no; tried for 5 s (--connect-timeout)"},
        {Errc::unreachable, 0, 1, "no"},
        {Errc::timed_out, 0, 1, "no within 5 s (--connect-timeout)"},
        {Errc::denied, 60, 1, "no"},
    }));
    CAPTURE(static_cast<int>(code), wait);
    VirtualTime time;
    asio::io_context io(1);
    int tries = 0;
    bool over = false;
    const auto open = [&tries, code = code](Deadline, std::function<void(const char*)>)
        -> asio::awaitable<Result<std::unique_ptr<transport::Channel>>> {
        ++tries;
        co_return std::unexpected(Error{code, "no"});
    };
    holder::Holder::Options options;
    options.patience = {seconds(5), seconds(wait)};
    holder::Holder holder(io.get_executor(), {{"s1", "key", "", open, [] { return ""; }}}, options);
    std::vector<HeldStatus> told;
    asio::co_spawn(io, holder.run([&] { told = holder.hosts(); }),
                   [&over](std::exception_ptr error) {
                       if (error) std::rethrow_exception(error);
                       over = true;
                   });
    time.run(
        io, [&over] { return over; }, time.now() + minutes(2));
    REQUIRE(told.size() == 1);
    CHECK(told.front().why == why);
    CHECK(tries >= tries_min);
    CHECK((tries == 1) == (tries_min == 1));
}

TEST_CASE("whoever releases what another one has released waits for its end as well", "[warm]") {
    HeldHere held(1);
    REQUIRE(held.take("s1").has_value());
    held.settle();
    held.keepers["s1"].ends = false;
    const auto one = held.begin_to_ask(release_of({}));
    held.settle();
    const auto other = held.begin_to_ask(release_of({}));
    held.settle();
    CHECK_FALSE(one->has_value());
    CHECK_FALSE(other->has_value());
    held.keepers["s1"].last->end_here();
    held.settle();
    CHECK(one->has_value());
    CHECK(other->has_value());
    CHECK(held.over);
}

TEST_CASE("a keeper that does not end when it is to is cut off", "[warm]") {
    HeldHere held(1);
    REQUIRE(held.take("s1").has_value());
    held.keepers["s1"].ends = false;
    const Deadline began = Clock::now();
    CHECK(held.ask(release_of({})).size() == 1);
    CHECK(Clock::now() - began < std::chrono::seconds(3));
    held.settle();
    CHECK(held.over);
}

TEST_CASE("a holder that nobody waits for any more leaves all but what jobs have taken", "[warm]") {
    HeldHere held(3, minutes(10), 3);
    held.is_abandoned = true;
    auto job = held.take("s1");
    REQUIRE(job.has_value());
    CHECK_FALSE(held.tried);
    held.holder->release_all();
    held.settle();
    CHECK(held.tried);
    CHECK(held.keepers["s2"].last == nullptr);
    CHECK(held.status("s1").jobs == 1);
    CHECK_FALSE(held.take("s2").has_value());
    job.reset();
    held.settle();
    CHECK(held.over);
}

TEST_CASE("a holder whose first folder is not its own listens in the next one", "[warm]") {
    const TempDir open_to_others, own;
    ::chmod(open_to_others.path().c_str(), 0755);
    ::chmod(own.path().c_str(), 0700);
    asio::io_context io(1);
    {
        holder::Holder holder(io.get_executor(), {}, {});
        const auto refused = holder.listen(open_to_others.path());
        REQUIRE_FALSE(refused.has_value());
        CHECK(refused.error().code == Errc::denied);
        CHECK(holder_sockets({open_to_others.path()}).empty());
        REQUIRE(holder.listen(own.path()).has_value());
        CHECK(holder_sockets({own.path()}).size() == 1);
        run_to_end(io, [](holder::Holder& of) -> asio::awaitable<bool> {
            co_await of.run([] {});
            co_return true;
        }(holder));
    }
    CHECK(holder_sockets({own.path()}).empty());
}

TEST_CASE("input that a held host does not take stays with its job", "[warm]") {
    HeldHere held(1);
    auto job = held.take("s1");
    REQUIRE(job.has_value());
    CHECK(held.first_words(*job) == "agent 1\n");
    held.keepers["s1"].takes_input = false;
    const std::string much(64u << 20, 'x');
    const auto sent =
        run_to_end(held.io, job->channel->write(much, after(std::chrono::milliseconds(300))));
    REQUIRE_FALSE(sent.has_value());
    CHECK(sent.error().code == Errc::timed_out);
    held.keepers["s1"].takes_input = true;
    held.keepers["s1"].last->look();
    held.settle();
    CHECK(held.keepers["s1"].secrets.size() < (8u << 20));
}

TEST_CASE("a holder that accepts nothing, or says nothing, makes nobody wait for long", "[warm]") {
    const TempDir folder;
    ::chmod(folder.path().c_str(), 0700);
    asio::io_context io(1);
    std::vector<std::string> paths;
    std::deque<Unix::acceptor> silent;
    for (int i = 0; i < 8; ++i) {
        paths.push_back(fmt::format("{}/{}{}", folder.path(), i, kHolderSuffix));
        silent.emplace_back(io, Unix::endpoint(paths.back()));
    }
    const Deadline began = Clock::now();
    const auto told =
        run_to_end(io, ask_holders(paths, WarmRequest{}, after(std::chrono::milliseconds(300))));
    CHECK(Clock::now() - began < std::chrono::milliseconds(1'500));  // 2.4 s one after the other
    REQUIRE(told.size() == paths.size());
    for (std::size_t i = 0; i < told.size(); ++i) {
        CHECK(told[i].path == paths[i]);
        REQUIRE_FALSE(told[i].answer.has_value());
        CHECK(told[i].answer.error().code == Errc::timed_out);
    }
}

}  // namespace dtrun
