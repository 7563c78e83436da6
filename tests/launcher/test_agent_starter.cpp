#include "launcher/transport/agent_starter.h"

#include "base/fd.h"
#include "launcher/transport/carrier.h"
#include "launcher/transport/process_channel.h"
#include "rendezvous/wire/message.h"
#include "tests/support/catch.h"
#include "tests/support/loop.h"
#include "tests/support/temp_dir.h"

#include <csignal>
#include <filesystem>
#include <list>
#include <map>

namespace dtrun {

using namespace transport;

namespace {

const std::string kMachine = "testcpu";

/// An agent for kMachine, beside this program.
class TestAgent {
public:
    TestAgent() {
        // A run that was killed may have left one.
        constexpr auto kOver = std::filesystem::copy_options::overwrite_existing;
        std::filesystem::copy_file("/bin/true", file(), kOver);
    }
    ~TestAgent() { std::filesystem::remove(file()); }

private:
    static std::string file() {
        const std::string self = std::filesystem::read_symlink("/proc/self/exe");
        return self.substr(0, self.rfind('/') + 1) + "dtrun-agent-" + kMachine;
    }
};

asio::awaitable<Result<void>> greet(asio::io_context& io, std::string script,
                                    std::chrono::milliseconds patience, std::string& phases) {
    // It ends with us, as ssh does.
    auto host = start_process(io.get_executor(), {"/bin/sh", "-c", std::move(script)}, {}, SIGKILL);
    if (!host) co_return std::unexpected(host.error());
    LineReader lines(**host);
    AgentCopies copies;
    Deadline deadline = after(patience);
    const std::function<void(const char*)> phase = [&](const char* now) {
        phases.append(now).append(";");
    };
    const auto greeted = co_await greet_agent(**host, lines, copies, deadline, patience, phase);
    co_return greeted;
}

struct Greeted {
    std::string error;  ///< empty: the agent is ready
    Errc code{};        ///< of the error
    std::string phases;
};

/// What the head makes of a host that answers as `script` does.
Greeted greet(std::string script, std::chrono::milliseconds patience = std::chrono::seconds(20)) {
    asio::io_context io;
    Greeted found;
    const auto greeted = run_to_end(io, greet(io, std::move(script), patience, found.phases));
    if (!greeted) found.error = greeted.error().message;
    if (!greeted) found.code = greeted.error().code;
    return found;
}

const std::string kReadyLine = fmt::format("echo {}{} x", kAgentReady, kProtocolVersion);
const std::string kWantedLine =
    fmt::format("echo {}{} plain; read -r id n h z c; ", kAgentWanted, kMachine);

}  // namespace

TEST_CASE("a host gets the agent that it lacks", "[agent]") {
    const TestAgent agent;
    const Greeted found = greet(kWantedLine +
                                "echo dtrun-agent-send; "
                                "[ \"$(head -c \"$n\" | sha256sum)\" = \"$h  -\" ] && " +
                                kReadyLine);
    CHECK(found.error == "");
    CHECK(found.phases == "copying the agent;starting the agent;");
}

TEST_CASE("a host that finds the agent after it has asked for it needs no copy", "[agent]") {
    const TestAgent agent;
    const Greeted found = greet(kWantedLine + kReadyLine + "; read -r never");
    CHECK(found.error == "");
    CHECK(found.phases == "copying the agent;");
}

TEST_CASE("what a login shell prints without a line end does not hide the agent", "[agent]") {
    const TestAgent agent;
    const std::string title = "printf '\\033]0;s1: ~\\007Welcome '; ";
    CHECK(greet(title + kReadyLine).error == "");
    const Greeted found =
        greet(title + kWantedLine + "printf 'and thanks: '; echo dtrun-agent-send; " +
              "head -c \"$n\" >/dev/null; printf 'well '; " + kReadyLine);
    CHECK(found.error == "");
    CHECK(found.phases == "copying the agent;starting the agent;");
    CHECK(greet("printf Oh:; echo dtrun-agent-failed no room").error == "no room");
    const Greeted asks =
        greet("echo Welcome; printf 'Password: '; read -r never", std::chrono::milliseconds(300));
    CHECK(asks.code == Errc::timed_out);
    CHECK_THAT(asks.error, Catch::Contains("its login shell has said: Password:"));
}

TEST_CASE("a login shell that ends before the agent is told with its start-up files", "[agent]") {
    const Greeted found = greet("exit 0");
    CHECK_THAT(found.error, Catch::StartsWith("the agent did not start: exit status 0") &&
                                Catch::Contains(".bashrc"));
    CHECK_THAT(greet("echo This account is locked; exit 1").error, !Catch::Contains(".bashrc"));
    CHECK_THAT(greet("echo nologin >&2; exit 1").error, !Catch::Contains(".bashrc"));
}

TEST_CASE("it is told what a host was doing that did not answer", "[agent]") {
    const TestAgent agent;
    constexpr std::chrono::milliseconds kShort(100);
    // A login shell that has become another one, which reads its commands from us.
    CHECK_THAT(greet("exec sh", kShort).error,
               Catch::StartsWith("starting the agent (not a word of its login shell") &&
                   Catch::Contains(".bashrc") && Catch::EndsWith("): no answer"));
    CHECK_THAT(greet(kWantedLine + "read -r never", kShort).error,
               Catch::StartsWith("copying the agent"));
    CHECK(greet(kWantedLine + "echo dtrun-agent-failed no room").error == "no room");
    CHECK_THAT(greet("echo Welcome; exit 3").error, Catch::EndsWith("exit status 3: Welcome"));
}

TEST_CASE("what ssh itself says is told apart from what it runs", "[agent]") {
    const auto fails = [](const std::string& said, int status) {
        return greet(fmt::format("echo '{}' >&2; exit {}", said, status));
    };
    const Greeted denied = fails("root@s1: Permission denied (publickey).", 255);
    CHECK(denied.code == Errc::denied);
    CHECK(denied.error == "root@s1: Permission denied (publickey).");
    CHECK(fails("No ED25519 host key is known\nHost key verification failed.", 255).code ==
          Errc::denied);
    const std::string refused = "ssh: connect to host s1 port 22: Connection refused";
    CHECK(fails(refused, 255).code == Errc::unreachable);
    CHECK(fails("A banner\n" + refused, 255).code == Errc::unreachable);
    CHECK(fails("sh: 1: agent: Permission denied", 126).code == Errc::internal);
    const std::string closed = "Connection closed by 10.0.0.1 port 22";
    CHECK(fails("System is booting up. Unprivileged users are not permitted to log in yet.\n" +
                    closed,
                255)
              .code == Errc::closed);
    CHECK(fails("kex_exchange_identification: Connection closed by remote host\n" + closed, 255)
              .code == Errc::closed);
    // What a jump host has refused will not come to be by trying again.
    const std::string behind = "\nkex_exchange_identification: Connection closed by remote host\n" +
                               std::string("Connection closed by UNKNOWN port 65535");
    CHECK(fails("root@gate: Permission denied (publickey)." + behind, 255).code == Errc::denied);
    CHECK(fails("Host key verification failed." + behind, 255).code == Errc::denied);
    for (const char* const why : {"ssh: Could not resolve hostname gate: Name or service not known",
                                  "ssh: connect to host gate port 22: Connection refused"})
        CHECK(fails(why + behind, 255).code == Errc::unreachable);
    CHECK(fails(closed, 255).code == Errc::unreachable);
    const Greeted refuses =
        fails("Access denied: you have no active jobs on this node\n" + closed, 255);
    CHECK(refuses.code == Errc::denied);
    CHECK_THAT(refuses.error, Catch::StartsWith("Access denied: you have no active jobs"));
    CHECK(
        fails("Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures", 255)
            .code == Errc::denied);
}

TEST_CASE("of what a program says that fails only the ends are shown", "[agent]") {
    const Greeted found = greet("seq 1 9 >&2; printf '%0400dx' 7 >&2; exit 3");
    CHECK(found.error ==
          "the agent did not start: exit status 3: 1\n…\n9\n" + std::string(200, '0') + "…");
}

TEST_CASE("a host that can unpack gets the agent packed", "[agent]") {
    const TestAgent agent;
    const std::string answers =
        fmt::format("echo {}{} gzip; read -r id n h z c; ", kAgentWanted, kMachine);
    const Greeted found =
        greet(answers +
              "echo dtrun-agent-send; "
              "[ $c = gzip ] && head -c \"$n\" | gzip -dc | cmp -s - /bin/true && " +
              kReadyLine);
    CHECK(found.error == "");
    AgentCopies copies;
    CHECK(copies.get({kMachine, true}).value()->bytes.size() <
          copies.get({kMachine, false}).value()->bytes.size());
}

TEST_CASE("an agent of another protocol is told with what to do", "[agent]") {
    CHECK_THAT(greet(fmt::format("echo {}1 x", kAgentReady)).error,
               Catch::Contains("different versions; install both together"));
}

TEST_CASE("an agent that many hosts lack is read once", "[agent]") {
    const HostWants wants{kMachine, false};
    AgentCopies copies;
    CHECK_FALSE(copies.get(wants).has_value());
    const auto first = [&] {
        const TestAgent agent;
        return copies.get(wants);
    }();
    REQUIRE(first.has_value());
    CHECK((*first)->bytes.size() > 100);
    const auto again = copies.get(wants);
    REQUIRE(again.has_value());
    CHECK(*again == *first);
}

TEST_CASE("a request for the agent says machine, packing and home", "[agent]") {
    const auto whole = parse_request("x86_64 gzip,tcp,python n1.77");
    CHECK(whole.wants.machine == "x86_64");
    CHECK(whole.wants.gzip);
    CHECK(whole.fetches);
    CHECK(whole.carries);
    CHECK_FALSE(whole.unreached);
    CHECK(whole.home == "n1.77");
    CHECK(parse_request("x86_64 plain,unreached,python").unreached);
    const auto short_one = parse_request("aarch64 plain ");
    CHECK(short_one.wants.machine == "aarch64");
    CHECK_FALSE(short_one.wants.gzip);
    CHECK_FALSE(short_one.fetches);
    CHECK_FALSE(short_one.carries);
    CHECK(short_one.home.empty());
    CHECK(parse_request("").wants.machine.empty());
}

namespace {

/// A host that others reach, and that says one line after the other, whatever it gets.
class TellingHost final : public Channel {
public:
    explicit TellingHost(std::string says) : says_(std::move(says)) {}
    asio::awaitable<Result<std::size_t>> read(std::span<char> buffer, Deadline) override {
        const std::size_t bytes = std::min({says_.size(), buffer.size(), says_.find('\n') + 1});
        std::ranges::copy(says_.substr(0, bytes), buffer.begin());
        says_.erase(0, bytes);
        co_return bytes;
    }
    asio::awaitable<Result<void>> write(std::string_view, Deadline) override {
        co_return Result<void>{};
    }
    std::string take_errors() override { return {}; }
    asio::awaitable<std::string> ending(Deadline) override { co_return std::string(); }
    void close() noexcept override {}
    std::string address() const override { return "10.0.0.1"; }

private:
    std::string says_;
};

}  // namespace

TEST_CASE("of a copy it is said whether it comes from here, for which alone this machine works",
          "[agent]") {
    const TestAgent agent;
    AgentCopies copies(100);
    const auto phases_of = [&copies](const std::string& says) {
        TellingHost host(says + fmt::format("{}{} x\n", kAgentReady, kProtocolVersion));
        LineReader lines(host);
        Deadline deadline = after(std::chrono::seconds(20));
        std::string phases;
        const std::function<void(const char*)> phase = [&phases](const char* now) {
            phases += fmt::format("{}{};", now, is_left_to_hosts(now) ? ", not by us" : "");
        };
        asio::io_context io;
        const auto greeted = run_to_end(
            io, greet_agent(host, lines, copies, deadline, std::chrono::seconds(20), phase));
        CHECK(greeted.has_value());
        return phases;
    };
    const std::string asks = fmt::format("{}{} plain,tcp\n", kAgentWanted, kMachine);
    CHECK(phases_of(asks + "dtrun-agent-send\ndtrun-agent-stored\ndtrun-agent-hands-on 77\n") ==
          "copying the agent;starting the agent;");
    CHECK(phases_of(asks + "dtrun-agent-fetched\n") ==
          "copying the agent from another host, not by us;starting the agent;");
    // It could not fetch it, and gets it from here.
    CHECK(phases_of(asks + asks + "dtrun-agent-send\n") ==
          "copying the agent from another host, not by us;copying the agent;starting the agent;");
}

namespace {

asio::awaitable<void> greet_one(asio::io_context& io, AgentCopies& copies, std::string script,
                                std::vector<Result<void>>& ends, int* waiting = nullptr) {
    const auto host = start_process(io.get_executor(), {"/bin/sh", "-c", std::move(script)}, {});
    LineReader lines(**host);
    constexpr std::chrono::seconds kPatience(20);
    Deadline deadline = after(kPatience);
    const std::function<void(const char*)> phase = [waiting](const char* now) {
        if (waiting != nullptr && is_left_to_hosts(now)) ++*waiting;
    };
    auto greeted = co_await greet_agent(**host, lines, copies, deadline, kPatience, phase);
    ends.push_back(std::move(greeted));
}

/// Hosts with these homes that ask for the agent together. Who gets it runs `stores`; the others are ready when they
/// are told that it is there.
std::vector<Result<void>> greet_together(const std::vector<std::string>& homes,
                                         const std::string& stores) {
    asio::io_context io;
    AgentCopies copies;
    std::vector<Result<void>> ends;
    for (const std::string& home : homes) {
        const std::string asks =
            fmt::format("echo {}{} plain {}; read -r id n h z c; [ \"$n\" ] || {{ {}; exit; }}; ",
                        kAgentWanted, kMachine, home, kReadyLine);
        asio::co_spawn(io, greet_one(io, copies, asks + stores, ends),
                       [](std::exception_ptr error) {
                           if (error) std::rethrow_exception(error);
                       });
    }
    io.run();
    return ends;
}

}  // namespace

TEST_CASE("of hosts that have one home one gets the agent, and the others look again", "[agent]") {
    const TestAgent agent;
    const TempDir seen;
    const std::string stores =
        fmt::format("echo dtrun-agent-send; head -c \"$n\" >/dev/null; echo >>{}; ",
                    seen.at("copies")) +
        kReadyLine;
    const auto copied = [&] { return read_file(seen.at("copies")).value().size(); };
    for (const auto& end : greet_together({"n1.1", "n1.1", "n1.1", "n4.1"}, stores))
        CHECK(end.has_value());
    CHECK(copied() == 2);
    for (const auto& end : greet_together({"", "", "n1.1"}, stores)) CHECK(end.has_value());
    CHECK(copied() == 5);
}

TEST_CASE(
    "hosts start the agent while another one of their home unpacks the package, and then wait",
    "[agent]") {
    const TestAgent agent;
    const TempDir seen;
    // The other one says that it is ready when it has been told that the agent is there, which is not the end of its wait.
    const std::string stores =
        fmt::format(
            "echo dtrun-agent-send; head -c \"$n\" >/dev/null; echo dtrun-agent-stored; "
            "until [ -e {0} ]; do sleep 0.01; done; mkdir {1}; ",
            seen.at("waits"), seen.at("unpacked")) +
        kReadyLine;
    const std::string looks = fmt::format("echo >{}; {}", seen.at("waits"), kReadyLine);
    asio::io_context io;
    AgentCopies copies;
    std::vector<Result<void>> ends;
    std::vector<bool> was_unpacked;
    int waiting = 0;  // times that one has said that it waits for the other
    for (int i = 0; i < 2; ++i) {
        const std::string asks =
            fmt::format("echo {}{} plain n1.1; read -r id n h z c; [ \"$n\" ] || {{ {}; exit; }}; ",
                        kAgentWanted, kMachine, looks);
        asio::co_spawn(io, greet_one(io, copies, asks + stores, ends, &waiting),
                       [&](std::exception_ptr error) {
                           if (error) std::rethrow_exception(error);
                           was_unpacked.push_back(std::filesystem::exists(seen.at("unpacked")));
                       });
    }
    io.run();
    REQUIRE(ends.size() == 2);
    for (const auto& end : ends) CHECK(end.has_value());
    CHECK(was_unpacked == std::vector<bool>{true, true});
    CHECK(waiting >= 1);  // for the package; and for the agent, if both asked in time
}

TEST_CASE("a host that fails while it stores the agent leaves that to another of its home",
          "[agent]") {
    const TestAgent agent;
    const TempDir seen;
    const std::string stores = fmt::format(
                                   "echo dtrun-agent-send; mkdir {0} 2>/dev/null && exit 1; "
                                   "head -c \"$n\" >/dev/null; ",
                                   seen.at("failed")) +
                               kReadyLine;
    const auto ends = greet_together({"n1.1", "n1.1", "n1.1"}, stores);
    REQUIRE(ends.size() == 3);
    CHECK_FALSE(ends[0].has_value());
    CHECK(ends[1].has_value());
    CHECK(ends[2].has_value());
}

namespace {

constexpr std::chrono::seconds kPatience(20);
const AgentRequest kFetches{{kMachine, false}, true, false, ""};
const AgentRequest kCarries{{kMachine, false}, false, true, ""};

/// Hosts of a large job, which get their copies from here or from each other.
class ManyHosts {
    asio::io_context io_;  // outlives the timer of `copies`

public:
    /// One more asks, and waits if nobody can give. \param port  at which it listens before it receives; 0: it does not
    CopySlot& ask(const AgentRequest& request = kFetches, int port = 0) {
        CopySlot& slot = slots_.emplace_back();
        ask_again(slot, request, port);
        return slot;
    }
    void ask_again(CopySlot& slot, const AgentRequest& request = kFetches, int port = 0) {
        slot.ask(copies, request, kPatience);
        slot.listens("10.0.0.1", port);
        asio::co_spawn(io_, slot.wait([this] { ++waiting; }),
                       [this](std::exception_ptr) { ++answered; });
        run();
    }
    /// Hosts that have got it from here. \param port  of the first; the next one has the next
    void add_givers(int count, int port) {
        std::vector<CopySlot*> givers;
        for (int i = 0; i < count; ++i) {
            givers.push_back(&ask());
            givers.back()->done();
        }
        for (int i = 0; i < count; ++i)
            givers[static_cast<unsigned>(i)]->hands_on("10.0.0.1", port + i);
    }
    void run() {
        io_.restart();
        io_.poll();
    }

