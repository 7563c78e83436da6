#include "collectives/backends/tcp/address.h"
#include "collectives/backends/tcp/mesh.h"
#include "tests/support/catch.h"

using namespace dtrun::collectives;
using namespace dtrun::collectives::over_tcp;

TEST_CASE("An interface that does not exist is named, with those that do", "[tcp]") {
    GroupSpec spec;
    spec.interfaces = {"nosuch7", "nosuch8"};
    spec.address = "127.0.0.1";
    const auto address = choose_address(spec);
    REQUIRE_FALSE(address.has_value());
    CHECK(address.error().code == dtrun::Errc::invalid_input);
    CHECK_THAT(address.error().message,
               Catch::StartsWith("no network interface nosuch7, nosuch8 with an address") &&
                   Catch::Contains("lo (127.0.0.1)"));
}

TEST_CASE("The first interface that exists is used, and it may be an address", "[tcp]") {
    GroupSpec spec;
    spec.interfaces = {"nosuch7", "lo", "nosuch8"};
    auto address = choose_address(spec);
    REQUIRE(address.has_value());
    CHECK(address->ip == "127.0.0.1");
    CHECK(address->interface == "lo");

    spec.interfaces = {"127.3.2.1"};
    address = choose_address(spec);
    REQUIRE(address.has_value());
    CHECK(address->ip == "127.3.2.1");
    CHECK(address->interface == "lo");
}

TEST_CASE("An address that is not this host's is an error; names are not looked up", "[tcp]") {
    GroupSpec spec;
    for (const char* wrong : {"192.0.2.7", "localhost"}) {
        spec.address = wrong;
        const auto address = choose_address(spec);
        REQUIRE_FALSE(address.has_value());
        CHECK_THAT(address.error().message, Catch::StartsWith(wrong));
    }
    spec.address.clear();
    CHECK(choose_address(spec).has_value());
}

TEST_CASE("Addresses survive being written down", "[tcp]") {
    for (const char* text : {"10.0.0.3 4711", "127.0.0.1 1", "fe80::1 65535", "::1 80"}) {
        const auto address = parse_address(text);
        REQUIRE(address.has_value());
        CHECK(text_of(*address) == text);
    }
    for (const char* text :
         {"", "10.0.0.3", "10.0.0.3 ", "10.0.0.3 65536", "10.0.0 1", "10.0.0.3 1x"})
        CHECK_FALSE(parse_address(text).has_value());
}

TEST_CASE("Neighbours are mutual, and few in large groups", "[tcp]") {
    CHECK(neighbours(0, 1).empty());
    CHECK(neighbours(2, 4) == std::vector<std::uint32_t>{0, 1, 3});
    CHECK(neighbours(0, 256).size() == 15);
    for (const std::uint32_t size : {2u, 7u, 9u, 16u, 31u, 100u})
        for (std::uint32_t rank = 0; rank < size; ++rank)
            for (const std::uint32_t peer : neighbours(rank, size)) {
                const auto theirs = neighbours(peer, size);
                CHECK(std::find(theirs.begin(), theirs.end(), rank) != theirs.end());
            }
}
