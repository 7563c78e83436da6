// What becomes of descriptors when an ssh server hangs up.
#include "launcher/transport/ssh_session.h"

#include "tests/support/catch.h"
#include "tests/support/loop.h"

#include <fcntl.h>
#include <array>

namespace dtrun {

using namespace transport;

TEST_CASE("a server that hangs up is told at once, and whoever gets its descriptor is heard",
          "[ssh]") {
    asio::io_context io(1);
    tcp::acceptor acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    const int port = acceptor.local_endpoint().port();
    tcp::socket client(io);
    client.connect(acceptor.local_endpoint());
    acceptor.accept().close();
    SshSession session(io.get_executor());
    const bool reads_config = false;
    ssh_options_set(session.get(), SSH_OPTIONS_PROCESS_CONFIG, &reads_config);
    ssh_options_set(session.get(), SSH_OPTIONS_HOST, "127.0.0.1");
    ssh_options_set(session.get(), SSH_OPTIONS_PORT, &port);
    ssh_options_set(session.get(), SSH_OPTIONS_USER, "nobody");
    const int number = client.native_handle();
    REQUIRE(session.attach(std::move(client)).has_value());
    auto connect = [&session] { return ssh_connect(session.get()); };
    const auto done =
        run_to_end(io, session.drive(connect, SSH_AGAIN, after(std::chrono::seconds(9))));
    CHECK((done ? *done == SSH_ERROR : done.error().code == Errc::closed));  // not timed_out
    CHECK(session.lost());
    CHECK_THAT(session.error(),
               Catch::Contains("Connection reset") || Catch::Contains("disconnect"));

    // libssh has closed its descriptor: another connection gets the number, and then the session goes.
    auto [ours, theirs] = socket_pair(io);
    REQUIRE(::fcntl(ours.native_handle(), F_DUPFD_CLOEXEC, number) == number);
    tcp::socket healthy(io, tcp::v4(), number);
    std::array<char, 1> byte{};
    bool heard = false;
    asio::async_read(healthy, asio::buffer(byte),
                     [&](boost::system::error_code error, std::size_t) {
                         heard = !error;
                         io.stop();
                     });
    io.restart();
    io.poll();  // it waits
    session.disconnect();
    asio::write(theirs, asio::buffer("x", 1));
    io.run_for(std::chrono::seconds(10));
    CHECK(heard);
}

}  // namespace dtrun
