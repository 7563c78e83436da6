// What the server of PMIx is made of, without libpmix.
#include "tests/support/catch.h"
#include "tests/support/seed.h"
#include "tests/worker/mpi/pmi_hosts.h"
#include "worker/mpi/pmix_abi.h"
#include "worker/mpi/pmix_collectives.h"
#include "worker/mpi/pmix_environment.h"
#include "worker/mpi/pmix_names.h"

#include <random>

using namespace dtrun;
using namespace dtrun::mpi;
using Strings = std::vector<std::string>;

namespace {

/// Hosts' collectives, and the mail between them.
struct Hosts {
    explicit Hosts(std::vector<std::uint32_t> sizes) {
        for (std::uint32_t host = 0; host < sizes.size(); ++host)
            worlds.push_back(mpi_world(sizes, host));
        for (std::uint32_t host = 0; host < sizes.size(); ++host)
            collectives.push_back(std::make_unique<PmixCollectives>(
                worlds[host],
                [this](std::uint32_t to, Bytes frame) { mail.emplace_back(to, frame); },
                [this, host](std::uint64_t id, bool lost, std::string bytes) {
                    done.push_back(fmt::format("{}:{} {}{}", host, id, bytes, lost ? " lost" : ""));
                }));
    }

    void come(std::uint32_t host, std::uint64_t id, std::vector<std::uint32_t> ranks,
              std::string bytes, bool lost = false) {
        collectives[host]->come(
            {id, PmixCollective::fence, std::move(ranks), std::move(bytes), lost});
    }
    void deliver(std::size_t which) {
        const auto [to, frame] = mail[which];
        mail.erase(mail.begin() + static_cast<std::ptrdiff_t>(which));
        PmixFrames frames;
        frames.feed(frame);
        const auto next = frames.next();
        REQUIRE((next && *next));
        if ((*next)->kind == PmixKind::part)
            collectives[to]->take(pmix_decode<PmixPart>((*next)->payload).value());
        else
            collectives[to]->take(pmix_decode<PmixWhole>((*next)->payload).value());
    }
    void deliver_all() {
        while (!mail.empty()) deliver(0);
    }
    Strings sorted_done() {
        std::ranges::sort(done);
        return std::exchange(done, {});
    }

    std::vector<MpiWorld> worlds;
    std::vector<std::unique_ptr<PmixCollectives>> collectives;
    std::vector<std::pair<std::uint32_t, Bytes>> mail;
    Strings done;
};

}  // namespace

TEST_CASE("hosts whose ranks meet get what all of them brought", "[mpi][pmix]") {
    Hosts hosts({2, 2, 2});
    hosts.come(2, 7, {2, 4}, "c");
    hosts.deliver_all();
    CHECK(hosts.done.empty());
    hosts.come(1, 8, {2, 4}, "b");
    hosts.deliver_all();
    CHECK(hosts.sorted_done() == Strings{"1:8 cb", "2:7 cb"});
}

TEST_CASE("ranks that meet on one host need no mail", "[mpi][pmix]") {
    Hosts hosts({2, 2});
    hosts.come(1, 1, {2, 3}, "b");
    CHECK(hosts.mail.empty());
    CHECK(hosts.done == Strings{"1:1 b"});
}

TEST_CASE("each meeting of the same ranks is one of its own, in whatever order mail comes",
          "[mpi][pmix]") {
    const std::uint32_t seed = test_seed();
    INFO("DTRUN_SEED=" << seed);
    std::mt19937 random(seed);
    Hosts hosts({1, 1, 1});
    for (std::uint64_t round = 0; round < 20; ++round)
        for (std::uint32_t host = 0; host < 3; ++host)
            hosts.come(host, round, {0, 1, 2}, fmt::format("[{}]", round));
    while (!hosts.mail.empty()) hosts.deliver(random() % hosts.mail.size());
    const Strings done = hosts.sorted_done();
    REQUIRE(done.size() == 60);
    for (const std::string& line : done) {
        const std::string round = line.substr(2, line.find(' ') - 2);
        CHECK(line.substr(line.find(' ')) == fmt::format(" [{0}][{0}][{0}]", round));
    }
}

TEST_CASE("all who meet learn that a rank of them has ended", "[mpi][pmix]") {
    Hosts hosts({1, 1});
    hosts.come(0, 1, {0, 1}, "a");
    hosts.come(1, 2, {0, 1}, "", true);
    hosts.deliver_all();
    CHECK(hosts.sorted_done() == Strings{"0:1 a lost", "1:2 a lost"});
}

