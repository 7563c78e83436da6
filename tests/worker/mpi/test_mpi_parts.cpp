#include "rendezvous/exchange/fence_table.h"
#include "rendezvous/job/rank_map.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/modes.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/request.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "worker/mpi/linked_mpi.h"
#include "worker/mpi/mpi_service.h"
#include "worker/mpi/relayed_network.h"
#include "worker/ranks/agent_directories.h"

#include <unistd.h>
#include <filesystem>
#include <fstream>

namespace dtrun {

using namespace mpi;
using namespace stores;
using namespace ranks;
namespace {

MpiWorld two_hosts(std::uint64_t generation) {
    MpiWorld world;
    world.generation = generation;
    world.world_size = 4;
    world.node_rank = 1;
    world.ranks = {2, 3};
    return world;
}

/// What the network has sent.
struct Sent {
    asio::io_context io;
    std::vector<std::pair<FrameType, std::string>> frames;
    RelayedStore::Send send() {
        return [this](FrameType type, std::string_view payload) {
            frames.emplace_back(type, payload);
        };
    }
    Fence fence(std::size_t at) const {
        REQUIRE(frames.at(at).first == FrameType::fence);
        const auto fence = decode<Fence>(frames[at].second);
        REQUIRE(fence.has_value());
        return *fence;
    }
};

void answer(RelayedNetwork& network, const Fenced& fenced) {
    const Bytes frame = encode(fenced);
    REQUIRE(network.on_frame({FrameType::fenced, payload_of(frame)}).has_value());
}

}  // namespace

TEST_CASE("programs tell by their libraries whose MPI they use", "[mpi]") {
    CHECK(linked_mpi("/proc/self/exe") == LinkedMpi::none);
    CHECK(linked_mpi("/nowhere") == LinkedMpi::none);
    CHECK(linked_mpi("/") == LinkedMpi::none);
#ifdef DTRUN_OPENMPI_HELLO
    CHECK(linked_mpi(DTRUN_OPENMPI_HELLO) == LinkedMpi::open_mpi);
#endif
#ifdef DTRUN_MPICH_HELLO
    CHECK(linked_mpi(DTRUN_MPICH_HELLO) == LinkedMpi::mpich);
#endif
}

TEST_CASE("a file that only begins like a program has no MPI", "[mpi]") {
    const TempDir directory;
    const std::string whole = directory.path() + "/whole";
    std::filesystem::copy_file("/proc/self/exe", whole);
    for (const std::uintmax_t size : {0, 4, 63, 64, 100, 700, 5'000}) {
        std::filesystem::resize_file(whole, size);
        CHECK(linked_mpi(whole) == LinkedMpi::none);
        std::filesystem::copy_file("/proc/self/exe", whole,
                                   std::filesystem::copy_options::overwrite_existing);
    }
}

TEST_CASE("a host comes to a fence of MPI for all its ranks, round after round", "[mpi]") {
    Sent sent;
    RelayedNetwork network(sent.io.get_executor(), sent.send(), [] { FAIL("too much"); });
    network.begin(two_hosts(3));
    std::vector<Result<std::vector<std::string>>> results;
    const auto done = [&results](Result<std::vector<std::string>> result) {
        results.push_back(std::move(result));
    };
    network.fence("a", "first", done);
    network.fence("a", "second", done);
    CHECK(sent.fence(0).round == 0);
    CHECK(sent.fence(1).round == 1);
    CHECK(sent.fence(1).ranks == 2);
    CHECK(sent.fence(1).generation == 3);
    CHECK(sent.fence(1).entries == std::vector<FenceEntry>{{Rank{2}, "second"}});

    answer(network, {3, "a", 1, true, "", {{Rank{0}, "x"}, {Rank{2}, "second"}}});
    REQUIRE(results.size() == 1);
    CHECK(results[0].value() == std::vector<std::string>{"x", "second"});
    CHECK(network.met());
    answer(network, {2, "a", 0, true, "", {}});  // of the generation before
    answer(network, {3, "b", 0, true, "", {}});  // of a program's own
    CHECK(results.size() == 1);
    answer(network, {3, "", 0, false, "rank 1 on s1 has ended", {}});
    REQUIRE(results.size() == 2);
    CHECK(results[1].error().message == "rank 1 on s1 has ended");

    network.fence("a", "third", done);
    network.begin(two_hosts(4));
    CHECK_FALSE(network.met());
    answer(network, {3, "a", 2, true, "", {}});
    CHECK(results.size() == 2);
}

TEST_CASE("a fence that was brought too much says so", "[mpi]") {
    Sent sent;
    int too_much = 0;
    RelayedNetwork network(sent.io.get_executor(), sent.send(), [&too_much] { ++too_much; });
    network.begin(two_hosts(1));
    int failed = 0;
    network.fence("a", "x", [&failed](const auto& result) { failed += !result.has_value(); });
    answer(network, {1, "a", 0, false, kTooManyBytes, {}});
    CHECK(too_much == 1);
    CHECK(failed == 1);
}

TEST_CASE("mail comes in order, also what came before somebody looked", "[mpi]") {
    Sent sent;
    RelayedNetwork network(sent.io.get_executor(), sent.send(), [] { FAIL("too much"); });
    network.begin(two_hosts(1));
    network.mail(0, "to another");
    std::vector<std::string> taken;
    network.open_mail([&taken](std::string bytes) { taken.push_back(std::move(bytes)); });
    REQUIRE(sent.frames.size() == 2);
    for (const char* const bytes : {"one", "two"}) {
        const auto request = decode_request(sent.frames.back().second);
        REQUIRE(request.has_value());
        REQUIRE(request->header.op == Op::pop);
        Bytes results;
        PackWriter out(results);
        out.array(1);
        out.bin(std::string_view(bytes));
        const Bytes reply =
            encode_reply({request->header.client, request->header.id, Status::ok}, results);
        REQUIRE(network.on_frame({FrameType::reply, payload_of(reply)}).has_value());
    }
    CHECK(taken == std::vector<std::string>{"one", "two"});
}

TEST_CASE("the number that MPI_Abort was told is told on as it is", "[mpi]") {
    asio::io_context io;
    Sent sent;
    std::optional<Rank> aborted;
    MpiService service(io.get_executor(), sent.send(),
                       {.mode = MpiMode::pmi1,
                        .host_name = "s1",
                        .job = "c0ffee",
                        .env = {},
                        .tell = [](const MpiStatus&) {},
                        .aborted =
                            [&](Rank rank) {
                                aborted = rank;
                                io.stop();
                            },
                        .started = {}});
    Assign assign;
    assign.generation = 1;
    assign.world_size = 1;
    assign.node_names = {"s1"};
    const std::vector<std::uint32_t> nodes{0};
    assign.rank_map = rank_map(nodes);
    assign.ranks = {RankSlot{}};
    REQUIRE(service.begin(assign).has_value());
    ranks::RankOffer offer;
    REQUIRE(service.offer(assign, assign.ranks[0], offer).has_value());
    const std::string said = "cmd=init pmi_version=1 pmi_subversion=1\ncmd=abort exitcode=300\n";
    REQUIRE(write_all(offer.inherited.at(0).get(), said).has_value());
    io.run_for(std::chrono::seconds(10));
    CHECK(aborted == Rank{0});
    Exited exited;
    exited.generation = 1;
    exited.signal = SIGKILL;
    exited.hung = true;
    service.describe(exited);
    CHECK(exited.mpi == MpiUse::aborted);
    CHECK_FALSE(exited.hung);
    CHECK(exited.code == 300);
    CHECK(exited.signal == 0);
    service.stop();
}

TEST_CASE("what an agent leaves behind is removed, and only that", "[mpi]") {
    const TempDir directory;
    const auto path = [&directory](const char* name) { return directory.path() + "/" + name; };
    for (const char* const name : {"a", "b", "c"})
        std::filesystem::create_directories(path(name) + "/deep/er");
    agent_directories().add(path("a"));
    agent_directories().add(path("b"));
    agent_directories().add(std::string(4'096, 'x'));
    agent_directories().remove(path("b"));
    agent_directories().clean();
    CHECK_FALSE(std::filesystem::exists(path("a")));
    CHECK(std::filesystem::exists(path("b")));
    CHECK(std::filesystem::exists(path("c")));
}

}  // namespace dtrun
