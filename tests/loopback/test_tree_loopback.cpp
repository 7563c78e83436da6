// Log-ins by relays: what the head and its agents make of them, in many orders of events; and the streams between the two.

#include "launcher/plan/exit_code.h"
#include "launcher/transport/login_givers.h"
#include "launcher/transport/onward_channel.h"
#include "rendezvous/wire/message.h"
#include "tests/loopback/head_parts.h"
#include "tests/loopback/many_orders.h"
#include "tests/support/catch.h"
#include "tests/support/loop.h"
#include "worker/agent/onward_logins.h"

#include <unistd.h>
#include <algorithm>
#include <array>
#include <csignal>
#include <functional>
#include <optional>

namespace dtrun::loopback {
namespace {

using namespace std::chrono_literals;
using Catch::Contains;
using transport::LoginGivers;
using Outcome = LoginGivers::Outcome;

constexpr HostId kFirst{0}, kSecond{1}, kThird{2}, kFourth{3};

/// 16 hosts, of which four are relays. The head logs in to four at once, and takes long for all but the relays.
Script tree_of_16() {
    Script script;
    script.ranks_on_host.assign(16, 1);
    script.options = [](plan::Options& options) {
        options.tree_threshold = 2;
        options.fanout = 4;
    };
    for (std::uint32_t host = 4; host < 16; ++host)
        script.hosts[HostId{host}] = {.login_takes = 400ms, .by_relay_takes = 20ms};
    return script;
}

TEST_CASE("relays log in to those who wait for the head", "[loopback][tree]") {
    in_many_orders(30, tree_of_16(), [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.shown.empty());
        CHECK(ending.by_relays == 8);
        CHECK(ending.logins == 8);
        CHECK(ending.left == 0);
    });
}

TEST_CASE("with --tree-login off the head logs in to every host", "[loopback][tree]") {
    Script script = tree_of_16();
    script.options = [tree = script.options](plan::Options& options) {
        tree(options);
        options.tree_login = plan::TreeLogin::off;
    };
    const Ending ending = simulate(script, test_seed());
    CHECK(ending.code == 0);
    CHECK(ending.by_relays == 0);
    CHECK(ending.logins == 16);
}

TEST_CASE("where hosts have no keys for each other three relays find it out, and the head goes on",
          "[loopback][tree]") {
    Script script = tree_of_16();
    for (auto& [host, does] : script.hosts) does.by_relay = Login::refused;
    in_many_orders(20, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.shown.empty());
        CHECK(ending.by_relays == LoginGivers::kTrialsMax);
        CHECK(ending.logins == 16);
    });
}

TEST_CASE("a relay without a key is asked once, and others log in for it", "[loopback][tree]") {
    Script script = tree_of_16();
    script.hosts[kSecond].has_key = false;
    in_many_orders(20, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.shown.empty());
        CHECK(ending.logins + ending.by_relays >= 16);
        CHECK(ending.by_relays >= 5);
    });
}

TEST_CASE("a host that answers no relay is told of in the words of the head", "[loopback][tree]") {
    Script script = tree_of_16();
    script.hosts[HostId{15}] = {
        .login = Login::refused, .login_takes = 400ms, .by_relay = Login::hangs};
    in_many_orders(20, script, [](const Ending& ending) {
        CHECK(ending.code == plan::kExitAuthentication);
        CHECK_THAT(ending.shown, Contains("h15") && Contains("ssh: it does not know this key") &&
                                     !Contains("h14") && !Contains("Permission denied"));
        CHECK(ending.left == 0);
    });
}

TEST_CASE("log-ins by relays that hang cost half of --connect-timeout", "[loopback][tree]") {
    Script script = tree_of_16();
    for (auto& [host, does] : script.hosts) does.by_relay = Login::hangs;
    in_many_orders(10, script, [](const Ending& ending) {
        CHECK(ending.code == 0);
        CHECK(ending.took < 7s);
        CHECK(ending.by_relays <= LoginGivers::kTrialsMax);
    });
}