TEST_CASE("mail about ranks that do not exist, or other hosts', changes nothing", "[mpi][pmix]") {
    Hosts hosts({1, 1});
    hosts.collectives[0]->take(PmixPart{PmixCollective::fence, {0, 9}, 0, 1, "x", false});
    hosts.collectives[0]->take(PmixPart{PmixCollective::fence, {}, 0, 1, "x", false});
    hosts.collectives[0]->take(PmixPart{PmixCollective::fence, {1, 0}, 0, 1, "x", false});
    hosts.collectives[0]->take(PmixPart{PmixCollective::fence, {0, 1}, 0, 7, "x", false});
    hosts.collectives[1]->take(PmixPart{PmixCollective::fence, {0, 1}, 0, 0, "x", false});
    hosts.collectives[0]->take(PmixWhole{PmixCollective::fence, {0, 1}, 0, "x", false});
    CHECK(hosts.mail.empty());
    CHECK(hosts.done.empty());
    hosts.come(1, 1, {0, 1}, "b");
    hosts.come(0, 1, {0, 1}, "a");
    hosts.deliver_all();
    CHECK(hosts.sorted_done() == Strings{"0:1 ab", "1:1 ab"});
}

namespace {

PmixItem item(std::string key, std::string text) {
    PmixItem made;
    made.key = std::move(key);
    made.rank = 3;
    made.type = pmix::kString;
    made.bytes = std::move(text);
    return made;
}

struct Names {
    Names() : store(io.get_executor()) {
        names.emplace(store, [this](Bytes frame) { frames.feed(frame); });
    }
    template <class Message>
    Message answer() {
        pass();
        const auto frame = frames.next();
        REQUIRE((frame && *frame));
        REQUIRE((*frame)->kind == Message::kKind);
        return pmix_decode<Message>((*frame)->payload).value();
    }
    bool silent() {
        pass();
        return !frames.next().value();
    }
    void pass() {
        io.restart();
        io.poll();
    }

    asio::io_context io;
    LocalStore store;
    PmixFrames frames;
    std::optional<PmixNames> names;
};

}  // namespace

TEST_CASE("a name that was published is found, with its value and publisher", "[mpi][pmix]") {
    Names here;
    here.names->publish({1, {item("a", "port a"), item("b", "port b")}});
    CHECK(here.answer<PmixAnswer>().status == pmix::kSuccess);
    here.names->lookup({2, {"b"}, 0});
    const auto found = here.answer<PmixFound>();
    CHECK(found.status == pmix::kSuccess);
    REQUIRE(found.items.size() == 1);
    CHECK(found.items[0].key == "b");
    CHECK(found.items[0].bytes == "port b");
    CHECK(found.items[0].rank == 3);
    here.names->lookup({3, {"c"}, 0});
    CHECK(here.answer<PmixFound>().status == pmix::kErrorNotFound);
}

TEST_CASE("a name is published once, until it is taken back", "[mpi][pmix]") {
    Names here;
    here.names->publish({1, {item("a", "1")}});
    CHECK(here.answer<PmixAnswer>().status == pmix::kSuccess);
    here.names->publish({2, {item("a", "2")}});
    CHECK(here.answer<PmixAnswer>().status == pmix::kErrorDuplicateKey);
    here.names->unpublish({3, 3, {"a"}});
    CHECK(here.answer<PmixAnswer>().status == pmix::kSuccess);
    here.names->unpublish({4, 3, {"a"}});
    CHECK(here.answer<PmixAnswer>().status == pmix::kErrorNotFound);
    here.names->publish({5, {item("a", "3")}});
    CHECK(here.answer<PmixAnswer>().status == pmix::kSuccess);
    here.names->unpublish({6, 3, {}});
    CHECK(here.answer<PmixAnswer>().status == pmix::kSuccess);
    CHECK(here.store.store().size() == 0);
}

