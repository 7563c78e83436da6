// Connections of ranks, with a libpmix that only reads and writes.
#include "tests/support/catch.h"
#include "tests/support/loop.h"
#include "tests/worker/mpi/pmi_hosts.h"
#include "worker/mpi/pmix_connections.h"

#include <arpa/inet.h>

using namespace dtrun;
using namespace dtrun::mpi;

namespace {

struct Relayed {
    /// The agent's end of a new rank's connection, which is passed on.
    PmixConnections::Shared begin(tcp::socket& rank, std::string_view says) {
        auto [theirs, ours] = socket_pair(io);
        rank = std::move(theirs);
        asio::write(rank, asio::buffer(says));
        return connections.add(std::move(ours));
    }
    void pass_on(PmixConnections::Shared connection) {
        tasks.spawn(connections.pass_on(std::move(connection), listener.local_endpoint().port()));
        io.restart();
        io.poll();
        libpmix.emplace(listener.accept());
        libpmix->non_blocking(true);
    }
    /// What libpmix has been sent; "end" after the end.
    std::string libpmix_reads() {
        settle(io, std::chrono::milliseconds(50));
        std::array<char, 64> bytes;
        boost::system::error_code error;
        const std::size_t size = libpmix->read_some(asio::buffer(bytes), error);
        return error == asio::error::eof ? "end" : std::string(bytes.data(), size);
    }
    ~Relayed() {
        connections.close();
        tasks.stop();
        io.restart();
        io.run();
    }

    asio::io_context io;
    tcp::acceptor listener{io, tcp::endpoint(asio::ip::address_v4::loopback(), 0)};
    RecordedMpi mpi;
    TaskGroup tasks{io.get_executor()};
    PmixConnections connections{io.get_executor(), mpi, tasks};
    std::optional<tcp::socket> libpmix;
};

/// A first message of that rank.
std::string names(std::uint32_t rank) {
    const std::uint32_t number = htonl(rank);
    std::string message("dtrun-c0ffee-1", 15);  // with the zero behind it
    message.append(reinterpret_cast<const char*>(&number), sizeof number);
    return message;
}

}  // namespace

TEST_CASE("libpmix sees the end of a rank's connection, unless the rank has finalized", "[pmix]") {
    const bool finalized = GENERATE(false, true);
    Relayed here;
    tcp::socket rank(here.io);
    here.pass_on(here.begin(rank, "hello"));
    CHECK(here.libpmix_reads() == "hello");
    if (finalized) here.connections.finalized(0);
    rank.close();
    CHECK(here.libpmix_reads() == (finalized ? "" : "end"));
}

TEST_CASE("a second program of a rank is turned away while the first one is there", "[pmix]") {
    Relayed here;
    PmixEnvironment environment;
    environment.nspace = "dtrun-c0ffee-1";
    REQUIRE(environment.client_in(names(3)) == 3u);
    tcp::socket first(here.io), second(here.io), other(here.io);
    const auto one = here.begin(first, names(3));
    CHECK_FALSE(here.connections.is_second(*one, environment));
    CHECK_FALSE(here.connections.is_second(*here.begin(other, names(4)), environment));
    CHECK(here.connections.is_second(*here.begin(second, names(3)), environment));
    CHECK(here.connections.is_second(*here.begin(second, names(3)), environment));
    CHECK(here.mpi.events.size() == 1);  // is told once
    here.connections.finalized(3);
    CHECK_FALSE(here.connections.is_second(*here.begin(second, names(3)), environment));
}
