// Clients of PMI without sockets: what they send, what they get, to the byte.
#include "rendezvous/wire/modes.h"
#include "tests/support/catch.h"
#include "tests/worker/mpi/pmi_hosts.h"
#include "worker/mpi/pmi_session.h"

#include <chrono>

using namespace dtrun;
using namespace dtrun::mpi;
using Catch::Contains;

namespace {

constexpr const char* kInitTwo = "cmd=init pmi_version=2 pmi_subversion=0\n";
constexpr const char* kInitializedTwo =
    "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n";

std::string two(const PmiCommand& command) {
    return encode_pmi2(command);
}

/// Hosts and their ranks' sessions, in one loop.
struct World {
    explicit World(std::vector<std::uint32_t> sizes, MpiMode mode = MpiMode::automatic)
        : networks(io, sizes.size()) {
        for (std::uint32_t host = 0; host < sizes.size(); ++host) {
            const MpiWorld world = mpi_world(sizes, host);
            hosts.push_back(std::make_unique<PmiHost>(world, mode, networks.of(host), mpi,
                                                      [this] { ++failures; }));
            for (const std::uint32_t rank : world.ranks)
                ranks.push_back(
                    std::make_unique<PmiSession>(*hosts[host], rank, [this] { ++changes; }));
        }
    }

    /// What the rank hears after it has said that, and all that follows from it has been done.
    std::string say(std::size_t rank, std::string_view bytes) {
        ranks[rank]->received(bytes);
        return hear(rank);
    }
    std::string hear(std::size_t rank) {
        std::string heard;
        do {
            heard += ranks[rank]->take_output();
            io.restart();
            io.poll();
        } while (ranks[rank]->has_output());
        return heard;
    }
    /// Only of PMI-2, and answered.
    std::string say_two(std::size_t rank, const PmiCommand& command) {
        const std::string heard = say(rank, two(command));
        return heard.size() < 6 ? heard : heard.substr(6);
    }

    asio::io_context io;
    MpiNetworks networks;
    RecordedMpi mpi;
    std::vector<std::unique_ptr<PmiHost>> hosts;
    std::vector<std::unique_ptr<PmiSession>> ranks;
    int failures = 0;
    int changes = 0;
};

}  // namespace

TEST_CASE("each rank has the number of its program", "[worker][pmi]") {
    MpiWorld world;
    CHECK(world.appnum(3) == 0);
    world.program_ranks = {2, 1, 3};
    const std::uint32_t numbers[] = {0, 0, 1, 2, 2, 2};
    for (std::uint32_t rank = 0; rank < 6; ++rank) CHECK(world.appnum(rank) == numbers[rank]);
}

TEST_CASE("MPICH's way through MPI_Init, to the byte", "[worker][pmi]") {
    World world({1});
    CHECK(world.say(0, kInit) == kInitialized);
    CHECK(world.say(0, "cmd=get_maxes\n") ==
          "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n");
    CHECK(world.say(0, "cmd=get_appnum\n") == "cmd=appnum appnum=0\n");
    CHECK(world.say(0, "cmd=get_my_kvsname\n") == "cmd=my_kvsname kvsname=kvs_c0ffee_1\n");
    CHECK(world.say(0, "cmd=get_universe_size\n") == "cmd=universe_size size=1\n");
    CHECK(world.say(0, "cmd=get kvsname=kvs_c0ffee_1 key=PMI_process_mapping\n") ==
          "cmd=get_result rc=0 msg=success value=(vector,(0,1,1))\n");
    CHECK(world.say(0, "cmd=get kvsname=kvs_c0ffee_1 key=PMI_hwloc_xmlfile\n") ==
          "cmd=get_result rc=-1 msg=key_not_found value=unknown\n");
    CHECK(world.say(0, "cmd=put kvsname=kvs_c0ffee_1 key=-bcast-1-0 value=2F64\n") ==
          "cmd=put_result rc=0 msg=success\n");
    CHECK(world.say(0, "cmd=barrier_in\n") == "cmd=barrier_out\n");
    CHECK(world.say(0, "cmd=get kvsname=kvs_c0ffee_1 key=-bcast-1-0\n") ==
          "cmd=get_result rc=0 msg=success value=2F64\n");
    CHECK(world.say(0, "cmd=finalize\n") == "cmd=finalize_ack\n");
    CHECK(world.mpi.events == std::vector<std::string>{"0 initialized", "0 finalized"});
    CHECK(world.say(0, std::string(kInit) + "cmd=finalize\n") ==
          std::string(kInitialized) + "cmd=finalize_ack\n");
    CHECK(world.mpi.events.size() == 4);
}

