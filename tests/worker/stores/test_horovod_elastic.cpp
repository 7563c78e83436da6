#include "worker/stores/horovod_elastic.h"

#include "base/crypto.h"
#include "tests/support/catch.h"
#include "worker/stores/horovod_notice.h"
#include "worker/stores/notice_address.h"

namespace dtrun::stores {
namespace {

constexpr SlotIndex p0{0}, p1{1};

/// Two interfaces with port 34567, and the bytes 0 to 31 as the secret: as Python 3.11 writes it.
constexpr std::string_view kAddresses =
    "gAWVXQAAAAAAAAB9lCiMAmxvlF2UjAkxMjcuMC4wLjGUTQeHhpRhjARldGgwlF2UjAgxMC4wLjAuNZRNB4eGlGF1QyAA"
    "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eH5SGlC4=";

std::string secret_of_sample() {
    std::string secret;
    for (char c = 0; c < 32; ++c) secret += c;
    return secret;
}

std::string base64(std::string_view bytes) {
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (std::size_t at = 0; at < bytes.size(); at += 3) {
        std::uint32_t word = 0;
        for (std::size_t i = 0; i < 3; ++i)
            word = word << 8 |
                   (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0u);
        for (std::size_t i = 0; i < 4; ++i)
            text += at + i > bytes.size() ? '=' : kDigits[word >> (18 - 6 * i) & 63];
    }
    return text;
}

/// A queue, with what it has answered, told and passed on.
struct Desk {
    std::map<HorovodElastic::Asker, std::string> answers;
    std::vector<std::pair<SlotIndex, RejoinState>> told;
    std::vector<std::pair<HorovodElastic::Asker, HttpRequest>> passed;
    RejoinQueue processes{
        [this](const RejoinStatus& news) { told.emplace_back(news.place, news.state); }};
    HorovodElastic desk{processes,
                        [this](HorovodElastic::Asker asker, const HttpAnswer& answer) {
                            answers[asker] =
                                std::to_string(answer.status) + " " + std::string(answer.bytes());
                        },
                        [this](HorovodElastic::Asker asker, HttpRequest request) {
                            passed.emplace_back(asker, std::move(request));
                        }};

