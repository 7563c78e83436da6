// What ranks say at fences, rightly or wrongly, to the relay of their host, and what comes of it for others.

#include "rendezvous/exchange/hub.h"
#include "rendezvous/exchange/relay.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/msgpack.h"
#include "tests/support/catch.h"
#include "tests/support/seed.h"

#include <deque>
#include <functional>
#include <memory>
#include <random>

namespace dtrun {
namespace {

using Frame = std::pair<FrameType, std::string>;

/// A job: hosts with a relay each, the hub, and ranks that come and go over as many connections as they like.
/// No frame of a rank may cost a host its link.
class Tree {
public:
    struct Connection {
        std::uint32_t host = 0;
        PeerId peer = 0;
    };

    /// \param served  by a daemon: links may break
    Tree(std::uint32_t hosts, std::uint32_t ranks_each, bool served = false)
        : ranks_each_(ranks_each), hub_(root_, options(served)) {
        hub_.begin(1, hosts * ranks_each);
        for (std::uint32_t i = 0; i < hosts; ++i) {
            hub_.add_peer(i, PeerKind::subtree, kNoRank);
            hosts_.push_back(std::make_unique<Host>());
            Host& host = *hosts_.back();
            host.link = i;
            host.relay.begin(1, ranks_each);
            if (served) host.relay.resend();
        }
        last_link_ = hosts;
    }

    /// A host's link to the daemon breaks, and is made again.
    void reconnect(std::uint32_t index) {
        Host& host = *hosts_.at(index);
        hub_.remove_peer(host.link, now_);
        host.link = last_link_++;
        hub_.add_peer(host.link, PeerKind::subtree, kNoRank);
        host.up.clear();  // what is under way is said again
        host.relay.resend();
        deliver();
    }

    Connection connect(std::uint32_t rank) {
        const Connection made{rank / ranks_each_, ++last_peer_};
        host_of(made).relay.add_peer(made.peer, PeerKind::rank, Rank{rank});
        host_of(made).relay.back(Rank{rank});
        deliver();
        return made;
    }
    /// A part of a host's agent that comes to fences of agents, for ranks that need no worker for it.
    Connection connect_agent(std::uint32_t host) {
        const Connection made{host, ++last_peer_};
        host_of(made).relay.add_peer(made.peer, PeerKind::subtree, kNoRank);
        return made;
    }
    void close(const Connection& connection) {
        host_of(connection).relay.remove_peer(connection.peer);
        deliver();
    }
    Relay& relay_of(const Connection& connection) { return host_of(connection).relay; }

    Result<void> say(const Connection& connection, FrameType type, std::string_view payload) {
        const auto taken =
            host_of(connection).relay.from_peer(connection.peer, {type, payload}, now_);
        deliver();
        return taken;
    }
    template <class Message>
    Result<void> say(const Connection& connection, const Message& message) {
        const Bytes frame = encode(message);
        return say(connection, MessageTraits<Message>::kType, payload_of(frame));
    }
    /// Comes to a fence. \param round  as this connection counts
    void come(const Connection& connection, std::string name, std::string bytes,
              std::uint64_t round = 0) {
        REQUIRE(say(connection, Fence{1, std::move(name), round, 1, {{Rank{}, bytes}}}));
    }

    /// While `what` runs, all frames but those of ranks are under way.
    void hold(const std::function<void()>& what) {
        is_held_ = true;
        what();
        is_held_ = false;
        deliver();
    }

    /// The ends of fences that this connection was told and nobody has taken yet.
    std::vector<Fenced> told(const Connection& connection) {
        std::vector<Fenced> all;
        for (const Frame& frame : std::exchange(host_of(connection).told[connection.peer], {}))
            if (frame.first == FrameType::fenced)
                all.push_back(decode<Fenced>(frame.second).value());
        return all;
    }
    /// The only end that it was told: "ok: 0 1" with what the ranks brought, "no: why" or "invalid: why".
    std::string end(const Connection& connection) {
        const std::vector<Fenced> all = told(connection);
        if (all.size() != 1) return fmt::format("{} ends", all.size());
        const Fenced& fenced = all.front();
        if (!fenced.complete) return (fenced.invalid ? "invalid: " : "no: ") + fenced.why;
        std::string text = "ok:";
        for (const FenceEntry& entry : fenced.entries) text += " " + entry.bytes;
        return text;
    }
    std::size_t replies(const Connection& connection) {
        std::size_t count = 0;
        for (const Frame& frame : std::exchange(host_of(connection).told[connection.peer], {}))
            count += frame.first == FrameType::reply;
        return count;
    }