TEST_CASE("a barrier brings every host what the others have put", "[worker][pmi]") {
    World world({2, 1});
    for (int rank = 0; rank < 3; ++rank) {
        CHECK(world.say(rank, kInit) == kInitialized);
        world.say(rank, fmt::format("cmd=put kvsname=kvs_c0ffee_1 key=k{0} value=old\n"
                                    "cmd=put kvsname=kvs_c0ffee_1 key=k{0} value=v{0}\n",
                                    rank));
    }
    const auto get = [&](int rank, int key) {
        return world.say(rank, fmt::format("cmd=get kvsname=kvs_c0ffee_1 key=k{}\n", key));
    };
    CHECK_THAT(get(1, 0), Contains("value=v0\n"));
    CHECK_THAT(get(2, 0), Contains("rc=-1"));
    CHECK(world.say(0, "cmd=barrier_in\ncmd=get kvsname=kvs_c0ffee_1 key=k2\n").empty());
    CHECK(world.say(2, "cmd=barrier_in\n").empty());
    const auto waiting = world.ranks[0]->waiting();
    REQUIRE(waiting);
    CHECK_THAT(waiting->what, Contains("barrier of PMI"));
    CHECK_FALSE(world.ranks[1]->waiting());
    CHECK(world.say(1, "cmd=barrier_in\n") == "cmd=barrier_out\n");
    CHECK(world.hear(0) == "cmd=barrier_out\ncmd=get_result rc=0 msg=success value=v2\n");
    CHECK(world.hear(2) == "cmd=barrier_out\n");
    CHECK_THAT(get(2, 0), Contains("value=v0\n"));
    CHECK(world.networks.fences_passed == 1);
    const std::size_t carried = world.networks.bytes_carried;
    for (int rank = 0; rank < 3; ++rank) world.say(rank, "cmd=barrier_in\n");
    CHECK(world.networks.fences_passed == 2);
    CHECK(world.networks.bytes_carried - carried <= 4);  // nothing goes twice
    CHECK_THAT(world.say(2, "cmd=getbyidx kvsname=kvs_c0ffee_1 idx=0\n"),
               Contains("cmd=getbyidx_results rc=0 nextidx=1 key=k2 val=v2\n"));
    CHECK(world.say(2, "cmd=getbyidx kvsname=kvs_c0ffee_1 idx=3\n") ==
          "cmd=getbyidx_results rc=-1 reason=no_more_keyvals\n");
}

TEST_CASE("a rank that is gone is not counted in a barrier", "[worker][pmi]") {
    World world({2});
    world.say(0, std::string(kInit) + "cmd=barrier_in\n");
    world.ranks[0].reset();
    CHECK(world.say(1, std::string(kInit) + "cmd=barrier_in\n") == kInitialized);
    CHECK(world.ranks[1]->waiting());
}

TEST_CASE("whoever waits when a fence fails is told to give up, when it is time", "[worker][pmi]") {
    World world({1, 1});
    world.say(0, std::string(kInit) + "cmd=barrier_in\n");
    world.networks.fail("rank 1 has ended");
    CHECK(world.hear(0).empty());
    CHECK(world.failures == 1);
    CHECK(world.ranks[0]->waiting());
    CHECK_FALSE(world.ranks[0]->is_over());
    world.hosts[0]->give_up();
    CHECK(world.ranks[0]->is_over());
    CHECK(world.changes == 1);
    world.hosts[1]->give_up();
    CHECK(world.say(1, std::string(kInit) + "cmd=barrier_in\n") == kInitialized);
    CHECK(world.ranks[1]->is_over());
    CHECK_FALSE(world.ranks[1]->failure());
}

