#include "rendezvous/exchange/group_fences.h"
#include "rendezvous/wire/exchange_messages.h"
#include "tests/support/catch.h"

#include <optional>
#include <utility>
#include <vector>

namespace dtrun {
namespace {

struct Told final : GroupFences::Events {
    void group_told(PeerId peer, const Fenced& fenced) override { told.emplace_back(peer, fenced); }
    void group_ended(const GroupFences::Key& key, const GroupFences::End& end) override {
        kept[key] = end;
    }
    void group_forgotten(const GroupFences::Key& key) override { kept.erase(key); }

    /// What this peer was told last, and nothing if it was told nothing.
    std::optional<Fenced> last_of(PeerId peer) const {
        std::optional<Fenced> last;
        for (const auto& [to, fenced] : told)
            if (to == peer) last = fenced;
        return last;
    }
    std::vector<std::pair<PeerId, Fenced>> told;
    std::map<GroupFences::Key, GroupFences::End> kept;
};

struct Group {
    Told out;
    GroupFences fences{out};

    /// A process comes over a connection, as a rank of `ranks`.
    /// \return whether it may come
    bool come(PeerId peer, std::uint64_t client, std::uint32_t rank, std::string why = {},
              std::uint32_t ranks = 2) {
        const std::size_t before = out.told.size();
        fences.from_peer(peer, {client,
                                "run",
                                "f",
                                0,
                                Rank{rank},
                                ranks,
                                {{Rank{rank}, "of " + std::to_string(client)}},
                                std::move(why)});
        return out.told.size() == before || !out.told.back().second.invalid;
    }
};

}  // namespace

TEST_CASE("a fence of another launcher's ranks ends when all have come", "[group]") {
    Group group;
    REQUIRE(group.come(1, 100, 1));
    CHECK(group.out.told.empty());
    REQUIRE(group.come(2, 200, 0));
    for (const PeerId peer : {1, 2}) {
        const auto fenced = group.out.last_of(peer);
        REQUIRE(fenced);
        CHECK(fenced->complete);
        REQUIRE(fenced->entries.size() == 2);
        CHECK(fenced->entries[0].bytes == "of 200");
        CHECK(fenced->entries[1].bytes == "of 100");
    }
}

TEST_CASE("who died at a fence has not come to it when the program is run again", "[group]") {
    Group group;
    REQUIRE(group.come(1, 100, 0));
    group.fences.remove_peer(1);
    REQUIRE(group.come(2, 200, 1));
    CHECK(group.out.told.empty());
    REQUIRE(group.come(3, 300, 0));
    CHECK(group.out.last_of(2)->complete);
    CHECK(group.out.last_of(3)->complete);
}

TEST_CASE("whose end nobody has noticed gives place to the process that comes as the same rank",
          "[group]") {
    Group group;
    REQUIRE(group.come(1, 100, 0));
    REQUIRE(group.come(2, 200, 0));
    CHECK(group.out.last_of(1)->why == "another process has come as rank 0");
    CHECK_FALSE(group.out.last_of(2));
    REQUIRE(group.come(3, 300, 1));
    CHECK(group.out.last_of(2)->complete);
}

TEST_CASE("an end is told again to those who were there, and to no later run", "[group]") {
    Group group;
    REQUIRE(group.come(1, 100, 0));
    REQUIRE(group.come(2, 200, 1));
    group.fences.remove_peer(1);
    REQUIRE(group.come(3, 100, 0));  // its connection broke before it was told
    CHECK(group.out.last_of(3)->complete);
    group.fences.remove_peer(2);
    group.fences.remove_peer(3);
    REQUIRE(group.come(4, 400, 0));
    CHECK_FALSE(group.out.last_of(4));
}

TEST_CASE("a fence that is given up fails for who comes late, but not for a later run", "[group]") {
    Group group;
    REQUIRE(group.come(1, 100, 0, "rank 0 waited 50 ms"));
    CHECK(group.out.last_of(1)->why == "rank 0 waited 50 ms");
    REQUIRE(group.come(2, 200, 1));
    CHECK(group.out.last_of(2)->why == "rank 0 waited 50 ms");
    group.fences.remove_peer(1);
    group.fences.remove_peer(2);
    REQUIRE(group.come(3, 300, 1));
    CHECK_FALSE(group.out.last_of(3));
}

TEST_CASE("who waits at a fence that somebody gave up who is away is told when that one is back",
          "[group]") {
    Group group;
    REQUIRE(group.come(1, 100, 0, "rank 0 waited 50 ms"));
    group.fences.remove_peer(1);
    REQUIRE(group.come(2, 200, 1));
    CHECK_FALSE(group.out.last_of(2));  // perhaps it is of a later run
    group.fences.add_peer(3, 300);
    CHECK_FALSE(group.out.last_of(2));
    group.fences.add_peer(4, 100);
    CHECK(group.out.last_of(2)->why == "rank 0 waited 50 ms");
    group.fences.remove_peer(2);
    REQUIRE(group.come(5, 200, 1));
    CHECK(group.out.last_of(5)->why == "rank 0 waited 50 ms");
}

TEST_CASE("ends that were kept are told to who comes back after a restart", "[group]") {
    Group before;
    REQUIRE(before.come(1, 100, 0));
    REQUIRE(before.come(2, 200, 1));
    Group after;
    for (const auto& [key, end] : before.out.kept) after.fences.restore(key, end);
    REQUIRE(after.come(1, 200, 1));
    CHECK(after.out.last_of(1)->complete);
}

TEST_CASE("ranks that disagree how many they are, or bring nonsense, fail by themselves",
          "[group]") {
    Group group;
    REQUIRE(group.come(1, 100, 0));
    CHECK_FALSE(group.come(2, 200, 1, "", 3));
    CHECK(group.out.last_of(2)->why ==
          "rank 1 says that there are 3 ranks, others that there are 2");
    CHECK_FALSE(group.come(3, 300, 2));
    CHECK_FALSE(group.come(3, 0, 1));
    group.fences.from_peer(3, {300, "run", "", 0, Rank{1}, 2, {}, ""});
    CHECK(group.out.last_of(3)->invalid);
    // The others do not notice.
    CHECK_FALSE(group.out.last_of(1));
    REQUIRE(group.come(2, 200, 1));
    CHECK(group.out.last_of(1)->complete);
}

}  // namespace dtrun