    void pass(std::chrono::seconds time) {
        for (const Deadline end = now_ + time; hub_.next_deadline() <= end;) {
            now_ = hub_.next_deadline();
            hub_.expire(now_);
            deliver();
        }
        now_ += time;
    }

private:
    struct Host final : Outbox {
        void to_peer(PeerId peer, FrameType type, std::string_view payload) override {
            told[peer].emplace_back(type, payload);
        }
        void to_root(FrameType type, std::string_view payload) override {
            up.emplace_back(type, payload);
        }
        std::map<PeerId, std::vector<Frame>> told;
        std::deque<Frame> up;
        PeerId link = 0;  ///< what the hub knows it by
        Relay relay{*this};
    };
    struct Root final : Outbox {
        void to_peer(PeerId peer, FrameType type, std::string_view payload) override {
            down.emplace_back(peer, Frame{type, std::string(payload)});
        }
        void to_root(FrameType, std::string_view) override { FAIL("a hub has no root"); }
        std::deque<std::pair<PeerId, Frame>> down;
    };

    static HubOptions options(bool served) {
        HubOptions options;
        options.reconnects = served;
        return options;
    }
    Host& host_of(const Connection& connection) { return *hosts_.at(connection.host); }

    static void check(const Result<void>& taken) {
        if (!taken) FAIL(taken.error().message);
    }

    /// Until nothing is under way. All links hold.
    void deliver() {
        if (is_held_) return;
        for (bool moved = true; std::exchange(moved, false);) {
            for (const auto& host : hosts_) {
                moved |= !host->up.empty();
                for (const auto& [type, payload] : std::exchange(host->up, {}))
                    check(hub_.from_peer(host->link, {type, payload}, now_));
            }
            moved |= !root_.down.empty();
            for (const auto& [peer, frame] : std::exchange(root_.down, {}))
                for (const auto& host : hosts_) {
                    if (host->link != peer) continue;
                    check(host->relay.from_root({frame.first, frame.second}));
                }
        }
    }