TEST_CASE("a relay that is lost amid log-ins is the host that is named", "[loopback][tree]") {
    for (const milliseconds when : {15ms, 25ms, 35ms, 45ms}) {
        Script script = tree_of_16();
        for (auto& [host, does] : script.hosts) does.login_takes = 2s;
        script.hosts[kThird].cut_off = when;
        in_many_orders(10, script, [](const Ending& ending) {
            CHECK(ending.code != 0);
            CHECK_THAT(ending.shown, Contains("dtrun: host h2 lost"));
            for (const char* const other : {"h9", "h10", "h11", "h12", "h13"})
                CHECK_THAT(ending.shown, !Contains(fmt::format("dtrun: host {} lost", other)) &&
                                             !Contains(fmt::format("{}: the agent", other)));
            CHECK(ending.left == 0);
        });
    }
}

TEST_CASE("Ctrl-C at any moment of log-ins by relays leaves nothing", "[loopback][tree]") {
    Script script = tree_of_16();
    for (std::uint32_t rank = 0; rank < 16; ++rank) script.ranks[rank] = {.life = 10s};
    for (int ms = 1; ms < 600; ms += ms < 60 ? 3 : 40) {
        script.signals = {{milliseconds(ms), SIGINT}};
        INFO("after " << ms << " ms");
        const Ending ending = simulate(script, test_seed());
        CHECK(ending.code == 128 + SIGINT);
        CHECK(ending.left == 0);
        CHECK(ending.took < 4s);
    }
}

TEST_CASE("an agent that a relay has started, and that ends at once, fails its host",
          "[loopback][tree]") {
    Script script = tree_of_16();
    script.hosts[HostId{14}].login = Login::cannot_connect;
    in_many_orders(10, script, [](const Ending& ending) {
        CHECK(ending.code != 0);
        CHECK_THAT(ending.shown,
                   Contains("h14") && Contains("the agent cannot reach this machine"));
    });
}

TEST_CASE("relays are asked only after one has shown that it can", "[tree]") {
    LoginGivers givers;
    CHECK(givers.ready().empty());
    for (const HostId host : {kFirst, kSecond, kThird, kFourth}) givers.add(host);
    REQUIRE(givers.is_ready(kSecond));
    givers.begin(kSecond);
    CHECK(givers.ready().empty());

    SECTION("one that can has all asked, and each has room for some") {
        givers.end(kSecond, Outcome::well);
        CHECK(givers.ready().size() == 4);
        for (unsigned i = 0; i < LoginGivers::kAtOnce; ++i) givers.begin(kFirst);
        CHECK_FALSE(givers.is_ready(kFirst));
        givers.end(kFirst, Outcome::well);
        CHECK(givers.is_ready(kFirst));
    }
    SECTION("one that fails again and again is asked no more, and others are") {
        givers.end(kSecond, Outcome::well);
        for (int i = 0; i < 2; ++i) {
            REQUIRE(givers.is_ready(kFirst));
            givers.begin(kFirst);
            givers.end(kFirst, Outcome::failed);
        }
        CHECK_FALSE(givers.is_ready(kFirst));
        CHECK(givers.ready().size() == 3);
    }
    SECTION("after three trials by three nobody is asked") {
        for (const HostId host : {kSecond, kThird, kFourth}) {
            if (host != kSecond) {
                REQUIRE(givers.is_ready(host));
                givers.begin(host);
            }
            givers.end(host, Outcome::failed);
            CHECK_FALSE(givers.is_ready(host));
        }
        CHECK(givers.ready().empty());
    }
    SECTION("a host that is none for relays says nothing of them") {
        givers.end(kSecond, Outcome::not_tried);
        CHECK(givers.ready().size() == 4);
    }
    SECTION("the loss of the one that tries lets another one try") {
        givers.lost(kSecond);
        CHECK(givers.ready() == std::vector{kFirst, kThird, kFourth});
        givers.end(kSecond, Outcome::failed);
        CHECK(givers.ready().size() == 3);
    }
}

