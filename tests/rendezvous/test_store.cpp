#include "rendezvous/exchange/store.h"

#include "rendezvous/wire/msgpack.h"
#include "tests/rendezvous/store_asker.h"
#include "tests/support/catch.h"

namespace dtrun {
namespace {

using std::chrono::milliseconds;
using Asker = StoreAsker;

const Deadline kBegin = StoreAsker::kBegin;

}  // namespace

TEST_CASE("a store gives back what was set, byte for byte", "[store]") {
    Asker asker;
    CHECK(asker.get("key") == "not_found");
    CHECK(asker.set("key", std::string_view("a\0b\xff", 4)) == "ok");
    CHECK(asker.get("key") == "ok " + std::string("a\0b\xff", 4));
    CHECK(asker.set("key", "") == "ok");
    CHECK(asker.get("key") == "ok ");
    CHECK(asker.ask({Op::erase, {"key"}}) == "ok true");
    CHECK(asker.ask({Op::erase, {"key"}}) == "ok false");
    CHECK(asker.store().bytes() == 0);
}

TEST_CASE("add counts from zero, keeps decimal text, and refuses what is no number", "[store]") {
    Asker asker;
    CHECK(asker.add("n", 5) == "ok 5");
    CHECK(asker.add("n", -7) == "ok -2");
    CHECK(asker.get("n") == "ok -2");
    asker.set("text", "five");
    CHECK(asker.add("text", 1) == "wrong_type");
    asker.set("n", "9223372036854775807");
    CHECK(asker.add("n", 1) == "refused the sum does not fit 64 bits");
    CHECK(asker.get("n") == "ok 9223372036854775807");
}

TEST_CASE("compare_set sets only what is as expected, and tells what is there", "[store]") {
    Asker asker;
    CHECK(asker.compare_set("k", "old", "new") == "ok false nil");
    CHECK(asker.compare_set("k", std::nullopt, "first") == "ok true first");
    CHECK(asker.compare_set("k", std::nullopt, "second") == "ok false first");
    CHECK(asker.compare_set("k", "first", "second") == "ok true second");
}

TEST_CASE("append grows a value, up to what a frame can carry", "[store]") {
    Asker asker;
    CHECK(asker.ask({Op::append, {"k"}, {"ab"}}) == "ok 2");
    CHECK(asker.ask({Op::append, {"k"}, {"c"}}) == "ok 3");
    CHECK(asker.get("k") == "ok abc");
    const std::string large(kValueBytesMax - 2, 'x');
    CHECK(asker.ask({Op::append, {"k"}, {large}}) == "refused the value would be too large");
}

TEST_CASE("several keys are set at once and waited for together", "[store]") {
    Asker asker;
    StoreRequest both{Op::multi_get, {"a", "b"}};
    both.timeout_ms = 1'000;
    CHECK(asker.ask(both) == "waits");
    asker.set("b", "2");
    CHECK(asker.late.empty());
    CHECK(asker.ask({Op::multi_set, {"a", "c"}, {"1", "3"}}) == "ok");
    CHECK(asker.late == std::vector<std::string>{"1: ok [1 2]"});
    CHECK(asker.ask({Op::check, {"a", "b", "c"}}) == "ok true");
    CHECK(asker.ask({Op::check, {"a", "d"}}) == "ok false");
    CHECK(asker.ask({Op::count}) == "ok 3");
}

TEST_CASE("a key that is erased again before the others come is still waited for", "[store]") {
    Asker asker;
    StoreRequest both{Op::wait, {"a", "b"}};
    both.timeout_ms = 1'000;
    CHECK(asker.ask(both) == "waits");
    asker.set("a", "1");
    asker.ask({Op::erase, {"a"}});
    asker.set("b", "2");
    CHECK(asker.late.empty());
    asker.set("a", "1");
    CHECK(asker.late == std::vector<std::string>{"1: ok"});
}

TEST_CASE("who waits is answered at its deadline, when it is cancelled, or never if it is gone",
          "[store]") {
    Asker asker;
    CHECK(asker.get("k", 100) == "waits");
    CHECK(asker.get("k", 50) == "waits");
    CHECK(asker.get("k", kForeverMs) == "waits");
    CHECK(asker.get("k", 10) == "waits");
    CHECK(asker.store().next_deadline() == kBegin + milliseconds(10));
    asker.store().forget({1, 4});
    CHECK(asker.store().next_deadline() == kBegin + milliseconds(50));
    asker.store().expire(kBegin + milliseconds(99));
    CHECK(asker.late == std::vector<std::string>{"2: timed_out"});
    CHECK(asker.store().cancel({1, 3}));
    CHECK_FALSE(asker.store().cancel({1, 3}));
    CHECK(asker.late.back() == "3: cancelled");
    asker.set("k", "v");
    CHECK(asker.late.back() == "1: ok v");
    CHECK(asker.store().waiting() == 0);
    CHECK(asker.store().next_deadline() == Deadline::max());
}

TEST_CASE("a queue gives each item once, in order, to who has waited longest", "[store]") {
    Asker asker;
    CHECK(asker.pop("q", 1'000) == "waits");
    CHECK(asker.pop("q", 1'000) == "waits");
    CHECK(asker.push("q", "a") == "ok 1");
    CHECK(asker.late == std::vector<std::string>{"1: ok a"});
    asker.push("q", "b");
    CHECK(asker.late.back() == "2: ok b");
    CHECK(asker.push("q", "c") == "ok 1");
    CHECK(asker.push("q", "d") == "ok 2");
    CHECK(asker.ask({Op::length, {"q"}}) == "ok 2");
    CHECK(asker.pop("q") == "ok c");
    CHECK(asker.pop("q") == "ok d");
    CHECK(asker.pop("q") == "not_found");
    CHECK(asker.ask({Op::check, {"q"}}) == "ok false");
    CHECK(asker.store().bytes() == 0);
}

TEST_CASE("queues and values are not taken for each other", "[store]") {
    Asker asker;
    asker.push("q", "a");
    asker.set("v", "a");
    CHECK(asker.get("q") == "wrong_type");
    CHECK(asker.set("q", "x") == "wrong_type");
    CHECK(asker.add("q", 1) == "wrong_type");
    CHECK(asker.push("v", "x") == "wrong_type");
    CHECK(asker.pop("v") == "wrong_type");
    CHECK(asker.ask({Op::length, {"v"}}) == "wrong_type");
}

TEST_CASE("a watch sees every last state of its key, erased ones too", "[store]") {
    Asker asker;
    CHECK(asker.watch("k", 0) == "waits");
    asker.set("other", "x");
    CHECK(asker.late.empty());
    asker.set("k", "1");
    CHECK(asker.late == std::vector<std::string>{"1: ok 2 1"});
    CHECK(asker.watch("k", 1) == "ok 2 1");
    CHECK(asker.watch("k", 2) == "waits");
    asker.ask({Op::erase, {"k"}});
    CHECK(asker.late.back() == "5: ok 0 nil");
    asker.set("k", "1");
    CHECK(asker.watch("k", 2) == "ok 4 1");
}

TEST_CASE("keys are listed by prefix, in order and in pages", "[store]") {
    Asker asker;
    for (const char* key : {"b/2", "a/1", "b/1", "b/3", "c"}) asker.set(key, "");
    StoreRequest list{Op::list, {"b/"}};
    list.number = 2;
    CHECK(asker.ask(list) == "ok [b/1 b/2] true");
    list.after = "b/2";
    CHECK(asker.ask(list) == "ok [b/3] false");
    StoreRequest all{Op::list, {""}};
    all.number = 100;
    CHECK(asker.ask(all) == "ok [a/1 b/1 b/2 b/3 c] false");
}

TEST_CASE("a full store refuses what would make it larger, and takes what makes it smaller",
          "[store]") {
    Store::Limits limits;
    limits.bytes_max = 1'000;
    limits.waiters_max = 1;
    Asker asker(limits);
    const std::string value(700, 'x');
    CHECK(asker.set("a", value) == "ok");
    CHECK(asker.set("b", value) == "refused the store is full true");
    CHECK(asker.push("q", value) == "refused the store is full true");
    CHECK(asker.ask({Op::multi_set, {"a", "b"}, {value, value}}) ==
          "refused the store is full true");
    CHECK(asker.set("a", "small") == "ok");
    CHECK(asker.set("b", "small") == "ok");
    CHECK(asker.get("x", 10) == "waits");
    CHECK(asker.get("x", 10) == "refused too many requests wait");
}

TEST_CASE("keys that are waited for count against the store's bytes as long as they are",
          "[store]") {
    Store::Limits limits;
    limits.bytes_max = 2'300;
    Asker asker(limits);
    const std::string key(1'000, 'k');
    CHECK(asker.get(key, 10) == "waits");
    CHECK(asker.get(key, 10) == "refused the store is full true");
    CHECK(asker.set("a", std::string(1'200, 'v')) == "refused the store is full true");
    CHECK(asker.set(key, "come") == "ok");
    CHECK(asker.ask({Op::erase, {key}}) == "ok true");
    CHECK(asker.set("a", std::string(1'200, 'v')) == "ok");
}

TEST_CASE("every operation has its arguments in the order of docs/PROTOCOL.md", "[store]") {
    using Out = PackWriter&;
    struct Row {
        StoreRequest request;
        std::uint32_t arguments;
        std::function<void(Out)> write;
    };
    const auto key = [](Out out) { out.bin("k"); };
    const auto key_value = [](Out out) { out.bin("k"), out.bin("v"); };
    const auto key_timeout = [](Out out) { out.bin("k"), out.uint(70'000); };
    const auto keys = [](Out out) { out.array(2), out.bin("k"), out.bin("l"); };
    const auto keys_timeout = [&](Out out) { keys(out), out.uint(70'000); };
    const std::vector<std::string_view> k{"k"}, kl{"k", "l"}, v{"v"}, vw{"v", "w"};
    const auto key_number_owner = [](Out o) { o.bin("k"), o.uint(9), o.uint(6); };
    StoreRequest transaction{.op = Op::transact};
    transaction.conditions = {{"a", Condition::Kind::missing},
                              {"b", Condition::Kind::value, "v"},
                              {"c", Condition::Kind::revision, "", 9}};
    transaction.actions = {{Action::Kind::set, "d", "v"}, {Action::Kind::erase, "e"}};
    const auto write_transaction = [](Out o) {
        o.array(3);
        o.array(3), o.bin("a"), o.uint(0), o.nil();
        o.array(3), o.bin("b"), o.uint(2), o.bin("v");
        o.array(3), o.bin("c"), o.uint(3), o.uint(9);
        o.array(2);
        o.array(3), o.uint(0), o.bin("d"), o.bin("v");
        o.array(3), o.uint(1), o.bin("e"), o.bin("");
    };
    const std::vector<Row> rows{
        {{.op = Op::set, .keys = k, .values = v}, 2, key_value},
        {{.op = Op::get, .keys = k, .timeout_ms = 70'000}, 2, key_timeout},
        {{.op = Op::wait, .keys = kl, .timeout_ms = 70'000}, 2, keys_timeout},
        {{.op = Op::add, .keys = k, .delta = -3}, 2, [](Out o) { o.bin("k"), o.integer(-3); }},
        {{.op = Op::compare_set, .keys = k, .values = v},
         3,
         [](Out o) { o.bin("k"), o.nil(), o.bin("v"); }},
        {{.op = Op::compare_set, .keys = k, .values = v, .expected = "old"},
         3,
         [](Out o) { o.bin("k"), o.bin("old"), o.bin("v"); }},
        {{.op = Op::append, .keys = k, .values = v}, 2, key_value},
        {{.op = Op::check, .keys = kl}, 1, keys},
        {{.op = Op::erase, .keys = k}, 1, key},
        {{.op = Op::multi_get, .keys = kl, .timeout_ms = 70'000}, 2, keys_timeout},
        {{.op = Op::multi_set, .keys = kl, .values = vw},
         1,
         [](Out o) { o.array(4), o.bin("k"), o.bin("v"), o.bin("l"), o.bin("w"); }},
        {{.op = Op::list, .keys = k, .number = 9, .after = "a"},
         3,
         [](Out o) { o.bin("k"), o.bin("a"), o.uint(9); }},
        {{.op = Op::push, .keys = k, .values = v}, 2, key_value},
        {{.op = Op::pop, .keys = k, .timeout_ms = 70'000}, 2, key_timeout},
        {{.op = Op::length, .keys = k}, 1, key},
        {{.op = Op::watch, .keys = k, .number = 9, .timeout_ms = 70'000},
         3,
         [](Out o) { o.bin("k"), o.uint(9), o.uint(70'000); }},
        {{.op = Op::count}, 0, [](Out) {}},
        {{.op = Op::cancel, .number = 9, .owner = 6}, 2, [](Out o) { o.uint(9), o.uint(6); }},
        {{.op = Op::status}, 0, [](Out) {}},
        {{.op = Op::drop}, 0, [](Out) {}},
        {{.op = Op::put, .keys = k, .values = v, .owner = 6, .ttl_ms = 70'000},
         4,
         [](Out o) { o.bin("k"), o.bin("v"), o.uint(6), o.uint(70'000); }},
        {{.op = Op::lock, .keys = k, .values = v, .timeout_ms = 70'000, .owner = 6},
         4,
         [](Out o) { o.bin("k"), o.bin("v"), o.uint(6), o.uint(70'000); }},
        {{.op = Op::unlock, .keys = k, .number = 9, .owner = 6}, 3, key_number_owner},
        {{.op = Op::claim, .keys = k, .timeout_ms = 70'000, .owner = 6},
         3,
         [](Out o) { o.bin("k"), o.uint(6), o.uint(70'000); }},
        {{.op = Op::acknowledge, .keys = k, .number = 9, .owner = 6}, 3, key_number_owner},
        {{.op = Op::give_back, .keys = k, .number = 9, .owner = 6}, 3, key_number_owner},
        {{.op = Op::erase_prefix, .keys = k}, 1, key},
        {{.op = Op::watch_prefix, .keys = k, .number = 9, .timeout_ms = 70'000, .limit = 3},
         4,
         [](Out o) { o.bin("k"), o.uint(9), o.uint(3), o.uint(70'000); }},
        {transaction, 2, write_transaction},
        {{.op = Op::own}, 0, [](Out) {}},
    };
    for (const Row& row : rows) {
        CAPTURE(static_cast<int>(row.request.op));
        Bytes expected;
        PackWriter out(expected);
        out.array(1 + row.arguments), out.uint(5);
        row.write(out);
        const Bytes bytes = row.request.encode(5);
        CHECK(bytes == expected);
        PackReader in(bytes);
        in.array(), in.uint();
        const auto decoded = StoreRequest::decode(row.request.op, in);
        REQUIRE(decoded.has_value());
        CHECK(in.at_end());
        CHECK(decoded->encode(5) == bytes);
    }
}

TEST_CASE("arguments that are malformed or too large are refused", "[store]") {
    const auto decode = [](Op op, auto write) {
        Bytes bytes;
        PackWriter out(bytes);
        write(out);
        PackReader in(bytes);
        const auto request = StoreRequest::decode(op, in);
        return request ? "ok" : request.error().message;
    };
    CHECK(decode(Op::set, [](PackWriter& out) { out.str("k"), out.bin("v"); }) == "ok");
    CHECK(decode(Op::set, [](PackWriter& out) { out.str("k"); }) == "malformed arguments");
    CHECK(decode(Op::add, [](PackWriter& out) { out.str("k"), out.str("1"); }) ==
          "malformed arguments");
    CHECK(decode(Op::multi_set, [](PackWriter& out) { out.array(1), out.str("k"); }) ==
          "malformed arguments");
    CHECK(decode(Op::transact, [](PackWriter& out) {
              out.array(1), out.array(3), out.str("k"), out.uint(9), out.nil();
              out.array(0);
          }) == "malformed arguments");
    CHECK(decode(Op::transact, [](PackWriter& out) {
              out.array(0);
              out.array(1), out.array(3), out.uint(4), out.str("k"), out.str("v");
          }) == "malformed arguments");
    const auto erase_many = [](std::uint32_t many) {
        return [many](PackWriter& out) {
            out.array(0);
            out.array(many);
            for (std::uint32_t i = 0; i < many; ++i)
                out.array(3), out.uint(1), out.str("k"), out.str("");
        };
    };
    CHECK(decode(Op::transact, erase_many(65'536)) == "ok");
    CHECK(decode(Op::transact, erase_many(65'537)) == "malformed arguments");
    CHECK(decode(static_cast<Op>(99), [](PackWriter&) {}) == "unknown operation 99");
    const std::string key(kKeyBytesMax + 1, 'k');
    CHECK(decode(Op::erase, [&](PackWriter& out) { out.str(key); }) ==
          "a key of 65537 bytes, more than 65536");
}

}  // namespace dtrun
