// What an agent does before and after its ranks run: ports, addresses, arguments, error files.

#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/start_messages.h"
#include "tests/support/catch.h"
#include "tests/support/loop.h"
#include "tests/support/temp_dir.h"
#include "worker/agent/error_files.h"
#include "worker/agent/machine_load.h"
#include "worker/agent/probe.h"
#include "worker/agent/reserved_ports.h"
#include "worker/ranks/rank_macros.h"

#include <fstream>

namespace dtrun {

using namespace agent;
using namespace ranks;

TEST_CASE("each rank's numbers replace the names in its arguments", "[agent]") {
    Assign assign;
    assign.world_size = 16;
    assign.node_rank = 3;
    assign.ranks.resize(4);
    const RankSlot slot{Rank{13}, 1, 3, 4, 1};
    const std::vector<std::string> argv{"prog", "--local_rank=${local_rank}",
                                        "${rank}/${world_size}", "${node_rank}-${local_world_size}",
                                        "${HOME} $rank ${ran"};
    CHECK(
        RankMacros::of_program(assign, slot).replace(argv) ==
        std::vector<std::string>{"prog", "--local_rank=1", "13/16", "3-4", "${HOME} $rank ${ran"});
}

TEST_CASE("a machine is busy for some time after much ran, or we did not", "[agent]") {
    CHECK(runnable_threads("0.42 0.35 0.30 37/512 12345\n") == 37);
    CHECK(runnable_threads("") == 0);
    CHECK(runnable_threads("0.42 0.35 0.30 /") == 0);
    MachineLoad load([] { return false; });
    const Deadline start = Clock::now();
    const auto at = [start](int ms) { return start + std::chrono::milliseconds(ms); };
    CHECK_FALSE(load.is_high(start));
    load.sample(start);
    load.sample(at(4'000));  // it should have come after 1,250
    CHECK(load.is_high(at(7'900)));
    load.sample(at(5'000));
    CHECK(load.is_high(at(7'900)));
    CHECK_FALSE(load.is_high(at(8'000)));
}

TEST_CASE("the number of threads that want to run is read anew each time, from a file that is open",
          "[agent]") {
    const TempDir dir;
    const std::string path = dir.path() + "/loadavg";
    const auto write = [&path](std::string_view text) { std::ofstream(path) << text; };
    write("0.42 0.35 0.30 3/512 12345\n");
    const MachineLoad::Source source = runnable_threads_source(path.c_str());
    CHECK_FALSE(source());
    write("0.42 0.35 0.30 1000000/1000512 12345\n");
    CHECK(source());
    write("0.42 0.35 0.30 3/512 12345\n");
    CHECK_FALSE(source());
    CHECK_FALSE(runnable_threads_source((dir.path() + "/none").c_str())());
}

TEST_CASE("what a rank writes into its error file is there after it, once", "[agent]") {
    ErrorFiles files;
    const std::string path = files.open_file(SlotIndex{7});
    REQUIRE_FALSE(path.empty());
    std::ofstream(path) << "first";
    std::ofstream(path) << "{}";  // a second opening truncates, as with any file
    CHECK(files.take(SlotIndex{7}) == "{}");
    CHECK(files.take(SlotIndex{7}).empty());
    CHECK(files.take(SlotIndex{8}).empty());
}

TEST_CASE("reserved ports stand in a row, and nobody else gets them", "[agent]") {
    ReservedPorts ports(3);
    REQUIRE(ports.first() != 0);
    asio::io_context io;
    for (std::uint16_t i = 0; i < 3; ++i) {
        tcp::acceptor acceptor(io);
        acceptor.open(tcp::v4());
        boost::system::error_code error;
        const auto port = static_cast<std::uint16_t>(ports.first() + i);
        acceptor.bind(tcp::endpoint(tcp::v4(), port), error);
        CHECK(error == asio::error::address_in_use);
    }
    CHECK(ReservedPorts(0).first() == 0);
}

TEST_CASE("a probe finds the addresses at which a reserved port waits", "[agent]") {
    ReservedPorts ports(1);
    const Probe probe{{"127.0.0.1", "127.0.0.2", "::1", "nonsense"}, ports.first(), 2'000};
    asio::io_context io;
    const Reached before = run_to_end(io, try_addresses(probe));
    CHECK(before.addresses.empty());
    CHECK(before.why.find("127.0.0.1: ") != std::string::npos);
    CHECK(before.why.find("nonsense: no address") != std::string::npos);
    ports.listen_on_first(io.get_executor());
    const Reached after = run_to_end(io, try_addresses(probe));
    CHECK(after.addresses.size() >= 2);
    CHECK(after.addresses[0] == "127.0.0.1");
    CHECK(after.addresses[1] == "127.0.0.2");
    ports.release();
    CHECK(run_to_end(io, try_addresses(probe)).addresses.empty());
    // Nothing of those that came lingers at the port, which is the rank's now.
    tcp::acceptor rank(io);
    rank.open(tcp::v6());
    boost::system::error_code error;
    rank.bind(tcp::endpoint(tcp::v6(), ports.first()), error);
    CHECK_FALSE(error);
}

TEST_CASE("those who try a reserved port do not fill its backlog", "[agent]") {
    ReservedPorts ports(1);
    asio::io_context io;
    ports.listen_on_first(io.get_executor());
    const tcp::endpoint endpoint(asio::ip::address_v4::loopback(), ports.first());
    std::vector<tcp::socket> probes;
    for (int i = 0; i < 5; ++i) {
        probes.emplace_back(io);
        probes.back().connect(endpoint);
    }
    settle(io, std::chrono::milliseconds(50));
    for (tcp::socket& probe : probes) {
        char byte;
        boost::system::error_code error;
        probe.non_blocking(true);
        probe.read_some(asio::buffer(&byte, 1), error);
        CHECK(error == asio::error::connection_reset);  // it was accepted, and let go
    }
    // Who serves there afterwards has it to himself.
    tcp::acceptor server(io, tcp::v6(), ports.take_first().release());
    server.non_blocking(true);
    tcp::socket client(io);
    client.connect(endpoint);
    io.restart();
    io.run_for(std::chrono::milliseconds(20));
    CHECK(server.accept().is_open());
}

}  // namespace dtrun