/// A channel of the head and the log-ins of a relay, with frames that go from one to the other at once.
class Streams {
public:
    explicit Streams(agent::StartLogin start)
        : logins({io.get_executor(), secret, std::move(start), [this](const LoginStream& said) {
                      untaken_output_ += static_cast<std::int64_t>(said.bytes.size());
                      output_most = std::max(output_most, untaken_output_);
                      if (channel) channel->take(said);
                  }}) {}
    ~Streams() {
        channel.reset();
        logins.stop();
        asio::co_spawn(io, logins.join(), [](const std::exception_ptr&) {});
        io.restart();
        io.run_for(5s);
    }

    void open(LoginOrder order) {
        channel.emplace(
            transport::OnwardChannel::Parts{io.get_executor(), 1, login_seal(secret, 1), "",
                                            [this](const LoginStream& said) { pass(said); }, [] {}},
            order);
    }

    asio::io_context io{1};
    const Secret secret = Secret::random();
    agent::OnwardLogins logins;
    std::optional<transport::OnwardChannel> channel;
    std::int64_t input_most = 0, output_most = 0;  ///< under way at a time
    std::string seen;                              ///< by who listens between the two

private:
    void pass(const LoginStream& said) {
        seen += said.bytes;
        if (said.event == LoginEvent::taken) untaken_output_ -= said.bytes_taken;
        const auto taken = logins.take(said);
        if (!taken) FAIL(taken.error().message);
    }

    std::int64_t untaken_output_ = 0;
};

constexpr auto passes_on = [](const std::exception_ptr& error) {
    if (error) std::rethrow_exception(error);
};

void run_until(asio::io_context& io, const std::function<bool()>& done) {
    const Deadline limit = after(20s);
    io.restart();
    while (!done() && Clock::now() < limit) io.run_one_for(100ms);
    REQUIRE(done());
}

/// Says again what it is told, until its input ends.
asio::awaitable<void> echo(Unix::socket in, Unix::socket out,
                           std::function<void(std::string)> ended) {
    co_await pass_on(in, out);
    out.close();
    ended("exit status 7");
}

agent::StartLogin echoing(asio::io_context*& io, LoginOrder& told, Fd& errors) {
    return [&io, &told, &errors](const LoginOrder& order, std::function<void(std::string)> ended) {
        told = order;
        Pair in = socket_pair(), out = socket_pair(), err = socket_pair();
        errors = std::move(err.second);
        Unix::socket from(*io), to(*io);
        from.assign(Unix(), in.second.release());
        to.assign(Unix(), out.second.release());
        asio::co_spawn(*io, echo(std::move(from), std::move(to), std::move(ended)), passes_on);
        return Result<agent::LoginProgram>(agent::LoginProgram{
            std::move(in.first), std::move(out.first), std::move(err.first), [] {}});
    };
}