TEST_CASE("the mapping of ranks to hosts is as the library wants it", "[worker][pmi]") {
    CHECK(World({3, 2}).hosts[1]->process_mapping() == "(vector,(0,1,3),(1,1,2))");
    CHECK(World({4, 4}).hosts[0]->process_mapping() == "(vector,(0,2,4))");
    CHECK(World({2, 1}).say(0, "cmd=get_ranks2hosts\n") ==
          "put_ranks2hosts 20 2\n2 s1 0,1, 2 s2 2, \n");
    std::vector<std::uint32_t> uneven;
    for (std::uint32_t host = 0; host < 200; ++host) uneven.push_back(1 + host % 2);
    World many(uneven);
    CHECK(many.hosts[0]->process_mapping().empty());
    CHECK_THAT(many.say(0, "cmd=get key=PMI_process_mapping\n"), Contains("rc=-1"));
    CHECK_THAT(many.say(0, kInitTwo), Contains("rc=0"));
    CHECK_THAT(many.say_two(0, {"info-getjobattr", {{"key", "PMI_process_mapping"}}}),
               Contains("found=FALSE;rc=0;"));
}

TEST_CASE("names are published once, and found on every host", "[worker][pmi]") {
    World world({1, 1});
    world.say(0, kInit);
    world.say(1, kInitTwo);
    CHECK(world.say(0, "cmd=lookup_name service=s\n") ==
          "cmd=lookup_result info=fail rc=1 msg=service_not_found\n");
    CHECK(world.say(0, "cmd=publish_name service=s port=tag#0$x=1\n") ==
          "cmd=publish_result info=ok rc=0 msg=success\n");
    CHECK_THAT(world.say_two(1, {"name-publish", {{"name", "s"}, {"port", "other"}}}),
               Contains("cmd=name-publish-response;rc=1;errmsg="));
    CHECK(world.say_two(1, {"name-lookup", {{"thrid", "0x1"}, {"name", "s"}}}) ==
          "cmd=name-lookup-response;thrid=0x1;found=TRUE;value=tag#0$x=1;port=tag#0$x=1;rc=0;");
    CHECK(world.say(0, "cmd=lookup_name service=s\n") ==
          "cmd=lookup_result port=tag#0$x=1 info=ok rc=0 msg=success\n");
    CHECK(world.say_two(1, {"name-unpublish", {{"name", "s"}}}) ==
          "cmd=name-unpublish-response;rc=0;");
    CHECK(world.say(0, "cmd=unpublish_name service=s\n") ==
          "cmd=unpublish_result info=fail rc=1 msg=service_not_found\n");
    CHECK_THAT(world.say_two(1, {"name-lookup", {{"name", "s"}}}), Contains("found=FALSE;rc=1;"));
    const std::string endless(60'000, 's');
    CHECK_THAT(world.say(0, "cmd=lookup_name service=" + endless + "\n"), Contains("rc=1"));
}

TEST_CASE("spawning is refused once, after all its programs", "[worker][pmi]") {
    World world({1});
    world.say(0, kInit);
    CHECK(world.say(0, "mcmd=spawn\nnprocs=1\nexecname=a\ntotspawns=2\nspawnssofar=1\nendcmd\n")
              .empty());
    CHECK_THAT(world.say(0, "mcmd=spawn\ntotspawns=2\nspawnssofar=2\nendcmd\n"),
               Contains("cmd=spawn_result rc=-1 "));
    world.say(0, "cmd=finalize\n");
    world.say(0, kInitTwo);
    CHECK_THAT(world.say_two(0, {"spawn", {{"ncmds", "1"}}}),
               Contains("cmd=spawn-response;rc=1;errmsg=dtrun starts no further ranks;"));
}

TEST_CASE("a library that speaks what is not offered is refused, with what to do",
          "[worker][pmi]") {
    const auto refused = [](MpiMode mode, const char* init) {
        World world({1}, mode);
        const std::string heard = world.say(0, init);
        CHECK_THAT(heard, Contains("cmd=response_to_init ") && Contains("rc=-1\n"));
        CHECK(world.ranks[0]->is_over());
        CHECK_FALSE(world.ranks[0]->failure());
        CHECK(world.say(0, "cmd=get_maxes\n").empty());
        REQUIRE(world.mpi.events.size() == 1);
        return world.mpi.events[0];
    };
    CHECK_THAT(refused(MpiMode::pmix, kInit),
               Contains("0 refused: ") && Contains("MPICH") &&
                   Contains("--mpi pmix offers only PMIx: use --mpi auto or --mpi pmi1"));
    CHECK_THAT(refused(MpiMode::pmix, kInitTwo), Contains("use --mpi auto or --mpi pmi2"));
    CHECK_THAT(refused(MpiMode::pmi1, kInitTwo),
               Contains("--mpi pmi1 offers only PMI-1: use --mpi auto or --mpi pmi2"));
    CHECK_THAT(refused(MpiMode::pmi2, kInit),
               Contains("--mpi pmi2 offers only PMI-2: use --mpi auto or --mpi pmi1"));
    CHECK_THAT(refused(MpiMode::automatic, "cmd=init pmi_version=3\n"),
               Contains("version 3 of PMI; dtrun speaks 1 and 2"));
    CHECK(World({1}, MpiMode::pmi1).say(0, kInit) == kInitialized);
    CHECK(World({1}, MpiMode::pmi2).say(0, kInitTwo) == kInitializedTwo);
}

TEST_CASE("MPI_Abort is told, and its rank gets no answer that would let it go on",
          "[worker][pmi]") {
    World world({2});
    world.say(0, kInit);
    CHECK(world.say(0, "cmd=abort exitcode=7\ncmd=barrier_in\n").empty());
    CHECK(world.say(0, "cmd=get_appnum\n").empty());
    CHECK_FALSE(world.ranks[0]->is_over());
    CHECK_FALSE(world.ranks[0]->waiting());
    world.say(1, kInitTwo);
    CHECK(world.say_two(1, {"abort", {{"isworld", "TRUE"}, {"msg", "why"}}}).empty());
    CHECK(world.mpi.events ==
          std::vector<std::string>{"0 initialized", "0 aborted 7", "1 initialized", "1 aborted 1"});
}

TEST_CASE("PMI-2 begins as PMI-1 and may end as it", "[worker][pmi]") {
    World world({2, 1});
    for (int rank = 0; rank < 3; ++rank) CHECK(world.say(rank, kInitTwo) == kInitializedTwo);
    CHECK(world.say_two(2, {"fullinit", {{"pmirank", "2"}, {"threaded", "FALSE"}}}) ==
          "cmd=fullinit-response;pmi-version=2;pmi-subversion=0;rank=2;size=3;appnum=0;"
          "debugged=FALSE;pmiverbose=FALSE;rc=0;");
    CHECK(world.say_two(0, {"job-getid", {{"thrid", "0xab"}}}) ==
          "cmd=job-getid-response;thrid=0xab;jobid=kvs_c0ffee_1;rc=0;");
    CHECK(world.say_two(0, {"kvs-put", {{"key", "a;"}, {"value", ";\n x"}}}) ==
          "cmd=kvs-put-response;rc=0;");
    CHECK(world.say_two(2, {"kvs-get", {{"key", "a;"}}}) ==
          "cmd=kvs-get-response;found=FALSE;rc=0;");
    CHECK(world.say_two(0, {"kvs-fence", {{"thrid", "1"}}}).empty());
    CHECK_THAT(world.say_two(0, {"kvs-fence", {}}), Contains("rc=1;errmsg="));
    CHECK(world.say_two(1, {"kvs-fence", {}}).empty());
    CHECK(world.say_two(2, {"kvs-fence", {}}) == "cmd=kvs-fence-response;rc=0;");
    CHECK(world.hear(0) == two({"kvs-fence-response", {{"thrid", "1"}, {"rc", "0"}}}));
    CHECK(world.say_two(2, {"kvs-get", {{"jobid", "kvs_c0ffee_1"}, {"key", "a;"}}}) ==
          "cmd=kvs-get-response;found=TRUE;value=;;\n x;rc=0;");
    CHECK_THAT(world.say_two(2, {"kvs-get", {{"jobid", "another"}, {"key", "a;"}}}),
               Contains("found=FALSE"));
    CHECK_THAT(world.say_two(2, {"job-connect", {{"jobid", "another"}}}),
               Contains("cmd=job-connect-response;rc=1;errmsg="));
    CHECK_THAT(world.say_two(2, {"anything", {}}), Contains("cmd=anything-response;rc=1;"));
    CHECK(world.say_two(2, {"finalize", {}}) == "cmd=finalize-response;rc=0;");
    CHECK(world.say(2, kInit) == kInitialized);
    // What a value of PMI-2 may have in it cannot be said in PMI-1.
    CHECK_THAT(world.say(2, "cmd=get key=a;\n"), Contains("rc=-1"));
}

TEST_CASE("who waits for an attribute of its host hears of it from another rank, or thread",
          "[worker][pmi]") {
    World world({2, 1});
    for (int rank = 0; rank < 3; ++rank) world.say(rank, kInitTwo);
    const auto get = [](const char* thread, const char* wait) {
        return PmiCommand{"info-getnodeattr", {{"thrid", thread}, {"key", "a"}, {"wait", wait}}};
    };
    CHECK(world.say_two(0, get("1", "FALSE")) ==
          "cmd=info-getnodeattr-response;thrid=1;found=FALSE;rc=0;");
    CHECK(world.say_two(0, get("2", "TRUE")).empty());
    CHECK(world.say_two(1, get("3", "TRUE")).empty());
    CHECK(world.say_two(2, get("4", "TRUE")).empty());
    REQUIRE(world.ranks[0]->waiting());
    CHECK_THAT(world.ranks[0]->waiting()->what, Contains("put an attribute (PMI-2)"));
    const std::string heard =
        world.say(1, two({"info-putnodeattr", {{"key", "a"}, {"value", "x"}}}));
    CHECK_THAT(heard, Contains("thrid=3;found=TRUE;value=x;rc=0;") &&
                          Contains("cmd=info-putnodeattr-response;rc=0;"));
    CHECK_THAT(world.hear(0), Contains("thrid=2;found=TRUE;value=x;rc=0;"));
    CHECK(world.hear(2).empty());
    CHECK_FALSE(world.ranks[0]->waiting());
    CHECK_THAT(world.say_two(0, get("5", "TRUE")), Contains("value=x"));
    CHECK_THAT(world.say_two(1, {"info-getnodeattr", {{"key", "localRanks"}}}),
               Contains("value=0,1;"));
}

TEST_CASE("the ends of a ring go around all hosts", "[worker][pmi]") {
    World world({1, 2});
    const auto ring = [](int rank) {
        return PmiCommand{"ring",
                          {{"ring-count", "1"},
                           {"ring-left", fmt::format("l{}", rank)},
                           {"ring-right", fmt::format("r{}", rank)}}};
    };
    for (int rank = 0; rank < 3; ++rank) {
        world.say(rank, kInitTwo);
        world.ranks[static_cast<std::size_t>(rank)]->received(two(ring(rank)));
    }
    CHECK(world.hear(0).substr(6) ==
          "cmd=ring-response;rc=0;ring-count=0;ring-left=r2;ring-right=l1;");
    CHECK(world.hear(2).substr(6) ==
          "cmd=ring-response;rc=0;ring-count=2;ring-left=r1;ring-right=l0;");
}

TEST_CASE("what is too long to be kept while a thread waits is refused", "[worker][pmi]") {
    World world({2});
    world.say(0, kInitTwo);
    const std::string endless(100'000, 'x');
    CHECK(world.say_two(0, {"kvs-fence", {{"thrid", endless}}}) ==
          "cmd=kvs-fence-response;rc=1;errmsg=thrid is too long;");
    CHECK_THAT(world.say_two(0, {"name-publish", {{"name", "n"}, {"port", endless}}}),
               Contains("rc=1"));
    CHECK_THAT(world.say_two(0, {"name-lookup", {{"name", endless}}}), Contains("rc=1"));
    CHECK_THAT(world.say_two(0, {"info-getnodeattr", {{"key", endless}, {"wait", "TRUE"}}}),
               Contains("found=FALSE"));
    CHECK_THAT(world.say_two(0, {"info-putnodeattr", {{"key", endless}}}), Contains("rc=1"));
    CHECK_THAT(world.say_two(0, {"ring", {{"ring-left", endless}}}), Contains("rc=1"));
    CHECK_FALSE(world.ranks[0]->waiting());
}

TEST_CASE("values that are too many or too long are refused", "[worker][pmi]") {
    World world({1});
    world.say(0, kInit);
    const auto put = [&](std::size_t key, std::size_t value) {
        return world.say(0, fmt::format("cmd=put key={} value={}\n", std::string(key, 'k'),
                                        std::string(value, 'v')));
    };
    CHECK_THAT(put(64, 1024), Contains("rc=0"));
    CHECK_THAT(put(65, 1), Contains("rc=-1 msg=a_key_has_1_to_64_bytes\n"));
    CHECK_THAT(put(0, 1), Contains("rc=-1"));
    CHECK_THAT(put(1, 1025), Contains("rc=-1"));
    std::string last;
    const std::string value(1'000, 'v');
    for (int i = 0; i < 9'000; ++i)
        last = world.say(0, fmt::format("cmd=put key=k{} value={}\n", i, value));
    CHECK_THAT(last, Contains("rc=-1 msg=too_many_values_before_one_barrier\n"));
    CHECK(world.say(0, "cmd=barrier_in\n") == "cmd=barrier_out\n");
    CHECK_THAT(put(2, 2), Contains("rc=0"));
}

TEST_CASE("a client that breaks the protocol is cut off, whatever it sends", "[worker][pmi]") {
    for (const std::string& bytes :
         {std::string(100'000, 'x'), std::string("\0\xff\n", 3), std::string("GET / HTTP/1.1\r\n"),
          std::string(kInitTwo) + "cmd=in", std::string(kInitTwo) + "    11cmd=a;k=;;;"}) {
        World world({1});
        world.say(0, bytes.substr(0, bytes.size() / 2));
        world.say(0, bytes.substr(bytes.size() / 2));
        const bool is_right = bytes.ends_with("k=;;;");
        CHECK(world.ranks[0]->is_over() != is_right);
        CHECK(world.ranks[0]->failure().has_value() != is_right);
    }
    World world({1});
    CHECK(world.say(0, std::string(kInit) + "cmd=what\n") ==
          std::string(kInitialized) + "cmd=error rc=-1 msg=not_known_to_dtrun\n");
}

TEST_CASE("a client that does not read is not answered without end", "[worker][pmi]") {
    World world({1});
    PmiSession& session = *world.ranks[0];
    session.received(kInit);
    std::size_t sent = 0;
    while (session.wants_input() && sent < 1'000'000) {
        session.received("cmd=get_maxes\n");
        ++sent;
    }
    CHECK(sent < 100'000);
    CHECK(session.output().size() < 512u << 10);
    std::size_t lines = 0;
    while (session.has_output()) {
        const Bytes output = session.take_output();
        lines += static_cast<std::size_t>(std::ranges::count(output, '\n'));
    }
    CHECK(lines == sent + 1);
    CHECK(session.wants_input());
}