TEST_CASE("a lookup that waits is answered by the publisher, and gives up after its time",
          "[mpi][pmix]") {
    Names here;
    here.names->lookup({1, {"a", "b"}, 60'000});
    here.names->publish({2, {item("a", "1")}});
    CHECK(here.answer<PmixAnswer>().id == 2);
    CHECK(here.silent());
    here.names->publish({3, {item("b", "2")}});
    CHECK(here.answer<PmixFound>().items.size() == 2);
    CHECK(here.answer<PmixAnswer>().id == 3);
    here.names->lookup({4, {"c"}, 1});
    here.io.restart();
    here.io.run_for(std::chrono::seconds(5));
    CHECK(here.answer<PmixFound>().status == pmix::kErrorTimeout);
}

TEST_CASE("a value that is for one reader is gone then", "[mpi][pmix]") {
    Names here;
    PmixItem once = item("a", "1");
    once.once = true;
    here.names->publish({1, {once}});
    CHECK(here.answer<PmixAnswer>().status == pmix::kSuccess);
    here.names->lookup({2, {"a"}, 0});
    CHECK(here.answer<PmixFound>().items.size() == 1);
    here.pass();
    CHECK(here.store.store().size() == 0);
}

TEST_CASE("nobody waits in the store any more when a generation's names have gone", "[mpi][pmix]") {
    Names here;
    here.names->lookup({1, {"a"}, kForeverMs});
    CHECK(here.store.store().waiting() == 1);
    here.names.reset();
    CHECK(here.store.store().waiting() == 0);
}

TEST_CASE("frames of PMIx arrive whole, however they are cut", "[mpi][pmix]") {
    PmixFence fence{5, PmixCollective::connect, {1, 4, 70'000}, std::string("a\0b", 3), true};
    const Bytes one = pmix_encode(fence);
    const Bytes bytes = one + pmix_encode(PmixServing{4711}) + one;
    for (std::size_t step = 1; step < bytes.size(); ++step) {
        PmixFrames frames;
        std::vector<PmixFrame> found;
        for (std::size_t at = 0; at < bytes.size(); at += step) {
            frames.feed(std::string_view(bytes).substr(at, step));
            for (auto frame = frames.next().value(); frame; frame = frames.next().value())
                found.push_back(*frame);
        }
        REQUIRE(found.size() == 3);
        const auto decoded = pmix_decode<PmixFence>(found[2].payload).value();
        CHECK(decoded.id == 5);
        CHECK(decoded.collective == PmixCollective::connect);
        CHECK(decoded.ranks == fence.ranks);
        CHECK(decoded.bytes == fence.bytes);
        CHECK(decoded.lost);
        CHECK(pmix_decode<PmixServing>(found[1].payload).value().port == 4711);
    }
}

TEST_CASE("a frame of PMIx without sense is an error", "[mpi][pmix]") {
    PmixFrames frames;
    frames.feed("\xff\xff\xff\xff.");
    CHECK(frames.next().error().code == Errc::invalid_input);
    CHECK(pmix_decode<PmixFence>("x").error().code == Errc::invalid_input);
    CHECK(pmix_decode_item("").error().code == Errc::invalid_input);
}

TEST_CASE("a client of PMIx tells its rank in its first message", "[mpi][pmix]") {
    using namespace std::string_literals;
    PmixEnvironment environment;
    environment.nspace = "dtrun-c0ffee-1";
    const std::string begin = "\xff\xff\xff\xff native\0\0\0\0\0\0"s;
    CHECK(environment.client_in(begin + "dtrun-c0ffee-1\0\0\0\1\2"s + "4.2.2\0"s) == 258);
    CHECK_FALSE(environment.client_in(begin + "dtrun-c0ffee-1\0\0\0\1"s));
    CHECK_FALSE(environment.client_in(begin + "dtrun-c0ffee-11\0\0\0\1\2"s));
    CHECK_FALSE(environment.client_in(""));
}

TEST_CASE("ranks are told of the server as libpmix' own launchers do", "[mpi][pmix]") {
    PmixEnvironment environment;
    environment.nspace = "dtrun-c0ffee-1";
    environment.port = 4711;
    environment.host_name = "s1";
    environment.directory = "/tmp/d";
    const auto of = [&environment](const std::string& name) {
        for (const auto& [key, value] : environment.variables(3))
            if (key == name) return value;
        return std::string("-");
    };
    CHECK(of("PMIX_NAMESPACE") == "dtrun-c0ffee-1");
    CHECK(of("PMIX_RANK") == "3");
    CHECK(of("PMIX_SERVER_URI41") == "dtrun-pmix.0;tcp4://127.0.0.1:4711");
    CHECK(of("PMIX_SERVER_URI2") == of("PMIX_SERVER_URI41"));
    CHECK(of("PMIX_HOSTNAME") == "s1");
    CHECK(of("PMIX_SERVER_TMPDIR") == "/tmp/d");
    CHECK(of("OMPI_MCA_schizo") == "ompi");
    CHECK(of("PMIX_MCA_psec") == "native");
    CHECK(of("PMIX_GDS_MODULE") == "hash");
    CHECK(of("PMIX_VERSION") == "-");
    environment.version = "5.0.7";
    CHECK(of("PMIX_GDS_MODULE") == "hash");
    CHECK(of("PMIX_VERSION") == "5.0.7");
    environment.shared_memory = true;
    CHECK(of("PMIX_GDS_MODULE") == "shmem2,hash");
    environment.version = "4.0.0";
    environment.server_pid = 7;
    CHECK(of("PMIX_GDS_MODULE") == "ds21,ds12,hash");
    CHECK(of("PMIX_DSTORE_21_BASE_PATH") == "/tmp/d/pmix_dstor_ds21_7");
    CHECK(of("PMIX_SERVER_URI41") == "-");
    CHECK(of("PMIX_SERVER_URI4") == of("PMIX_SERVER_URI2"));
    environment.version = "9.0.0";
    CHECK(of("PMIX_GDS_MODULE") == "hash");
}
