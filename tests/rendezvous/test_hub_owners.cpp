// Owners at a hub: over connections that break, with clients behind relays, and when the hub starts again.

#include "rendezvous/exchange/hub.h"
#include "rendezvous/exchange/relay.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/msgpack.h"
#include "tests/support/catch.h"

#include <fmt/format.h>
#include <utility>

namespace dtrun {
namespace {

using std::chrono::milliseconds;
using namespace std::chrono_literals;

constexpr std::uint64_t kAnna = 11, kBert = 12;
constexpr std::uint64_t kLane = 100;  // added to an owner: what it asks for under another number

/// A daemon's hub, and what it says to whom.
struct Served final : Outbox {
    explicit Served(bool reconnects = true) {
        HubOptions options;
        options.reconnects = reconnects;
        hub.emplace(*this, options);
        hub->begin(1, 2);
    }
    void to_peer(PeerId peer, FrameType type, std::string_view payload) override {
        if (type != FrameType::reply) return;
        const auto reply = decode_reply(payload);
        REQUIRE(reply);
        said.push_back(fmt::format("{}: {}.{} {}", peer, reply->header.client, reply->header.id,
                                   show(*reply)));
    }
    void to_root(FrameType, std::string_view) override { FAIL("a hub has no root"); }

    void come(PeerId peer) { hub->add_peer(peer, PeerKind::subtree, kNoRank); }
    void ask(PeerId peer, RequestHeader header, StoreRequest request) {
        const Bytes frame = encode_request(header, request, 0);
        REQUIRE(hub->from_peer(peer, {FrameType::request, payload_of(frame)}, now));
    }
    void own(PeerId peer, std::uint64_t client, std::uint64_t id = 1) {
        ask(peer, {client, id}, {.op = Op::own});
    }
    void lock(PeerId peer, std::uint64_t owner, std::uint64_t id = 1) {
        ask(peer, {owner + kLane, id},
            {.op = Op::lock,
             .keys = {"l"},
             .values = {""},
             .timeout_ms = kForeverMs,
             .owner = owner});
    }
    void claim(PeerId peer, std::uint64_t owner, std::uint64_t id = 1) {
        ask(peer, {owner + 2 * kLane, id},
            {.op = Op::claim, .keys = {"q"}, .timeout_ms = kForeverMs, .owner = owner});
    }
    void gone(PeerId peer, std::uint64_t client) {
        const Bytes frame = encode(Gone{client});
        REQUIRE(hub->from_peer(peer, {FrameType::gone, payload_of(frame)}, now));
    }
    void wait(milliseconds span) {
        now += span;
        hub->expire(now);
    }
    void stand_still(milliseconds span) {
        hub->stood_still(now, now + span);
        now += span;
    }
    /// What was said since this was asked last.
    std::vector<std::string> heard() { return std::exchange(said, {}); }

    static std::string show(const ReplyView& reply) {
        if (reply.header.status != Status::ok)
            return fmt::format("status {}", static_cast<int>(reply.header.status));
        PackReader in(reply.results);
        if (in.array() == 0) return "ok";
        PackReader probe = in;
        if (const bool yes = probe.boolean(); probe.ok()) return yes ? "true" : "false";
        if (probe = in; probe.uint(), probe.ok()) return "token";
        return std::string(in.bytes());
    }

