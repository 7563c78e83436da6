#include "base/log.h"
#include "base/loop/accept.h"
#include "tests/support/catch.h"
#include "tests/support/loop.h"

#include <vector>

namespace dtrun {
namespace {

/// A listening socket of a machine that has run out of something for a while.
struct PoorAcceptor {
    using protocol_type = tcp;

    explicit PoorAcceptor(asio::io_context& context) : io(context) {}
    bool is_open() const { return open; }
    asio::any_io_executor get_executor() { return io.get_executor(); }
    asio::awaitable<std::tuple<boost::system::error_code, tcp::socket>> async_accept(
        const decltype(use_tuple)&) {
        ++tries;
        open = tries < 3;
        co_return std::tuple(make_error_code(error), tcp::socket(io));
    }

    asio::io_context& io;
    boost::system::errc::errc_t error = boost::system::errc::no_buffer_space;
    bool open = true;
    int tries = 0;
};

asio::awaitable<bool> accept_one(PoorAcceptor& acceptor, AcceptTrouble& trouble) {
    const auto socket = co_await accept_next(acceptor, trouble);
    co_return socket.has_value();
}

void keep(void* lines, std::string_view line) {
    static_cast<std::vector<std::string>*>(lines)->emplace_back(line);
}

}  // namespace

TEST_CASE(
    "whatever keeps connections from being accepted is tried again after a pause, and told once",
    "[base]") {
    asio::io_context io;
    PoorAcceptor acceptor(io);
    AcceptTrouble trouble("a test");
    std::vector<std::string> lines;
    log::set_sink(keep, &lines);
    const Deadline begin = Clock::now();
    CHECK_FALSE(run_to_end(io, accept_one(acceptor, trouble)));
    log::set_sink(nullptr, nullptr);
    CHECK(acceptor.tries == 3);
    CHECK(Clock::now() - begin >= std::chrono::milliseconds(3 * 50));
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].find("a test: cannot accept connections: ") != std::string::npos);
}

TEST_CASE("what happens often is told once in a while, with how often it has", "[base]") {
    Throttle throttle(std::chrono::seconds(5));
    const Deadline start = Clock::now();
    CHECK(throttle.count(start) == 1U);
    for (int i = 0; i < 9; ++i) CHECK_FALSE(throttle.count(start + std::chrono::seconds(4)));
    CHECK(throttle.count(start + std::chrono::seconds(5)) == 10U);
    CHECK_FALSE(throttle.count(start + std::chrono::seconds(6)));
}

}  // namespace dtrun