    std::uint32_t ranks_each_;
    bool is_held_ = false;
    Root root_;
    Hub hub_;
    std::vector<std::unique_ptr<Host>> hosts_;
    PeerId last_peer_ = 100;
    PeerId last_link_ = 0;
    Deadline now_{};
};

}  // namespace

TEST_CASE("programs that a rank runs one after the other go on with its rounds of a fence",
          "[fences]") {
    Tree job(2, 1);
    const auto a = job.connect(0), b = job.connect(1);
    job.come(a, "start", "a0");
    job.come(b, "start", "b0");
    CHECK(job.end(a) == "ok: a0 b0");
    CHECK(job.end(b) == "ok: a0 b0");
    // The next program of rank 0 comes long before that of rank 1, and waits for it.
    job.close(a);
    const auto next_a = job.connect(0);
    job.come(next_a, "start", "a1");
    CHECK(job.told(next_a).empty());
    job.close(b);
    const auto next_b = job.connect(1);
    job.come(next_b, "start", "b1");
    CHECK(job.end(next_a) == "ok: a1 b1");
    CHECK(job.end(next_b) == "ok: a1 b1");
}

TEST_CASE("a rank's program and what it starts count the same rounds", "[fences]") {
    Tree job(1, 2);
    const auto a = job.connect(0), b = job.connect(1);
    const auto below_a = job.connect(0);
    job.come(a, "f", "a0", 0), job.come(b, "f", "b0", 0);
    CHECK(job.end(a) == "ok: a0 b0");
    job.come(below_a, "f", "a1", 0), job.come(b, "f", "b1", 1);
    CHECK(job.end(below_a) == "ok: a1 b1");
    job.come(a, "f", "a2", 1), job.come(b, "f", "b2", 2);
    CHECK(job.end(a) == "ok: a2 b2");
    CHECK(job.told(below_a).empty());
    CHECK(job.told(b).size() == 3);
}

TEST_CASE("the second worker of a rank that comes to a fence where the first waits is told so",
          "[fences]") {
    Tree job(2, 1);
    const auto a = job.connect(0), b = job.connect(1), again = job.connect(0);
    job.come(a, "x", "a");
    job.come(again, "x", "wrong");
    CHECK(job.end(again) == "invalid: another worker of rank 0 is at this fence");
    // Nobody else notices, and its call does not count.
    job.come(b, "x", "b");
    CHECK(job.end(a) == "ok: a b");
    CHECK(job.end(b) == "ok: a b");
    job.come(again, "x", "a1", 1);
    job.come(b, "x", "b1", 1);
    CHECK(job.end(again) == "ok: a1 b1");
}

TEST_CASE("threads of one worker may be at rounds of the same fence", "[fences]") {
    Tree job(1, 2);
    const auto a = job.connect(0), b = job.connect(1);
    job.come(a, "x", "a0", 0), job.come(a, "x", "a1", 1);
    job.come(b, "x", "b0", 0);
    CHECK(job.told(a).size() == 1);
    job.come(b, "x", "b1", 1);
    const auto second = job.told(a);
    REQUIRE(second.size() == 1);
    CHECK(second.front().round == 1);
    CHECK(second.front().entries.front().bytes == "a1");
}

TEST_CASE("a program that names its fences by steps may come back to an early one", "[fences]") {
    Tree job(1, 1);
    const auto a = job.connect(0);
    const auto meet = [&](const std::string& name) {
        job.come(a, name, "a");
        return job.end(a) == "ok: a";
    };
    int met = 0;
    for (int step = 0; step < 5'000; ++step) met += meet(fmt::format("step {}", step));
    CHECK(met == 5'000);
    CHECK(meet("step 0"));
    CHECK(meet("step 4999"));
}

TEST_CASE("rounds are known of the names at which ranks have been lately, and of no others",
          "[fences]") {
    constexpr std::size_t kKept = 100;
    RankRounds rounds(kKept);
    const Rank first{0}, second{1};
    rounds.came(first, "waits", 0);  // where the second has not come yet
    constexpr std::size_t kNames = kKept - 2;
    const auto name = [](std::size_t i) { return fmt::format("name {}", i); };
    const auto come = [&](std::size_t begin) {
        for (std::size_t i = begin; i < begin + kNames; ++i)
            for (const Rank rank : {first, second})
                rounds.came(rank, name(i), rounds.next(rank, name(i)));
        for (std::size_t i = begin; i < begin + kNames; ++i) rounds.completed(name(i), 0);
    };
    come(0);
    CHECK(rounds.next(first, "waits") == 1);
    CHECK(rounds.next(second, "waits") == 0);
    CHECK(rounds.next(first, name(0)) == 1);
    come(kNames);
    CHECK(rounds.next(first, name(kNames)) == 1);
    CHECK(rounds.next(second, name(1)) == 1);
    come(2 * kNames);
    CHECK(rounds.next(first, name(0)) == 0);
    CHECK(rounds.next(first, name(kNames)) == 1);
    come(3 * kNames);
    CHECK(rounds.next(first, "waits") == 0);
}

TEST_CASE("an arrival does not count whose program has ended before the others of its host came",
          "[fences]") {
    Tree job(1, 2);
    const auto a = job.connect(0), b = job.connect(1);
    job.come(a, "x", "dead");
    job.close(a);
    const auto next = job.connect(0);
    job.come(next, "x", "a");
    CHECK(job.told(next).empty());
    job.come(b, "x", "b");
    CHECK(job.end(next) == "ok: a b");
}

TEST_CASE("who comes late to a fence that was given up is told, whatever connection it comes over",
          "[fences]") {
    Tree job(2, 1);
    const auto a = job.connect(0), b = job.connect(1);
    job.come(a, "x", "a0"), job.come(b, "x", "b0");
    CHECK(job.end(a) == "ok: a0 b0");
    CHECK(job.end(b) == "ok: a0 b0");
    job.close(a);
    const auto next = job.connect(0);
    job.come(next, "x", "a1");
    REQUIRE(
        job.say(next, Unfence{1, "x", 0, "rank 0 waited 5 ms"}));  // its first round is ours second
    CHECK(job.end(next) == "no: rank 0 waited 5 ms");
    job.come(b, "x", "b1", 1);
    CHECK(job.end(b) == "no: rank 0 waited 5 ms");
    job.come(next, "x", "a2", 1), job.come(b, "x", "b2", 2);
    CHECK(job.end(b) == "ok: a2 b2");
}

TEST_CASE("a fence that was given up keeps no other worker of the rank from the next round",
          "[fences]") {
    Tree job(1, 2);
    const auto a = job.connect(0), b = job.connect(1);
    const auto next = job.connect(0);
    job.come(a, "x", "a0");
    job.hold([&] {
        REQUIRE(job.say(a, Unfence{1, "x", 0, "rank 0 was interrupted"}));
        job.come(next, "x", "a1");
    });
    CHECK(job.end(a) == "no: rank 0 was interrupted");
    CHECK(job.told(next).empty());
    job.come(b, "x", "b0");
    CHECK(job.end(b) == "no: rank 0 was interrupted");
    job.come(b, "x", "b1", 1);
    CHECK(job.end(next) == "ok: a1 b1");
}

TEST_CASE("a new generation counts anew", "[fences]") {
    Tree job(1, 1);
    const auto a = job.connect(0);
    job.come(a, "x", "a0");
    CHECK(job.end(a) == "ok: a0");
    job.relay_of(a).begin(2, 1);
    REQUIRE(job.say(a, Fence{1, "x", 1, 1, {}}));
    CHECK(job.end(a) == "no: this generation is over");
}

TEST_CASE("a rank gives up only the fences at which it is, and speaks for nobody else",
          "[fences]") {
    Tree job(2, 1);
    const auto a = job.connect(0), b = job.connect(1);
    job.come(b, "x", "b");
    REQUIRE(job.say(a, Unfence{1, "x", 0, "I say so"}));
    REQUIRE(job.say(a, Unfence{1, "", 0, "all of them"}));
    REQUIRE(job.say(a, Unfence{1, "", 0, "all of them", Rank{1}}));
    REQUIRE(job.say(
        b, FrameType::request,
        payload_of(encode_request({7, 1, 0, Op::get}, "\x93\0\xc4\1k\xce\xff\xff\xff\xff"))));
    REQUIRE(job.say(a, Gone{7}));  // of a client of rank 1
    CHECK(job.told(b).empty());
    job.come(a, "x", "a");
    CHECK(job.end(b) == "ok: a b");
    job.come(a, "dtrun/pmi", "a");
    CHECK(job.end(a).starts_with("2 ends"));
}

TEST_CASE("fences wait for a rank that is away, but not for long", "[fences]") {
    Tree job(2, 2);
    const auto a = job.connect(0), b = job.connect(1), c = job.connect(2), d = job.connect(3);
    job.close(a);
    job.relay_of(a).away(Rank{0}, "rank 0 has finalized its worker");
    // One waits at the relay of its host alone, others at the hub.
    job.come(b, "here", "b"), job.come(c, "there", "c"), job.come(d, "there", "d");
    job.pass(std::chrono::seconds(4));
    CHECK(job.told(b).empty());
    job.pass(std::chrono::seconds(7));
    CHECK(job.end(b) == "no: rank 0 has finalized its worker");
    CHECK(job.end(c) == "no: rank 0 has finalized its worker");
    CHECK(job.end(d) == "no: rank 0 has finalized its worker");

    // It is back: what has failed has failed for it as well, and the next round is for all.
    const auto back = job.connect(0);
    job.come(back, "there", "a");
    CHECK(job.end(back) == "no: rank 0 has finalized its worker");
    job.come(back, "two", "a"), job.come(c, "two", "c"), job.come(d, "two", "d");
    job.pass(std::chrono::seconds(60));
    CHECK(job.told(c).empty());
    job.come(b, "two", "b", 0);
    CHECK(job.end(back) == "ok: a b c d");
}

TEST_CASE("agents' own fences wait for a rank that has closed its worker as for any other",
          "[fences]") {
    Tree job(2, 2);
    const auto a = job.connect(0), b = job.connect(1);
    const auto first = job.connect_agent(0), second = job.connect_agent(0);
    const auto other = job.connect_agent(1);
    job.close(a);
    job.relay_of(a).away(Rank{0}, "rank 0 has finalized its worker");
    // One waits at the relay, and one at the hub.
    REQUIRE(job.say(first, Fence{1, "dtrun/pmix", 0, 1, {}}));
    REQUIRE(job.say(other, Fence{1, "dtrun/pmix", 0, 2, {}}));
    job.come(b, "x", "b");
    job.pass(std::chrono::seconds(60));
    CHECK(job.end(b) == "no: rank 0 has finalized its worker");
    for (const Fenced& fenced : job.told(first)) CHECK(fenced.name == "x");
    for (const Fenced& fenced : job.told(other)) CHECK(fenced.name == "x");
    REQUIRE(job.say(second, Fence{1, "dtrun/pmix", 0, 1, {}}));
    CHECK(job.end(first) == "ok:");
    CHECK(job.end(other) == "ok:");
}

TEST_CASE("that a rank is away, or back, survives a link that breaks", "[fences]") {
    Tree job(2, 1, true);
    const auto a = job.connect(0), b = job.connect(1);
    job.close(a);
    job.relay_of(a).away(Rank{0}, "rank 0 has finalized its worker");
    job.reconnect(0);
    job.come(b, "x", "b");
    job.pass(std::chrono::seconds(11));
    CHECK(job.end(b) == "no: rank 0 has finalized its worker");
    const auto back = job.connect(0);
    job.reconnect(0);
    job.come(b, "y", "b");
    job.pass(std::chrono::seconds(60));
    job.come(back, "y", "a");
    CHECK(job.end(b) == "ok: a b");
}

TEST_CASE("a rank of a step that lies ends its own connection at most", "[fences]") {
    // There is no agent between a rank and rank 0's hub.
    struct Ends final : Outbox {
        void to_peer(PeerId peer, FrameType type, std::string_view payload) override {
            if (type == FrameType::fenced) last[peer] = decode<Fenced>(payload).value();
        }
        void to_root(FrameType, std::string_view) override {}
        std::map<PeerId, Fenced> last;
    } out;
    Hub hub(out, {});
    hub.begin(1, 2);
    for (const PeerId peer : {0u, 1u}) hub.add_peer(peer, PeerKind::rank, Rank{peer});
    const auto say = [&hub](PeerId peer, const auto& message) {
        const Bytes frame = encode(message);
        const FrameType type = MessageTraits<std::decay_t<decltype(message)>>::kType;
        return hub.from_peer(peer, {type, payload_of(frame)}, Deadline{}).has_value();
    };
    CHECK_FALSE(say(1, Unfence{1, "", 0, "all"}));
    CHECK_FALSE(say(1, Unfence{1, "", 0, "all", Rank{0}}));
    CHECK_FALSE(say(1, Fence{1, "x", 0, 2, {}}));
    CHECK(say(1, Heartbeat{7, {Rank{0}, 9}, 9}));
    CHECK(hub.progress().reporting == 0);
    REQUIRE(say(1, Fence{1, "x", 0, 1, {{Rank{0}, "mine"}}}));
    REQUIRE(say(1, Fence{1, "x", 0, 1, {}}));
    CHECK(out.last[1].invalid);
    REQUIRE(say(0, Fence{1, "x", 0, 1, {}}));
    REQUIRE(out.last[0].complete);
    CHECK(out.last[0].entries == std::vector<FenceEntry>{{Rank{1}, "mine"}});
}

TEST_CASE("whatever a rank says fails its own calls at most: the job and the other ranks go on",
          "[fences]") {
    const std::uint32_t seed = test_seed();
    const bool served = GENERATE(false, true);
    INFO("DTRUN_SEED=" << seed << (served ? ", by a daemon" : ""));
    std::mt19937 random(seed);
    const auto up_to = [&](std::uint32_t n) {
        return std::uniform_int_distribution<std::uint32_t>(0, n)(random);
    };
    const auto name = [&]() -> std::string {
        const std::string names[] = {"x", "y", "", "dtrun/pmix", std::string(2'000, 'n')};
        return names[up_to(up_to(3) == 0 ? 4 : 1)];
    };
    const auto any = [&]() -> std::uint64_t {
        const std::uint64_t some[] = {0, 1, 2, UINT64_MAX, UINT32_MAX, random()};
        return some[up_to(5)];
    };
    Tree job(2, 2, served);
    std::vector<Tree::Connection> liars{job.connect(0), job.connect(0)};
    const Tree::Connection honest[] = {job.connect(1), job.connect(2), job.connect(3)};
    std::uint64_t cut_off = 0;
    const auto lie = [&](const Tree::Connection& liar) -> Result<void> {
        const std::uint64_t generation = up_to(5) == 0 ? any() : 1;
        switch (up_to(8)) {
            case 0: {
                std::vector<FenceEntry> entries(up_to(2),
                                                {Rank{up_to(4)}, std::string(up_to(9), 'e')});
                return job.say(liar, Fence{generation, name(), any(),
                                           up_to(3) == 0 ? static_cast<std::uint32_t>(any()) : 1,
                                           std::move(entries)});
            }
            case 1:
                return job.say(liar,
                               Unfence{generation, name(), any(), std::string(up_to(9'000), 'w'),
                                       up_to(1) == 0 ? kNoRank : Rank{up_to(4)}, up_to(1) == 0});
            case 2:
                return job.say(liar, Gone{up_to(40)});
            case 3:
                return job.say(liar, RankProgress{Rank{up_to(9)}, any()});
            case 4:
                return job.say(liar, Heartbeat{up_to(9), {Rank{up_to(9)}, any()}, any()});
            case 5:
                return job.say(liar,
                               GroupFence{any(), "run", name(), any(), Rank{0}, 4, {}, "why"});
            case 6:
                return job.say(liar,
                               Fenced{generation, name(), any(), true, "", {}, up_to(1) == 0});
            case 7: {
                const RequestHeader header{any(), any(), static_cast<std::uint32_t>(any()),
                                           static_cast<Op>(up_to(20))};
                return job.say(liar, FrameType::request,
                               payload_of(encode_request(header, std::string(up_to(30), '\x93'))));
            }
            default: {
                std::string bytes(up_to(60), '\0');
                for (char& byte : bytes) byte = static_cast<char>(random());
                return job.say(liar, static_cast<FrameType>(up_to(70)), bytes);
            }
        }
    };
    std::uint64_t asked = 0;
    for (int step = 0; step < 2'000; ++step) {
        auto& liar = liars[up_to(1)];
        if (!lie(liar) || up_to(99) == 0) {  // its own connection may end
            ++cut_off;
            job.close(liar);
            liar = job.connect(0);
        }
        if (served && up_to(99) == 0) job.reconnect(up_to(1));
        if (step % 50 != 0) continue;
        // The store answers the others, and fences without the liar's mistakes hold for all.
        const Bytes frame =
            encode_request({1'000'000, ++asked, 0, Op::count}, std::string("\x91\0", 2));
        REQUIRE(job.say(honest[0], FrameType::request, payload_of(frame)));
        REQUIRE(job.replies(honest[0]) == 1);
        const auto right = job.connect(0);
        const std::string fence = fmt::format("step {}", step);
        for (const auto& rank : honest) job.come(rank, fence, "h");
        REQUIRE(job.told(honest[1]).empty());
        job.come(right, fence, "r");
        for (const auto& rank : honest) REQUIRE(job.end(rank) == "ok: r h h h");
        REQUIRE(job.end(right) == "ok: r h h h");
        job.close(right);
    }
    CHECK(cut_off > 20);
}

}  // namespace dtrun