    Deadline now{};
    std::optional<Hub> hub;
    std::vector<std::string> said;
};

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("what is an owner's goes when it has been away for three seconds, not before",
          "[exchange]") {
    Served job;
    job.come(1), job.come(2);
    job.own(1, kAnna), job.own(2, kBert);
    job.lock(1, kAnna);
    job.lock(2, kBert);
    CHECK(job.heard() == Lines{"1: 11.1 false", "2: 12.1 false", "1: 111.1 token"});
    job.hub->remove_peer(1, job.now);
    CHECK(job.hub->next_deadline() == job.now + 3s);
    job.wait(2'999ms);
    CHECK(job.heard().empty());
    job.wait(1ms);
    CHECK(job.heard() == Lines{"2: 112.1 token"});
}

TEST_CASE("an owner that says it is there over another connection keeps what it has",
          "[exchange]") {
    Served job;
    job.come(1), job.come(2);
    job.own(1, kAnna), job.own(2, kBert);
    job.lock(1, kAnna);
    job.lock(2, kBert);
    job.hub->remove_peer(1, job.now);
    job.wait(2s);
    job.come(3);
    job.own(3, kAnna);
    job.heard();
    job.wait(60s);
    CHECK(job.heard().empty());
    job.ask(3, {kAnna, 2}, {.op = Op::own});
    CHECK(job.heard() == Lines{"3: 11.2 true"});
}

TEST_CASE("a connection that comes before the old one is known to have ended counts",
          "[exchange]") {
    Served job;
    job.come(1), job.come(2), job.come(3);
    job.own(1, kAnna), job.own(2, kBert);
    job.lock(1, kAnna);
    job.lock(2, kBert);
    job.own(3, kAnna, 2);
    job.heard();
    job.hub->remove_peer(1, job.now);
    job.wait(60s);
    CHECK(job.heard().empty());
    job.hub->remove_peer(3, job.now, true);
    CHECK(job.heard() == Lines{"2: 112.1 token"});
}

TEST_CASE("an owner that says goodbye, or was silent for as long as it may be, is not waited for",
          "[exchange]") {
    for (const bool is_lost : {false, true}) {
        Served job;
        job.come(1), job.come(2);
        job.own(1, kAnna), job.own(2, kBert);
        job.lock(1, kAnna);
        job.lock(2, kBert);
        job.heard();
        if (is_lost)
            job.hub->remove_peer(1, job.now, true);
        else
            job.gone(1, kAnna);
        CHECK(job.heard() == Lines{"2: 112.1 token"});
    }
}

TEST_CASE("without a daemon an owner is gone with its connection", "[exchange]") {
    Served job(false);
    job.come(1), job.come(2);
    job.own(1, kAnna), job.own(2, kBert);
    job.lock(1, kAnna);
    job.lock(2, kBert);
    job.heard();
    job.hub->remove_peer(1);
    CHECK(job.heard() == Lines{"2: 112.1 token"});
}

TEST_CASE("a daemon that stood still does not count that time against those who were away",
          "[exchange]") {
    Served job;
    job.come(1), job.come(2);
    job.own(1, kAnna), job.own(2, kBert);
    job.lock(1, kAnna);
    job.lock(2, kBert);
    job.hub->remove_peer(1, job.now);
    job.heard();
    job.wait(1s);
    job.stand_still(13s);
    job.wait(0s);
    CHECK(job.heard().empty());
    CHECK(job.hub->next_deadline() == job.now + 2s);
    job.wait(1'999ms);
    job.come(3);
    job.own(3, kAnna, 2);
    job.stand_still(3s);
    job.wait(60s);
    CHECK(job.heard() == Lines{"3: 11.2 true"});
}

TEST_CASE("a daemon that stands still again and again still counts the time in between",
          "[exchange]") {
    Served job;
    job.come(1), job.come(2);
    job.own(1, kAnna), job.own(2, kBert);
    job.lock(1, kAnna);
    job.lock(2, kBert);
    job.heard();
    job.wait(5s);
    job.hub->remove_peer(1, job.now);
    job.hub->stood_still(job.now - 5s, job.now - 4s);  // before that is nobody's
    for (int second = 0; second < 3; ++second) {
        CHECK(job.heard().empty());
        job.stand_still(2s);
        job.wait(1s);
    }
    CHECK(job.heard() == Lines{"2: 112.1 token"});
}

TEST_CASE("who comes back too late begins with nothing, and is not told that he holds a lock",
          "[exchange]") {
    Served job;
    job.come(1);
    job.own(1, kAnna);
    job.lock(1, kAnna);  // the answer is lost with the connection
    job.hub->remove_peer(1, job.now);
    job.wait(3s);
    job.come(2), job.come(3);
    job.own(2, kBert);
    job.lock(2, kBert);
    job.own(3, kAnna, 2);
    job.heard();
    job.lock(3, kAnna);  // sent again
    CHECK(job.heard().empty());
    job.gone(2, kBert);
    CHECK(job.heard() == Lines{"3: 111.1 token"});
}

TEST_CASE("an answer that was lost is given again while what it gave is there", "[exchange]") {
    Served job;
    job.come(1), job.come(2);
    job.own(1, kAnna);
    job.ask(1, {7, 1}, {.op = Op::push, .keys = {"q"}, .values = {"item"}});
    job.lock(1, kAnna, 1);
    job.claim(1, kAnna);
    job.own(2, kAnna, 2);
    job.heard();
    job.lock(2, kAnna, 1);
    job.claim(2, kAnna);
    CHECK(job.heard() == Lines{"2: 111.1 token", "2: 211.1 item"});
}

TEST_CASE("what was claimed comes back when its owner is gone, and goes to who waits",
          "[exchange]") {
    Served job;
    job.come(1), job.come(2);
    job.own(1, kAnna), job.own(2, kBert);
    job.ask(1, {7, 1}, {.op = Op::push, .keys = {"q"}, .values = {"item"}});
    job.claim(1, kAnna);
    job.claim(2, kBert);
    job.heard();
    job.gone(1, kAnna);
    CHECK(job.heard() == Lines{"2: 212.1 item"});
}

TEST_CASE("nothing is given to an owner that is not there", "[exchange]") {
    Served job;
    job.come(1), job.come(2);
    job.lock(1, kAnna);
    job.own(1, kAnna);
    job.lock(2, kAnna, 2);  // over somebody else's connection
    job.ask(1, {5, 1}, {.op = Op::lock, .keys = {"l"}, .values = {""}});
    job.ask(1, {5, 2}, {.op = Op::unlock, .keys = {"l"}});
    job.gone(1, kAnna);
    job.ask(1, {5, 3}, {.op = Op::put, .keys = {"k"}, .values = {""}, .owner = kAnna});
    CHECK(job.heard() == Lines{"1: 111.1 status 5", "1: 11.1 false", "2: 111.2 status 5",
                               "1: 5.1 status 5", "1: 5.2 status 5", "1: 5.3 status 5"});
    CHECK(job.hub->store().size() == 0);
}

TEST_CASE("a rank that ends while it waits for a lock is not given it", "[exchange]") {
    Served job(false);
    job.come(1), job.come(2);
    job.own(1, kAnna), job.own(2, kBert);
    job.lock(1, kAnna);
    job.lock(2, kBert);
    job.heard();
    // An agent says so of each number of the rank, in any order.
    job.gone(2, kBert);
    job.gone(1, kAnna);
    job.gone(2, kBert + kLane);
    CHECK(job.heard() == Lines{"2: 112.1 status 5"});
    CHECK(job.hub->store().size() == 0);
}

TEST_CASE("a lock of which nobody has heard is taken back with its request", "[exchange]") {
    Served job;
    job.come(1);
    job.own(1, kAnna);
    job.lock(1, kAnna);
    job.ask(1, {kAnna + kLane, 2, 1}, {.op = Op::cancel, .number = 1});
    CHECK(job.hub->store().size() == 1);
    job.ask(1, {kAnna + kLane, 3, 2}, {.op = Op::cancel, .number = 1, .owner = kAnna});
    CHECK(job.hub->store().size() == 0);
}

TEST_CASE("nobody takes back what is another connection's", "[exchange]") {
    Served job;
    job.come(1), job.come(2);
    job.own(1, kAnna);
    job.lock(1, kAnna);
    job.ask(2, {kAnna + kLane, 2, 1}, {.op = Op::cancel, .number = 1, .owner = kAnna});
    CHECK(job.hub->store().size() == 1);
    job.own(2, kAnna, 2);
    job.ask(2, {kAnna + kLane, 3, 2}, {.op = Op::cancel, .number = 1, .owner = kAnna});
    CHECK(job.hub->store().size() == 0);
}

TEST_CASE("a cancel of an older library has no owner", "[exchange]") {
    Served job;
    job.come(1);
    Bytes arguments;
    PackWriter out(arguments);
    out.array(2), out.uint(0), out.uint(1);
    const Bytes frame = encode_request({5, 2, 0, Op::cancel}, arguments);
    REQUIRE(job.hub->from_peer(1, {FrameType::request, payload_of(frame)}, job.now));
    CHECK(job.heard() == Lines{"1: 5.2 ok"});
}

TEST_CASE("who watches a prefix over the end of a generation is told that all is gone",
          "[exchange]") {
    Served job;
    job.come(1);
    job.ask(1, {5, 1}, {.op = Op::set, .keys = {"a/1"}, .values = {"x"}});
    job.ask(1, {5, 2}, {.op = Op::watch_prefix, .keys = {"a/"}});
    const std::uint64_t known = job.hub->store().revision();
    job.hub->begin(2, 2);
    job.heard();
    job.ask(1, {5, 3}, {.op = Op::watch_prefix, .keys = {"a/"}, .number = known});
    CHECK(job.heard().size() == 1);
}

TEST_CASE("an owner stays one over the end of a generation, with nothing of the old one",
          "[exchange]") {
    Served job;
    job.come(1);
    job.own(1, kAnna);
    job.lock(1, kAnna, 1);
    job.hub->begin(2, 2);
    job.lock(1, kAnna, 2);
    CHECK(job.heard() == Lines{"1: 11.1 false", "1: 111.1 token", "1: 111.2 token"});
    job.gone(1, kAnna);
    CHECK(job.hub->store().size() == 0);
}

TEST_CASE("an owner has ten seconds to find a hub that was started again", "[exchange]") {
    Served job;
    job.hub->restore_store().restore_value("l", "",
                                           {8, kAnna, Deadline::max(), {kAnna + kLane, 1}});
    job.hub->restore_store().restore_item("q", 9, "item", {kBert, {kBert + 2 * kLane, 1}});
    job.hub->end_restore(job.now);
    job.wait(9s);
    job.come(1);
    job.own(1, kAnna);
    CHECK(job.heard() == Lines{"1: 11.1 true"});
    job.wait(1s);
    job.ask(1, {5, 1}, {.op = Op::pop, .keys = {"q"}});
    job.ask(1, {5, 2}, {.op = Op::check, .keys = {"l"}});
    CHECK(job.heard() == Lines{"1: 5.1 item", "1: 5.2 true"});
}

namespace {

/// A relay with a rank behind it, and what it says to the root.
struct Relayed final : Outbox {
    Relayed() {
        relay.resend();
        relay.add_peer(1, PeerKind::rank, Rank{0});
    }
    void to_peer(PeerId, FrameType, std::string_view) override {}
    void to_root(FrameType type, std::string_view payload) override {
        if (type == FrameType::request) said.push_back(show(decode_request(payload)->header));
        if (type == FrameType::gone)
            said.push_back(fmt::format("{} gone", decode<Gone>(payload)->client));
    }
    static std::string show(const RequestHeader& header) {
        return fmt::format("{}.{} op {}", header.client, header.id, static_cast<int>(header.op));
    }
    void ask(RequestHeader header, const StoreRequest& request) {
        const Bytes frame = encode_request(header, request, 0);
        REQUIRE(relay.from_peer(1, {FrameType::request, payload_of(frame)}, Deadline{}));
    }
    void gone(std::uint64_t client) {
        const Bytes frame = encode(Gone{client});
        REQUIRE(relay.from_peer(1, {FrameType::gone, payload_of(frame)}, Deadline{}));
    }
    void answered(std::uint64_t client, std::uint64_t id) {
        const Bytes frame = encode_reply({client, id, Status::ok}, {});
        REQUIRE(relay.from_root({FrameType::reply, payload_of(frame)}));
    }
    /// What is said when the root is found again.
    std::vector<std::string> again() {
        said.clear();
        relay.resend();
        return said;
    }

    std::vector<std::string> said;
    Relay relay{*this};
};

}  // namespace

TEST_CASE("a relay says again who owns things when the root is found again, before all else",
          "[exchange]") {
    Relayed rank;
    rank.ask({5, 1}, {.op = Op::get, .keys = {"k"}, .timeout_ms = kForeverMs});
    rank.ask({kAnna, 1}, {.op = Op::own});
    CHECK(rank.again() == Lines{"11.1 op 29", "5.1 op 2"});
    rank.relay.remove_peer(1);
    CHECK(rank.again().empty());
}

TEST_CASE("a relay sees to it that what nobody has heard of is taken back, with who asked gone",
          "[exchange]") {
    Relayed rank;
    const std::uint64_t lane = kAnna + kLane;
    rank.ask({kAnna, 1}, {.op = Op::own});
    rank.answered(kAnna, 1);
    rank.ask({lane, 1}, {.op = Op::lock, .keys = {"l"}, .values = {""}, .owner = kAnna});
    rank.ask({lane, 2, 1}, {.op = Op::cancel, .number = 1});
    rank.ask({lane, 3, 2}, {.op = Op::cancel, .number = 1, .owner = kAnna});
    rank.gone(lane);
    CHECK(rank.again() == Lines{"11.1 op 29", "111.3 op 17", "111 gone"});
    rank.answered(lane, 3);
    CHECK(rank.again() == Lines{"11.1 op 29"});
}

}  // namespace dtrun
