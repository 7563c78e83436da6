#include "hostfiles/filter.h"
#include "hostfiles/host_spec.h"
#include "hostfiles/hostfile.h"
#include "hostfiles/nodelist.h"
#include "hostfiles/placement.h"
#include "tests/hostfiles/parsed.h"
#include "tests/support/catch.h"
#include "tests/support/seed.h"

#include <map>
#include <random>
#include <set>

using namespace dtrun;

namespace {

/// One seed, printed when a test fails.
class Random {
public:
    int operator()(int low, int high) {
        return std::uniform_int_distribution<int>(low, high)(engine_);
    }
    bool coin() { return (*this)(0, 1) == 1; }
    unsigned seed() const { return seed_; }

private:
    unsigned seed_ = test_seed();
    std::mt19937 engine_{seed_};
};

HostList random_hosts(Random& random) {
    HostList hosts(static_cast<std::size_t>(random(1, 12)));
    int number = 0;
    for (Host& host : hosts) {
        number += random(1, 3);
        host.name = random(0, 4) == 0 ? fmt::format("fe80::{}", number)
                                      : fmt::format("n{}-x_y.example.com", number);
        host.slots = random(0, 5);
        if (random.coin()) host.user = "user" + std::to_string(random(0, 9));
    }
    return hosts;
}

std::string bracketed(const Host& host) {
    const bool is_ipv6 = host.name.find(':') != std::string::npos;
    const std::string name = is_ipv6 ? "[" + host.name + "]" : host.name;
    return host.user.empty() ? name : host.user + "@" + name;
}

/// Every rank once, densely numbered, within limits, and consistent with its host.
void check_placement(const HostList& hosts, const PlacementRequest& request) {
    const auto placement = place_ranks(hosts, request);
    REQUIRE(placement.has_value());
    std::map<int, int> local_size;
    std::map<int, std::set<int>> by_local_rank;  // cross ranks
    for (const RankPlace& place : placement->ranks) {
        CHECK(place.local_rank == local_size[place.host]++);
        CHECK(by_local_rank[place.local_rank].insert(place.cross_rank).second);
    }
    CHECK(local_size.size() == placement->hosts.size());
    for (std::size_t i = 0; i < placement->ranks.size(); ++i) {
        const RankPlace& place = placement->ranks[i];
        const Host& host = placement->hosts.at(static_cast<std::size_t>(place.host));
        const auto& cross_ranks = by_local_rank[place.local_rank];
        CHECK(place.rank == static_cast<int>(i));
        CHECK(place.local_size == local_size[place.host]);
        CHECK(place.cross_size == static_cast<int>(cross_ranks.size()));
        CHECK(*cross_ranks.rbegin() == place.cross_size - 1);
        CHECK((place.slot >= 0 && place.slot < host.slots));
        if (!request.oversubscribe) CHECK(place.local_size <= host.slots);
    }
}

}  // namespace

TEST_CASE("hosts written for -H and as a hostfile read back the same", "[hostfiles][random]") {
    Random random;
    INFO("DTRUN_SEED=" << random.seed());
    for (int round = 0; round < 300; ++round) {
        const HostList hosts = random_hosts(random);
        std::string spec;
        std::string file = random.coin() ? "\xef\xbb\xbf# header\n" : "";
        for (const Host& host : hosts) {
            spec += fmt::format("{}{}:{}", spec.empty() ? "" : ",", bracketed(host), host.slots);
            file += fmt::format("{}{}{}{}{}", bracketed(host), random.coin() ? " slots=" : ":",
                                host.slots, random.coin() ? " # c" : "",
                                random.coin() ? "\r\n" : "\n\n");
        }
        CHECK(parse_hosts(spec).value() == hosts);
        CHECK(parse_hostfile(file, "hf").value() == hosts);
    }
}

TEST_CASE("names written as ranges read back the same", "[hostfiles][random]") {
    Random random;
    INFO("DTRUN_SEED=" << random.seed());
    for (int round = 0; round < 300; ++round) {
        std::vector<std::string> names;
        std::string list;
        for (int item = random(1, 5); item > 0; --item) {
            const int width = random(1, 5);
            const int low = random(0, 200);
            const int high = low + random(0, 30);
            const std::string suffix = random.coin() ? "-ib0" : "";
            list +=
                fmt::format("{}r[{:0{}}-{}]{}", list.empty() ? "" : ",", low, width, high, suffix);
            const int padded = std::max<int>(width, static_cast<int>(std::to_string(low).size()));
            for (int n = low; n <= high; ++n)
                names.push_back(fmt::format("r{:0{}}{}", n, padded, suffix));
        }
        INFO(list);
        CHECK(expand_nodelist(list).value() == names);
    }
}

TEST_CASE("names written as a node list read back the same", "[hostfiles][random]") {
    Random random;
    INFO("DTRUN_SEED=" << random.seed());
    for (int round = 0; round < 1000; ++round) {
        std::vector<std::string> names;
        for (int run = random(1, 8); run > 0; --run) {
            const std::string prefix = random.coin() ? "n" : random.coin() ? "r1n" : "";
            const std::string suffix = random(0, 4) == 0 ? "-ib" : "";
            const int width = random(1, 4);
            const int step = random(-1, 2);
            int number = random(0, 1) == 0 ? random(5, 12) : random(95, 102);
            for (int count = random(1, 12); count > 0; --count, number = std::max(0, number + step))
                names.push_back(fmt::format("{}{:0{}}{}", prefix, number, width, suffix));
        }
        const std::string list = compress_nodelist(names);
        INFO(list);
        CHECK(expand_nodelist(list).value() == names);
    }
}

TEST_CASE("place_ranks keeps its promises for random hosts and requests", "[hostfiles][random]") {
    Random random;
    INFO("DTRUN_SEED=" << random.seed());
    for (int round = 0; round < 300; ++round) {
        HostList hosts = random_hosts(random);
        hosts.front().slots = random(1, 4);
        int slots = 0;
        for (const Host& host : hosts) slots += host.slots;
        PlacementRequest request;
        request.map_by = random.coin() ? MapBy::slot : MapBy::node;
        request.oversubscribe = random.coin();
        if (random.coin())
            request.world_size = random(1, request.oversubscribe ? 3 * slots : slots);
        check_placement(hosts, request);
    }
}

TEST_CASE("an included and an excluded filter part the slots between them", "[hostfiles][random]") {
    Random random;
    INFO("DTRUN_SEED=" << random.seed());
    for (int round = 0; round < 300; ++round) {
        const HostList hosts = parse_hosts("a:4,b:6,c:2").value();
        std::string filter = "a:0";  // so that neither side is empty
        for (int i = random(0, 6); i > 0; --i)
            filter += random.coin() ? fmt::format("@a:{}", random(0, 3))
                                    : fmt::format("@b:{},{}", random(0, 5), random(0, 5));
        std::map<std::string, std::vector<int>> all;
        for (const auto& part :
             {filter_hosts(hosts, filter, ""), filter_hosts(hosts, "", filter)}) {
            for (const Host& host : part.value()) {
                std::vector<int>& slots = all[host.name];
                for (int i = 0; i < host.slots; ++i)
                    slots.push_back(
                        host.slot_ids.empty() ? i : host.slot_ids[static_cast<std::size_t>(i)]);
            }
        }
        for (auto& [name, slots] : all) std::sort(slots.begin(), slots.end());
        INFO(filter);
        CHECK(all["a"] == std::vector{0, 1, 2, 3});
        CHECK(all["b"] == std::vector{0, 1, 2, 3, 4, 5});
        CHECK(all["c"] == std::vector{0, 1});
    }
}
