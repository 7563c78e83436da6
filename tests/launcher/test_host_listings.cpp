#include "hostfiles/hostfile.h"
#include "launcher/discovery/host_listings.h"
#include "tests/support/catch.h"

namespace dtrun::discovery {
namespace {

using Names = std::vector<std::string>;

HostList list(const std::string& text, int slots = 1) {
    return parse_host_listing(text, "list", slots).value();
}

bool answers(const std::string&) {
    return true;
}
bool is_silent(const std::string&) {
    return false;
}

Names names(const HostList& hosts) {
    Names names;
    for (const Host& host : hosts) names.push_back(host.name + ":" + std::to_string(host.slots));
    return names;
}

}  // namespace

TEST_CASE(
    "a listing has hosts with and without slots, comments, blanks and the ends of lines of Windows",
    "[discovery]") {
    CHECK(names(list("a:2\n\n  b  # comment\r\nc slots=3\r\n", 4)) == Names{"a:2", "b:4", "c:3"});
    CHECK(list("").empty());
    CHECK(list("# nobody\n\n").empty());
    CHECK(names(list("a:2\nb\na:3\n")) == Names{"a:3", "b:1"});  // the last mention counts
    for (const char* const bad : {"a:b", "a:2:3", "a b", "a\0b:2"})
        CHECK_FALSE(
            parse_host_listing(std::string(bad, bad[1] == '\0' ? 5 : strlen(bad)), "list", 1));
    CHECK(parse_host_listing("a\nb:x\n", "d.sh", 1).error().message.starts_with("d.sh:2:"));
}

TEST_CASE("hosts that come, or have other slots, are listed at once, and order means nothing",
          "[discovery]") {
    HostListings listings("d.sh", list("a:2\nb:2"));
    CHECK(listings.read(list("b:2\na:2"), answers).listed.empty());
    const HostChanges changes = listings.read(list("c:1\nb:3\na:2"), answers);
    CHECK(names(changes.listed) == Names{"c:1", "b:3"});
    CHECK(changes.gone.empty());
    CHECK(listings.read(list("c:1\nb:3\na:2"), answers).listed.empty());
}

TEST_CASE("a host is gone when it is missing twice in a row", "[discovery]") {
    HostListings listings("d.sh", list("a:2\nb:2"));
    CHECK(listings.read(list("a:2"), answers).gone.empty());
    SECTION("and not if it was missing once") {
        CHECK(listings.read(list("a:2\nb:2"), answers).listed.empty());
        CHECK(listings.read(list("a:2"), answers).gone.empty());
    }
    SECTION("yes") {
        CHECK(listings.read(list("a:2"), answers).gone == Names{"b"});
        CHECK(listings.read(list("a:2"), answers).gone.empty());
        CHECK(names(listings.read(list("a:2\nb:2"), answers).listed) == Names{"b:2"});
    }
}

TEST_CASE("a host whose agent does not answer, or that has no slots any more, is gone at once",
          "[discovery]") {
    HostListings listings("d.sh", list("a:2\nb:2"));
    CHECK(listings.read(list("a:2"), is_silent).gone == Names{"b"});
    CHECK(listings.read(list("a:0"), is_silent).gone == Names{"a"});
}

TEST_CASE("a list without hosts is believed the third time", "[discovery]") {
    HostListings listings("d.sh", list("a:2\nb:2"));
    const HostChanges first = listings.read({}, answers);
    CHECK(first.gone.empty());
    CHECK(first.notes ==
          Names{"d.sh lists no host; if it does so 3 times, all of them are given up"});
    CHECK(listings.read({}, answers).notes.empty());
    SECTION("if nothing is between") {
        CHECK(listings.read({}, answers).gone == Names{"a", "b"});
    }
    SECTION("else it counts anew") {
        listings.read(list("a:2\nb:2"), answers);
        CHECK(listings.read({}, answers).gone.empty());
    }
}

TEST_CASE("a script that fails changes nothing, and the user is told when that begins and ends",
          "[discovery]") {
    HostListings listings("d.sh", list("a:2"));
    CHECK(listings.failed("it has ended with exit status 1") ==
          "d.sh: it has ended with exit status 1; the hosts stay as they are");
    CHECK_FALSE(listings.failed("it has ended with exit status 1"));
    CHECK(listings.read(list("a:2"), answers).notes == Names{"d.sh lists hosts again"});
}

}  // namespace dtrun::discovery