TEST_CASE("a log-in by a relay carries any bytes both ways, few at a time and sealed", "[tree]") {
    asio::io_context* io = nullptr;
    LoginOrder told;
    Fd errors;
    Streams streams(echoing(io, told, errors));
    io = &streams.io;
    LoginOrder order;
    order.host = "h9";
    order.keys = {"ssh-ed25519 AAAA"};
    order.command = "a secret command";
    streams.open(order);
    CHECK(told.host == "h9");
    CHECK(told.keys == order.keys);
    CHECK(told.command == order.command);

    std::string sent;
    for (int i = 0; sent.size() < 1u << 20; ++i) sent += fmt::format("secret line {}\n", i);
    std::string got;
    bool written = false, over = false;
    const auto write = [&]() -> asio::awaitable<void> {
        const auto done = co_await streams.channel->write(sent, after(20s));
        written = done.has_value();
        streams.channel->close();
    };
    const auto read = [&]() -> asio::awaitable<void> {
        std::array<char, 3'000> bytes;
        while (got.size() < sent.size()) {
            const auto n = co_await streams.channel->read(bytes, after(20s));
            if (!n || *n == 0) break;
            got.append(bytes.data(), *n);
        }
        over = true;
    };
    asio::co_spawn(streams.io, read(), passes_on);
    asio::co_spawn(streams.io, write(), passes_on);
    run_until(streams.io, [&] { return over && written; });
    CHECK(got.size() <= sent.size());
    CHECK(sent.starts_with(got));
    CHECK(streams.output_most <= kLoginOutputBytes + 4'096);
    CHECK(streams.seen.find("secret") == std::string::npos);
}

TEST_CASE("how a log-in by a relay has ended is told behind its last words", "[tree]") {
    asio::io_context* io = nullptr;
    LoginOrder told;
    Fd errors;
    Streams streams(echoing(io, told, errors));
    io = &streams.io;
    streams.open({});
    const std::string words = "h9: Permission denied (publickey).\n";
    REQUIRE(::write(errors.get(), words.data(), words.size()) > 0);
    std::string ending;
    std::optional<std::size_t> n;
    const auto read = [&]() -> asio::awaitable<void> {
        std::array<char, 100> bytes;
        const auto got = co_await streams.channel->read(bytes, after(20s));
        if (got) n = *got;
        ending = co_await streams.channel->ending(after(20s));
    };
    asio::co_spawn(streams.io, read(), passes_on);
    SECTION("by itself") {
        LoginStream end;
        end.login = 1;
        end.event = LoginEvent::input_end;
        REQUIRE(streams.logins.take(end).has_value());
        run_until(streams.io, [&] { return !ending.empty(); });
        CHECK(n == 0);
        CHECK(ending == "exit status 7");
        CHECK(streams.channel->take_errors() == words);
    }
    SECTION("with its relay") {
        streams.channel->lost("h1, which had logged in there, is lost");
        run_until(streams.io, [&] { return !ending.empty(); });
        CHECK(n == 0);
        CHECK(ending == "h1, which had logged in there, is lost");
    }
}

/// Reads nothing, and says more than the head takes; until it is killed.
agent::StartLogin deaf(bool& is_killed) {
    return [&is_killed](const LoginOrder&, std::function<void(std::string)> ended) {
        const auto theirs = std::make_shared<std::array<Pair, 3>>();
        for (Pair& pair : *theirs) pair = socket_pair();
        const std::string much(2 * kLoginOutputBytes, 'x');
        REQUIRE(::write((*theirs)[1].second.get(), much.data(), much.size()) > kLoginOutputBytes);
        return Result<agent::LoginProgram>(agent::LoginProgram{
            std::move((*theirs)[0].first), std::move((*theirs)[1].first),
            std::move((*theirs)[2].first), [theirs, &is_killed, ended = std::move(ended)] {
                for (Pair& pair : *theirs) pair.second.reset();
                if (!std::exchange(is_killed, true)) ended("signal 9");
            }});
    };
}

TEST_CASE("a log-in by a relay that neither reads nor is read ends when the head gives it up",
          "[tree]") {
    bool is_killed = false;
    Streams streams(deaf(is_killed));
    streams.open({});
    bool has_failed = false;
    const auto write = [&]() -> asio::awaitable<void> {
        const std::string much(4 * kLoginInputBytes, 'y');
        has_failed = !(co_await streams.channel->write(much, after(300ms))).has_value();
    };
    asio::co_spawn(streams.io, write(), passes_on);
    run_until(streams.io, [&] { return has_failed; });
    CHECK(streams.logins.count() == 1);
    streams.channel->close();
    run_until(streams.io, [&] { return streams.logins.count() == 0; });
    CHECK(is_killed);
}

TEST_CASE("what is not sealed by the head is refused", "[tree]") {
    asio::io_context* io = nullptr;
    LoginOrder told;
    Fd errors;
    Streams streams(echoing(io, told, errors));
    io = &streams.io;
    LoginStream open;
    open.login = 3;
    open.event = LoginEvent::open;
    open.bytes = encode(LoginOrder{});
    const auto taken = streams.logins.take(open);
    REQUIRE_FALSE(taken.has_value());
    CHECK(taken.error().code == Errc::invalid_input);
}

}  // namespace
}  // namespace dtrun::loopback