    AgentCopies copies{100};
    unsigned waiting = 0, answered = 0;

private:
    std::list<CopySlot> slots_;
};

}  // namespace

TEST_CASE("of many hosts a few get the agent from here at once, and hand it on", "[agent]") {
    ManyHosts hosts;
    std::vector<CopySlot*> own;
    for (unsigned i = 0; i < AgentCopies::kOwnMax; ++i) own.push_back(&hosts.ask());
    const std::string from_here = own[0]->words();
    CHECK_THAT(from_here, Catch::Matches(" [0-9a-f]{16} 10 0\n"));
    const std::string from_host = from_here.substr(0, from_here.size() - 1) + " 77 10.0.0.1\n";
    CopySlot& late = hosts.ask();
    CHECK(hosts.waiting == 1);
    CHECK(hosts.answered == AgentCopies::kOwnMax);
    own[0]->hands_on("10.0.0.1", 77);
    hosts.run();
    CHECK(late.words() == from_host);
    for (unsigned i = 1; i < AgentCopies::kTakersMax; ++i) CHECK(hosts.ask().words() == from_host);
    CopySlot& later = hosts.ask();
    CHECK(hosts.waiting == 2);
    own[0]->done();
    hosts.run();
    CHECK(later.words() == from_here);
    late.done();
    CHECK(hosts.ask().words() == from_host);
    // Another kind of host, and one that cannot fetch, do not wait for what is not for them.
    own[1]->done();
    CHECK(hosts.ask({{kMachine, true}, true, false, ""}).words() == from_here);
    CHECK(hosts.ask({{kMachine, false}, false, false, ""}).words() == "\n");
}

TEST_CASE("a host that can pass the agent on while it comes gets the program for that", "[agent]") {
    ManyHosts hosts;
    CopySlot& first = hosts.ask(kCarries, 77);
    CHECK_THAT(first.program(),
               Catch::EndsWith(fmt::format(" 10 {}\n{}", kCarrier.size(), kCarrier)));
    CHECK(first.words() == "\n");
    const auto comes_from = [&hosts](int port) {
        return hosts.ask(kCarries).words() == fmt::format("{} 10.0.0.1\n", port);
    };
    CopySlot& second = hosts.ask(kCarries, 78);
    CHECK(second.words() == "77 10.0.0.1\n");
    // They form a line; at a place in it that is taken only where there is no other one.
    CHECK(comes_from(78));
    CHECK(comes_from(77));
    second.done();
    CHECK(comes_from(78));
    CHECK(comes_from(77));
    CHECK(hosts.ask(kCarries).words() == "\n");
}

TEST_CASE("a line of hosts that pass the agent on has a limit, and begins anew", "[agent]") {
    ManyHosts hosts;
    std::map<std::string, int> takers;
    for (unsigned i = 1; i <= AgentCopies::kDepthMax + 2; ++i)
        ++takers[hosts.ask(kCarries, static_cast<int>(i)).words()];
    CHECK(takers["\n"] == 1);
    CHECK(takers["1 10.0.0.1\n"] == 2);
    CHECK(takers[fmt::format("{} 10.0.0.1\n", AgentCopies::kDepthMax)] == 0);
}

TEST_CASE("hosts that wait find their givers in each other as soon as one gets the agent",
          "[agent]") {
    ManyHosts hosts;
    std::vector<CopySlot*> own;
    for (unsigned i = 0; i < AgentCopies::kOwnMax; ++i) own.push_back(&hosts.ask());
    std::vector<CopySlot*> waits;
    for (int port = 1; port <= 14; ++port) waits.push_back(&hosts.ask(kCarries, port));
    CHECK(hosts.answered == AgentCopies::kOwnMax);
    own[0]->done();
    hosts.run();
    CHECK(hosts.answered == AgentCopies::kOwnMax + 14);
    std::map<std::string, int> takers;
    for (const CopySlot* slot : waits) ++takers[slot->words()];
    CHECK(takers["\n"] == 1);
    for (const auto& [from, count] : takers) CHECK(count == 1);
}

TEST_CASE("while all that ask have one home the one that gets the agent does so without Python",
          "[agent]") {
    struct Host {
        HomeTurn turn;
        CopySlot slot;
        bool has_turn = false;
    };
    for (const auto& [second, is_one_home] : {std::pair("n1.1", true), std::pair("n2.1", false)}) {
        INFO(second);
        asio::io_context io;
        AgentCopies copies(100);
        Host hosts[2];
        const auto asks = [&](Host& host, const std::string& home) {
            AgentRequest request = kCarries;
            request.home = home;
            asio::co_spawn(io, host.turn.wait(copies, request, [] {}),
                           [&copies, &host, request](std::exception_ptr, bool is_ours) {
                               host.has_turn = is_ours;
                               host.slot.ask(copies, request, kPatience);
                           });
            io.restart();
            io.poll();
        };
        // The first one waits a moment for another one.
        asks(hosts[0], "n1.1");
        CHECK_FALSE(hosts[0].has_turn);
        asks(hosts[1], second);
        REQUIRE(hosts[0].has_turn);
        CHECK(hosts[0].slot.program().empty() == is_one_home);
        CHECK(hosts[1].has_turn != is_one_home);
        hosts[0].turn.stored();
    }
    asio::io_context io;
    AgentCopies copies(100);
    Host alone;
    AgentRequest request = kCarries;
    request.home = "n1.1";
    asio::co_spawn(io, alone.turn.wait(copies, request, [] {}),
                   [&alone](std::exception_ptr, bool is_ours) { alone.has_turn = is_ours; });
    io.run();
    CHECK(alone.has_turn);
}

TEST_CASE("a host that cannot fetch the agent gets it from here, and its giver is left alone",
          "[agent]") {
    ManyHosts hosts;
    hosts.add_givers(1, 77);
    for (int i = 0; i < 2; ++i) {
        CopySlot& slot = hosts.ask();
        REQUIRE_THAT(slot.words(), Catch::EndsWith(" 77 10.0.0.1\n"));
        hosts.ask_again(slot);
        CHECK_THAT(slot.words(), !Catch::Contains("10.0.0.1") && Catch::EndsWith(" 10 0\n"));
        slot.done();
    }
    CHECK_THAT(hosts.ask().words(), !Catch::Contains("10.0.0.1"));
    // Where no host reaches another one, nobody tries any more.
    ManyHosts apart;
    apart.add_givers(10, 77);
    for (int i = 0; i < 10; ++i) {
        CopySlot& slot = apart.ask();
        if (slot.words() == "\n") break;
        apart.ask_again(slot);
        slot.done();
    }
    CHECK(apart.ask().words() == "\n");
}

TEST_CASE("hosts behind one that has failed while it received get the agent from elsewhere",
          "[agent]") {
    ManyHosts hosts;
    for (int i = 0; i < 10; ++i) {
        CopySlot& first = hosts.ask(kCarries, 77);
        REQUIRE(first.words() == "\n");
        CopySlot& second = hosts.ask(kCarries, 78);
        REQUIRE(second.words() == "77 10.0.0.1\n");
        hosts.ask_again(first, kCarries);  // its own copy has broken off, and so second's
        hosts.ask_again(second, kCarries);
        CHECK(second.words() == "\n");
        first.done();
        second.done();
    }
}

TEST_CASE("who has not got the agent itself, and gives nothing, is asked again when it has it",
          "[agent]") {
    ManyHosts hosts;
    CopySlot& silent = hosts.ask(kCarries, 77);
    CopySlot& behind = hosts.ask(kCarries);
    REQUIRE(behind.words() == "77 10.0.0.1\n");
    hosts.ask_again(behind, kCarries);
    CHECK(behind.words() == "\n");
    silent.done();
    CHECK(hosts.ask(kCarries).words() == "77 10.0.0.1\n");
}

TEST_CASE("where hosts cannot connect to each other all of them soon get the agent from here",
          "[agent]") {
    ManyHosts hosts;
    hosts.ask(kCarries, 1);
    std::vector<CopySlot*> line;
    for (int port = 2; port <= 20; ++port) {
        line.push_back(&hosts.ask(kCarries, port));
        REQUIRE(line.back()->words() != "\n");
    }
    AgentRequest unreached = kCarries;
    unreached.unreached = true;
    for (CopySlot* slot : line) hosts.ask_again(*slot, unreached);
    CHECK(hosts.answered == 1 + 2 * line.size());
    for (const CopySlot* slot : line) CHECK(slot->words() == "\n");
}

TEST_CASE("in jobs of one host, and where a host's address is not known, nothing is handed on",
          "[agent]") {
    asio::io_context io;
    AgentCopies one(1);
    CopySlot slot;
    slot.ask(one, kCarries, kPatience);
    CHECK(slot.program().empty());
    asio::co_spawn(io, slot.wait([] {}), [](std::exception_ptr) {});
    io.run();
    CHECK(slot.words() == "\n");
    ManyHosts hosts;
    for (const char* const address :
         {"", "127.0.0.2", "::1", "0.0.0.0", "169.254.7.1", "fe80::1%2", "::ffff:127.0.0.1"}) {
        CAPTURE(address);
        CopySlot& asked = hosts.ask();
        CHECK_THAT(asked.words(), Catch::EndsWith(" 10 0\n"));
        asked.done();
        asked.hands_on(address, 77);
    }
}

}  // namespace dtrun