    bool passes(SlotIndex place, HorovodElastic::Asker asker, const std::string& method,
                const std::string& target, const std::string& body = {}) {
        return desk.ask(place, asker, {method, target, body}).has_value();
    }
};

Assign world(std::uint64_t generation, std::vector<RankSlot> ranks) {
    Assign assign;
    assign.generation = generation;
    assign.world_size = 5;
    assign.ranks = std::move(ranks);
    return assign;
}

}  // namespace

TEST_CASE("the addresses that Horovod's worker leaves are read", "[stores][elastic]") {
    const auto address = read_notice_address(kAddresses);
    REQUIRE(address);
    CHECK(address->port == 34'567);
    CHECK(address->secret == secret_of_sample());
}

TEST_CASE("a pickle that would execute something, or is none, is refused", "[stores][elastic]") {
    std::string deep = "\x80\x02";
    for (int i = 0; i < 5'000; ++i) deep += "]";
    for (int i = 1; i < 5'000; ++i) deep += "a";
    std::string doubling = "\x80\x02]";
    for (int i = 0; i < 200; ++i) doubling += std::string("q\0h\0", 4) + "a";
    const std::string hostile =
        GENERATE_REF(std::string("cos\nsystem\n(S'true'\ntR."), std::string("\x80\x02}q\x01."),
                     std::string(), std::string("\x80\x05\x95\xff\xff\xff\xff\xff\xff\xff\xff."),
                     std::string("\x80\x02\x8c\xff."), std::string("\x80\x02(.", 4),
                     std::string("\x80\x02t."), std::string("\x80\x02h\x07."), deep + ".",
                     doubling + ".", std::string("\x80\x02j\xff\xff\xff\xff."));
    CHECK_FALSE(read_notice_address(base64(hostile)));
    CHECK_FALSE(read_notice_address("no base64 !"));
    for (std::size_t cut = 0; cut < kAddresses.size(); cut += 4)
        CHECK_FALSE(read_notice_address(kAddresses.substr(0, cut)));
}

TEST_CASE("a small pickle that would be large in memory is refused", "[stores][elastic]") {
    const auto times = [](std::size_t count, std::string_view what) {
        std::string all;
        for (std::size_t i = 0; i < count; ++i) all += what;
        return all;
    };
    const auto addresses = [&](std::size_t count) {
        std::string pickle(
            "\x80\x02}(C\x02lo](C\x01"
            "aK\x50\x86"
            "eC\x01x](");
        pickle += times(count, "K\x01") + std::string("eq\0C\x01y](", 8);
        pickle += times(count, std::string_view("h\0", 2)) + "euC\x01s\x86.";
        return read_notice_address(base64(pickle));
    };
    REQUIRE(addresses(3));
    CHECK(addresses(3)->port == 0x50);
    // 2.4 KB that make 360,000 values.
    CHECK_FALSE(addresses(600));
}

TEST_CASE("a notice is signed, and the reply has to be", "[stores][elastic]") {
    const std::string secret = secret_of_sample();
    const std::string notice = horovod_notice(secret, 1'700'000'000);
    CHECK(is_signed(secret, notice));  // the reply has the same form
    CHECK_FALSE(is_signed("another secret", notice));
    CHECK_FALSE(is_signed(secret, notice + "x"));
    CHECK_FALSE(is_signed(secret, notice.substr(0, 20)));
    const std::string_view body = std::string_view(notice).substr(36);
    CHECK(static_cast<unsigned char>(notice[32]) == body.size());
    CHECK(body.find("chorovod.runner.elastic.worker\nHostsUpdatedRequest\n)\x81}(") == 2);
    CHECK(body.ends_with("K\x03\x85Rub."));
}

TEST_CASE("a place is given when the next world begins, and not before", "[stores][elastic]") {
    Desk d;
    d.processes.started(p0, 1, Rank{2});
    d.processes.started(p1, 1, Rank{3});
    d.processes.begin(world(1, {{Rank{2}, 0, 1, 3, 0, p0}, {Rank{3}, 1, 1, 2, 1, p1}}));
    CHECK(d.passes(p0, 1, "PUT", "/global/rank_2"));
    CHECK(d.passes(p0, 2, "DELETE", "/cross_0/1"));
    CHECK_FALSE(d.passes(p0, 3, "PUT", "/worker_addresses/h:0", std::string(kAddresses)));
    CHECK(d.answers.at(3) == "200 ");
    CHECK(d.desk.notice_for(p0)->port == 34'567);

    CHECK_FALSE(d.passes(p0, 4, "GET", "/rank_and_size/h:0"));
    CHECK_FALSE(d.answers.contains(4));
    CHECK_FALSE(d.desk.notice_for(p0));  // it knows
    d.processes.ended(p1);
    // It gets the numbers of its new place, on a host where it is alone now.
    d.processes.begin(world(2, {{Rank{1}, 0, 0, 3, 0, p0}}));
    CHECK(d.passed.empty());
    CHECK(d.answers.at(4) == "200 1,5,0,1,0,3");
    CHECK(d.told ==
          std::vector<std::pair<SlotIndex, RejoinState>>{{p0, RejoinState::rendezvoused},
                                                         {p0, RejoinState::supports_rejoin},
                                                         {p0, RejoinState::wants_rank}});
}

TEST_CASE("the first request of a newcomer is held until its world begins", "[stores][elastic]") {
    Desk d;
    d.processes.begin(world(1, {}));
    d.processes.started(p1, 2, Rank{4});
    CHECK_FALSE(d.passes(p1, 7, "PUT", "/global/rank_4", "address"));
    CHECK(d.told ==
          std::vector<std::pair<SlotIndex, RejoinState>>{{p1, RejoinState::held_at_start}});
    CHECK(d.passed.empty());
    d.processes.begin(world(2, {{Rank{4}, 0, 0, 1, 0, p1}}));
    REQUIRE(d.passed.size() == 1);
    CHECK(d.passed[0].first == 7);
    CHECK(d.passed[0].second.target == "/global/rank_4");
    CHECK(d.passed[0].second.body == "address");
}

TEST_CASE("who has gone is not answered, and whose process has ended is turned away",
          "[stores][elastic]") {
    Desk d;
    d.processes.started(p0, 1, Rank{0});
    d.processes.begin(world(1, {{Rank{0}, 0, 0, 1, 0, p0}}));
    CHECK_FALSE(d.passes(p0, 1, "GET", "/rank_and_size/h:0"));
    d.desk.forget(1);
    d.processes.begin(world(2, {{Rank{0}, 0, 0, 1, 0, p0}}));
    CHECK(d.answers.empty());
    d.processes.ended(p0);
    CHECK_FALSE(d.passes(p0, 2, "GET", "/rank_and_size/h:0"));
    CHECK(d.answers.at(2).starts_with("403 "));
}

}  // namespace dtrun::stores
