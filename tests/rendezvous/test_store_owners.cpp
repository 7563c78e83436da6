// What is an owner's in a store, what is claimed, and what is watched or done by several keys at once.

#include "tests/rendezvous/store_asker.h"
#include "tests/support/catch.h"

namespace dtrun {
namespace {

using std::chrono::milliseconds;
using Is = Condition::Kind;
using Do = Action::Kind;

constexpr std::uint64_t kAnna = 11, kBert = 12, kCleo = 13;

std::vector<std::string> answers(std::initializer_list<const char*> texts) {
    return {texts.begin(), texts.end()};
}

}  // namespace

TEST_CASE("what an owner has put is gone with it, and nothing else", "[store]") {
    StoreAsker asker;
    asker.put("mine", "1", kAnna);
    asker.put("also mine", "2", kAnna);
    asker.put("his", "3", kBert);
    asker.put("nobody's", "4", 0);
    asker.store().owner_gone(kAnna);
    CHECK(asker.get("mine") == "not_found");
    CHECK(asker.get("also mine") == "not_found");
    CHECK(asker.get("his") == "ok 3");
    CHECK(asker.get("nobody's") == "ok 4");
    CHECK(asker.store().owners() == std::vector{kBert});
}

TEST_CASE("a plain set makes a value stay; what changes it leaves it as it is", "[store]") {
    StoreAsker asker;
    for (const char* key : {"set", "several", "action", "add", "append", "compared"})
        asker.put(key, "1", kAnna);
    asker.set("set", "x");
    asker.ask({Op::multi_set, {"several"}, {"x"}});
    asker.transact({}, {{Do::set, "action", "x"}});
    asker.add("add", 1);
    asker.ask({Op::append, {"append"}, {"x"}});
    asker.compare_set("compared", "1", "x");
    asker.store().owner_gone(kAnna);
    CHECK(asker.ask({Op::check, {"set", "several", "action"}}) == "ok true");
    CHECK(asker.ask({Op::count}) == "ok 3");
}

TEST_CASE("a value is another's when he puts it, and only his end is its own", "[store]") {
    StoreAsker asker;
    asker.put("k", "1", kAnna);
    asker.put("k", "2", kBert);
    asker.store().owner_gone(kAnna);
    CHECK(asker.get("k") == "ok 2");
    asker.store().owner_gone(kBert);
    CHECK(asker.get("k") == "not_found");
}

TEST_CASE("a value with a time to live is erased when that is over, and those who wait hear of it",
          "[store]") {
    StoreAsker asker;
    asker.put("short", "1", 0, 100);
    asker.put("longer", "1", 0, 100);
    asker.put("longer", "1", 0, 200);
    asker.put("set later", "1", 0, 100);
    asker.set("set later", "2");
    CHECK(asker.store().next_deadline() == StoreAsker::kBegin + milliseconds(100));
    CHECK(asker.watch("short", 1) == "waits");
    asker.store().expire(StoreAsker::kBegin + milliseconds(99));
    CHECK(asker.late.empty());
    asker.store().expire(StoreAsker::kBegin + milliseconds(100));
    CHECK(asker.late == answers({"6: ok 0 nil"}));
    CHECK(asker.get("longer") == "ok 1");
    CHECK(asker.get("set later") == "ok 2");
    asker.store().expire(StoreAsker::kBegin + milliseconds(200));
    CHECK(asker.get("longer") == "not_found");
    CHECK(asker.store().next_deadline() == Deadline::max());
    CHECK(asker.put("for ages", "1", 0, UINT64_MAX) == "ok");
    CHECK(asker.store().next_deadline() > StoreAsker::kBegin);
}

TEST_CASE("nobody is served what has lived for long enough, although nobody has looked yet",
          "[store]") {
    const Deadline over = StoreAsker::kBegin + milliseconds(100);
    StoreAsker asker;
    asker.put("k", "1", 0, 100);
    asker.put("l", "1", 0, 100);
    CHECK(asker.get("k", 0, over - milliseconds(1)) == "ok 1");
    CHECK(asker.lock("l", kAnna) == "waits");
    CHECK(asker.get("k", 0, over) == "not_found");
    // Who has waited comes before who asks now.
    CHECK(asker.late.size() == 1);
    CHECK(asker.lock("l", kBert, 0) == "timed_out");
}

TEST_CASE("a lock goes to who has waited longest, and each holder's token is larger", "[store]") {
    StoreAsker asker;
    CHECK(asker.lock("l", kAnna) == "ok 1");
    CHECK(asker.lock("l", kBert) == "waits");
    CHECK(asker.lock("l", kCleo) == "waits");
    CHECK(asker.unlock("l", 7, kAnna) == "ok false");
    CHECK(asker.unlock("l", 1, kBert) == "ok false");
    CHECK(asker.late.empty());
    CHECK(asker.unlock("l", 1, kAnna) == "ok true");
    CHECK(asker.late == answers({"2: ok 3"}));
    asker.store().owner_gone(kBert);
    CHECK(asker.late == answers({"2: ok 3", "3: ok 5"}));
    CHECK(asker.unlock("l", 3, kBert) == "ok false");
    CHECK(asker.unlock("l", 5, kCleo) == "ok true");
    CHECK(asker.get("l") == "not_found");
    CHECK(asker.store().bytes() == 0);
}

TEST_CASE("a lock that is held is waited for no longer than was asked, and not at all with 0",
          "[store]") {
    StoreAsker asker;
    asker.lock("l", kAnna);
    CHECK(asker.lock("l", kBert, 0) == "timed_out");
    CHECK(asker.lock("l", kBert, 100) == "waits");
    CHECK(asker.lock("l", kCleo, 100) == "waits");
    CHECK(asker.store().cancel({1, 4}));
    asker.store().expire(StoreAsker::kBegin + milliseconds(100));
    CHECK(asker.late == answers({"4: cancelled", "3: timed_out"}));
    CHECK(asker.unlock("l", 1, kAnna) == "ok true");
    CHECK(asker.late.size() == 2);
    CHECK(asker.get("l") == "not_found");
}

TEST_CASE("a lock is one for the threads of one owner, too", "[store]") {
    StoreAsker asker;
    asker.lock("l", kAnna);
    CHECK(asker.lock("l", kAnna) == "waits");
    asker.unlock("l", 1, kAnna);
    CHECK(asker.late == answers({"2: ok 3"}));
}

TEST_CASE("nobody is given a lock or an item who has gone while he waited for it", "[store]") {
    StoreAsker asker;
    asker.lock("l", kAnna);
    CHECK(asker.lock("l", kBert) == "waits");
    CHECK(asker.lock("l", kCleo) == "waits");
    CHECK(asker.claim("q", kBert, kForeverMs) == "waits");
    // He holds nothing; and one of his own locks is not handed to himself.
    asker.lock("other", kBert);
    CHECK(asker.lock("other", kBert) == "waits");
    asker.store().owner_gone(kBert);
    CHECK(asker.late == answers({"2: refused its owner has gone", "4: refused its owner has gone",
                                 "6: refused its owner has gone"}));
    CHECK(asker.get("other") == "not_found");
    asker.push("q", "a");
    CHECK(asker.pop("q") == "ok a");
    asker.unlock("l", 1, kAnna);
    CHECK(asker.late.back().starts_with("3: ok"));
}

TEST_CASE("a lock that is held is not written to by anybody, and is let go as it was taken",
          "[store]") {
    const std::string refused = "refused the key is a lock that somebody holds";
    StoreAsker asker;
    asker.ask({.op = Op::lock, .keys = {"l"}, .values = {"7"}, .owner = kAnna});
    CHECK(asker.set("l", "x") == refused);
    CHECK(asker.put("l", "x", kAnna) == refused);
    CHECK(asker.put("l", "x", 0, 100) == refused);
    CHECK(asker.add("l", 1) == refused);
    CHECK(asker.ask({Op::append, {"l"}, {"x"}}) == refused);
    CHECK(asker.compare_set("l", "7", "x") == refused);
    CHECK(asker.compare_set("l", "8", "x") == "ok false 7");
    CHECK(asker.ask({Op::multi_set, {"other", "l"}, {"x", "x"}}) == refused);
    CHECK(asker.transact({{"l", Is::revision, "", 1}}, {{Do::set, "l", "x"}}) == refused);
    CHECK(asker.transact({}, {{Do::add, "l", "1"}}) == refused);
    CHECK(asker.push("l", "x") == "wrong_type");
    CHECK(asker.get("l") == "ok 7");
    CHECK(asker.watch("l", 1) == "waits");
    CHECK(asker.unlock("l", 1, kAnna) == "ok true");
    CHECK(asker.set("l", "x") == "ok");
}

TEST_CASE("a lock that is erased, or let go in a transaction, is the next one's", "[store]") {
    StoreAsker asker;
    asker.lock("l", kAnna);
    CHECK(asker.lock("l", kBert) == "waits");
    CHECK(asker.lock("l", kCleo) == "waits");
    asker.ask({Op::erase, {"l"}});
    CHECK(asker.late == answers({"2: ok 3"}));
    asker.transact({{"l", Is::revision, "", 3}}, {{Do::erase, "l"}});
    CHECK(asker.late == answers({"2: ok 3", "3: ok 5"}));
}

TEST_CASE("who waits for a lock's key, or watches it, sees who has it", "[store]") {
    StoreAsker asker;
    StoreRequest get{Op::get, {"leader"}};
    get.timeout_ms = kForeverMs;
    CHECK(asker.ask(get) == "waits");
    asker.ask({.op = Op::lock, .keys = {"leader"}, .values = {"anna"}, .owner = kAnna});
    CHECK(asker.late == answers({"1: ok anna"}));
    CHECK(asker.ask({.op = Op::lock,
                     .keys = {"leader"},
                     .values = {"bert"},
                     .timeout_ms = kForeverMs,
                     .owner = kBert}) == "waits");
    CHECK(asker.watch("leader", 1) == "waits");
    asker.store().owner_gone(kAnna);
    CHECK(asker.late == answers({"1: ok anna", "3: ok 3", "4: ok 3 bert"}));
}

TEST_CASE("who has lost a lock cannot write with its token, however late", "[store]") {
    StoreAsker asker;
    asker.lock("l", kAnna);
    const auto write = [&](std::uint64_t token, std::string_view value) {
        return asker.transact({{"l", Is::revision, "", token}}, {{Do::set, "state", value}});
    };
    CHECK(write(1, "anna's") == "ok true 0");
    asker.store().owner_gone(kAnna);
    CHECK(write(1, "late") == "ok false 0");
    CHECK(asker.lock("l", kBert) == "ok 4");
    CHECK(write(1, "later") == "ok false 0");
    CHECK(write(4, "bert's") == "ok true 0");
    CHECK(asker.get("state") == "ok bert's");
}

TEST_CASE("an item that is claimed is nobody else's until it comes back, to its place", "[store]") {
    StoreAsker asker;
    for (const char* item : {"a", "b", "c"}) asker.push("q", item);
    CHECK(asker.claim("q", kAnna) == "ok a 1");
    CHECK(asker.claim("q", kBert) == "ok b 2");
    CHECK(asker.ask({Op::length, {"q"}}) == "ok 1");
    CHECK(asker.claim("q", kAnna) == "ok c 3");
    CHECK(asker.claim("q", kBert) == "not_found");
    CHECK(asker.pop("q") == "not_found");
    CHECK(asker.ask({Op::check, {"q"}}) == "ok true");
    CHECK(asker.pop("q", 1'000) == "waits");
    CHECK(asker.end_claim(Op::give_back, "q", 3, kAnna) == "ok true");
    CHECK(asker.late == answers({"11: ok c"}));
    asker.push("q", "d");
    CHECK(asker.end_claim(Op::give_back, "q", 2, kBert) == "ok true");
    asker.store().owner_gone(kAnna);
    CHECK(asker.claim("q", kCleo) == "ok a 1");
    CHECK(asker.claim("q", kCleo) == "ok b 2");
    CHECK(asker.pop("q") == "ok d");
}

TEST_CASE("an item is acknowledged once, by whose it is", "[store]") {
    StoreAsker asker;
    asker.push("q", "a");
    asker.claim("q", kAnna);
    CHECK(asker.end_claim(Op::acknowledge, "q", 1, kBert) == "ok false");
    CHECK(asker.end_claim(Op::acknowledge, "q", 2, kAnna) == "ok false");
    CHECK(asker.end_claim(Op::acknowledge, "q", 1, kAnna) == "ok true");
    CHECK(asker.end_claim(Op::acknowledge, "q", 1, kAnna) == "ok false");
    CHECK(asker.end_claim(Op::give_back, "q", 1, kAnna) == "ok false");
    CHECK(asker.ask({Op::check, {"q"}}) == "ok false");
    CHECK(asker.store().bytes() == 0);
    CHECK(asker.store().owners().empty());
}

TEST_CASE("an item of a queue that is new is not taken for one of the former", "[store]") {
    StoreAsker asker;
    asker.push("q", "old");
    CHECK(asker.claim("q", kAnna) == "ok old 1");
    asker.ask({Op::erase, {"q"}});
    asker.push("q", "new");
    CHECK(asker.claim("q", kAnna) == "ok new 4");
    CHECK(asker.end_claim(Op::acknowledge, "q", 1, kAnna) == "ok false");
    CHECK(asker.end_claim(Op::acknowledge, "q", 4, kAnna) == "ok true");
}

TEST_CASE("a claim in a queue that was erased comes back to nowhere", "[store]") {
    StoreAsker asker;
    asker.push("q", "a");
    asker.claim("q", kAnna);
    CHECK(asker.ask({Op::erase_prefix, {"q"}}) == "ok 1");
    asker.store().owner_gone(kAnna);
    CHECK(asker.claim("q", kBert) == "not_found");
    CHECK(asker.store().bytes() == 0);
}

TEST_CASE("what a request gave is taken back when nobody has heard of it, and only that",
          "[store]") {
    StoreAsker asker;
    asker.push("q", "a");
    asker.push("q", "b");
    CHECK(asker.claim("q", kAnna) == "ok a 1");
    CHECK(asker.claim("q", kAnna) == "ok b 2");
    asker.lock("l", kAnna);
    asker.store().take_back(kAnna, {1, 4});
    asker.store().take_back(kBert, {1, 3});
    CHECK(asker.claim("q", kBert) == "ok b 2");
    CHECK(asker.claim("q", kBert) == "not_found");
    CHECK(asker.lock("l", kBert) == "waits");
    asker.store().take_back(kAnna, {1, 5});
    CHECK(asker.late.size() == 1);
}

TEST_CASE("what a request gave is taken back after a restart, too", "[store]") {
    StoreAsker asker;
    asker.store().restore_value("l", "", {5, kAnna, Deadline::max(), {1, 71}});
    asker.store().restore_value("k", "", {6, kAnna});
    asker.store().restore_item("q", 3, "a", {kAnna, {1, 72}});
    asker.store().restore_item("q", 4, "b", {kAnna, {1, 73}});
    asker.store().end_restore();
    CHECK(asker.set("l", "x").starts_with("refused"));
    asker.store().take_back(kAnna, {1, 71});
    asker.store().take_back(kAnna, {1, 73});
    CHECK(asker.get("l") == "not_found");
    CHECK(asker.get("k") == "ok ");
    CHECK(asker.claim("q", kBert) == "ok b 4");
    CHECK(asker.claim("q", kBert) == "not_found");
}

TEST_CASE("a queue has a revision after a restart that it did not have before", "[store]") {
    StoreAsker asker;
    asker.push("q", "a");
    asker.push("q", "b");
    asker.pop("q");
    CHECK(asker.watch("q", 2) == "ok 3 nil");
    StoreAsker restarted;
    restarted.store().restore_item("q", 2, "b", {});
    restarted.store().restore_revision(1'000);
    restarted.store().end_restore();
    CHECK(restarted.watch("q", 3) == "ok 1000 nil");
    CHECK(restarted.watch("q", 1'000) == "waits");
}

TEST_CASE("items go to those who wait in the order in which they came, however many there are",
          "[store]") {
    constexpr int kMany = 20'000;
    StoreAsker asker;
    for (int i = 0; i < kMany; ++i) asker.claim("q", kAnna, kForeverMs);
    CHECK(asker.pop("q", kForeverMs) == "waits");
    for (int i = 0; i < kMany; ++i) asker.push("q", "item");
    REQUIRE(asker.late.size() == kMany);
    CHECK(asker.late[0].starts_with("1: ok item"));
    CHECK(asker.late.back().starts_with(std::to_string(kMany) + ": ok item"));
    asker.push("q", "last");
    CHECK(asker.late.back() == std::to_string(kMany + 1) + ": ok last");
    asker.claim("q", kAnna, kForeverMs);
    asker.set("q", "no queue");
    CHECK(asker.late.size() == kMany + 1);  // it is one while items are claimed
}

TEST_CASE("those who wait for items hear that there is something else", "[store]") {
    StoreAsker asker;
    CHECK(asker.claim("q", kAnna, kForeverMs) == "waits");
    CHECK(asker.pop("q", kForeverMs) == "waits");
    asker.set("q", "a value");
    CHECK(asker.late == answers({"1: wrong_type", "2: wrong_type"}));
}

TEST_CASE("keys under a prefix are erased together, queues too", "[store]") {
    StoreAsker asker;
    for (const char* key : {"a", "b/1", "b/2", "b0"}) asker.set(key, "v");
    asker.push("b/q", "v");
    CHECK(asker.ask({Op::erase_prefix, {"b/"}}) == "ok 3");
    CHECK(asker.ask({Op::erase_prefix, {"b/"}}) == "ok 0");
    CHECK(asker.ask({Op::count}) == "ok 2");
    CHECK(asker.ask({Op::erase_prefix, {""}}) == "ok 2");
    CHECK(asker.store().bytes() == 0);
}

TEST_CASE("a watch of a prefix begins with all there is, and then has every change in order",
          "[store]") {
    StoreAsker asker;
    asker.set("a/1", "x");
    asker.set("b", "x");
    CHECK(asker.watch_prefix("a/", 0) == "ok 2 true [[1 a/1 x 0]]");
    CHECK(asker.watch_prefix("a/", 2) == "waits");
    asker.set("b", "y");
    CHECK(asker.late.empty());
    asker.set("a/2", "z");
    CHECK(asker.late == answers({"4: ok 4 false [[4 a/2 z 0]]"}));
    asker.set("a/1", "1");
    asker.set("a/1", "2");
    asker.ask({Op::erase, {"a/2"}});
    asker.push("a/q", "item");
    asker.pop("a/q");
    CHECK(asker.watch_prefix("a/", 4) ==
          "ok 9 false [[5 a/1 1 0] [6 a/1 2 0] [7 a/2 nil 1] [8 a/q nil 2] [9 a/q nil 1]]");
    CHECK(asker.watch_prefix("a/", 4, 0, 2) == "ok 6 false [[5 a/1 1 0] [6 a/1 2 0]]");
    CHECK(asker.watch_prefix("a/", 6, 0, 2) == "ok 8 false [[7 a/2 nil 1] [8 a/q nil 2]]");
    CHECK(asker.watch_prefix("a/", 9, 0) == "ok 9 false []");
}

TEST_CASE("what is lost with its owner, or expires, is seen under its prefix as erased",
          "[store]") {
    StoreAsker asker;
    asker.put("m/anna", "1", kAnna);
    asker.put("m/short", "1", 0, 100);
    asker.watch_prefix("m/", 0);
    CHECK(asker.watch_prefix("m/", 2) == "waits");
    asker.store().owner_gone(kAnna);
    CHECK(asker.late == answers({"4: ok 3 false [[3 m/anna nil 1]]"}));
    CHECK(asker.watch_prefix("m/", 3) == "waits");
    asker.store().expire(StoreAsker::kBegin + milliseconds(100));
    CHECK(asker.late.back() == "5: ok 4 false [[4 m/short nil 1]]");
}

TEST_CASE("the changes of one operation come together", "[store]") {
    StoreAsker asker;
    asker.watch_prefix("", 0);
    CHECK(asker.watch_prefix("", 1) == "waits");
    asker.transact({}, {{Do::set, "a", "1"}, {Do::set, "b", "2"}});
    CHECK(asker.late == answers({"2: ok 3 false [[2 a 1 0] [3 b 2 0]]"}));
}

TEST_CASE("a watch of nothing does not turn in circles", "[store]") {
    StoreAsker asker;
    CHECK(asker.watch_prefix("a/", 0) == "ok 1 true []");
    CHECK(asker.watch_prefix("a/", 1) == "waits");
}

TEST_CASE("who waits for changes of a prefix is told up to where there were none", "[store]") {
    StoreAsker asker;
    asker.watch_prefix("a/", 0);
    CHECK(asker.watch_prefix("a/", 1, 100) == "waits");
    asker.set("b", "1");
    asker.store().expire(StoreAsker::kBegin + milliseconds(100));
    CHECK(asker.late == answers({"2: ok 2 false []"}));
}

TEST_CASE("who knows what is forgotten, or of another store, gets all there is", "[store]") {
    StoreAsker asker;
    asker.set("a/1", "x");
    CHECK(asker.watch_prefix("a/", 77) == "ok 1 true [[1 a/1 x 0]]");
    for (std::size_t i = 0; i < StoreHistory::kChangesMax; ++i) asker.set("b", "x");
    CHECK(asker.watch_prefix("b", 1, 0, 1).starts_with("ok 2 false"));
    asker.set("b", "x");
    CHECK(asker.watch_prefix("a/", 1).find(" true [[1 a/1 x 0]]") != std::string::npos);
}

TEST_CASE("a watch that waits while others' changes are forgotten misses none of its own",
          "[store]") {
    StoreAsker asker;
    asker.watch_prefix("a/", 0);
    CHECK(asker.watch_prefix("a/", 1) == "waits");
    for (std::size_t i = 0; i < 2 * StoreHistory::kChangesMax; ++i) asker.set("b", "x");
    asker.set("a/1", "x");
    CHECK(asker.late == answers({"2: ok 131074 false [[131074 a/1 x 0]]"}));
    // More at once than are remembered: they are not passed over.
    CHECK(asker.watch_prefix("c/", 131'074) == "waits");
    std::vector<std::string> keys;
    StoreRequest all{Op::multi_set};
    for (std::size_t i = 0; i < StoreHistory::kChangesMax + 10; ++i)
        keys.push_back("c/" + std::to_string(i));
    for (const std::string& key : keys) all.keys.push_back(key), all.values.push_back("");
    CHECK(asker.ask(all) == "ok");
    CHECK(asker.late.back().find(" true [[") != std::string::npos);
}

TEST_CASE("a transaction is done if all is as expected, as a whole", "[store]") {
    StoreAsker asker;
    asker.set("v", "1");
    asker.push("q", "a");
    CHECK(asker.transact({{"v", Is::value, "1"},
                          {"q", Is::exists},
                          {"none", Is::missing},
                          {"v", Is::revision, "", 1},
                          {"none", Is::revision, "", 0}},
                         {{Do::set, "new", "x"},
                          {Do::erase, "none"},
                          {Do::push, "q", "b"},
                          {Do::add, "v", "41"}}) == "ok true 0");
    CHECK(asker.get("v") == "ok 42");
    CHECK(asker.get("new") == "ok x");
    CHECK(asker.ask({Op::length, {"q"}}) == "ok 2");
    CHECK(asker.transact({{"v", Is::exists}, {"v", Is::value, "1"}}, {{Do::erase, "v"}}) ==
          "ok false 1");
    CHECK(asker.transact({{"q", Is::value, "a"}}, {{Do::erase, "v"}}) == "ok false 0");
    CHECK(asker.transact({{"q", Is::missing}}, {}) == "ok false 0");
    CHECK(asker.get("v") == "ok 42");
}

TEST_CASE("a transaction of which one part cannot be done changes nothing", "[store]") {
    StoreAsker asker;
    asker.set("v", "text");
    asker.push("q", "a");
    const auto with = [&](Action bad) {
        const std::string answer = asker.transact({}, {{Do::set, "first", "x"}, bad});
        CHECK(asker.get("first") == "not_found");
        return answer;
    };
    CHECK(with({Do::push, "v", "x"}) == "wrong_type");
    CHECK(with({Do::set, "q", "x"}) == "wrong_type");
    CHECK(with({Do::add, "v", "1"}) == "wrong_type");
    CHECK(with({Do::add, "n", "one"}) == "wrong_type");
    CHECK(with({Do::erase, "first"}) == "refused one key stands in two actions");
    asker.set("n", "9223372036854775807");
    CHECK(with({Do::add, "n", "1"}) == "refused the sum does not fit 64 bits");
}

TEST_CASE("what is remembered for those who watch a prefix, or who wait, is counted", "[store]") {
    StoreAsker asker;
    const std::string value(100'000, 'x');
    asker.set("k", value);
    CHECK(asker.store().history_bytes() == 0);
    asker.watch_prefix("", 0);
    for (int round = 1; round <= 10; ++round) asker.set("k", value);
    CHECK(asker.store().history_bytes() / 100'000 == 10);
    for (int round = 1; round <= 200; ++round) asker.set("k", value);
    CHECK(asker.store().history_bytes() <= StoreHistory::kBytesMax);
    CHECK(asker.get(std::string(10'000, 'k'), kForeverMs) == "waits");
    CHECK(asker.store().waiting_bytes() > 10'000);
}

TEST_CASE(
    "who waits for changes goes on when those before are forgotten, who comes gets all there is",
    "[store]") {
    StoreAsker asker;
    asker.watch_prefix("", 0);
    asker.set("a", "1");
    CHECK(asker.watch_prefix("", 2) == "waits");
    CHECK(asker.watch_prefix("b", 1) == "waits");
    asker.store().forget_history();
    CHECK(asker.store().history_bytes() == 0);
    asker.set("b", "2");
    CHECK(asker.late == answers({"3: ok 3 false [[3 b 2 0]]", "4: ok 3 false [[3 b 2 0]]"}));
    CHECK(asker.watch_prefix("", 2) == "ok 3 false [[3 b 2 0]]");
    CHECK(asker.watch_prefix("", 1) == "ok 3 true [[2 a 1 0] [3 b 2 0]]");
}

TEST_CASE("a full store refuses locks and transactions that would make it larger", "[store]") {
    Store::Limits limits;
    limits.bytes_max = 1'000;
    StoreAsker asker(limits);
    asker.set("a", std::string(700, 'x'));
    CHECK(asker.put("b", std::string(300, 'x'), kAnna) == "refused the store is full true");
    CHECK(asker.lock(std::string(200, 'l'), kAnna) == "refused the store is full true");
    CHECK(asker.transact({}, {{Do::set, "b", "x"}}) == "refused the store is full true");
    CHECK(asker.transact({}, {{Do::erase, "a", ""}}) == "ok true 0");
    CHECK(asker.transact({}, {{Do::set, "b", "x"}}) == "ok true 0");
}

}  // namespace dtrun
