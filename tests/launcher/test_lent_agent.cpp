// The user's ssh-agent, lent for a while.

#include "base/fd.h"
#include "launcher/transport/lent_agent.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <sys/stat.h>
#include <array>
#include <cctype>
#include <exception>
#include <filesystem>
#include <string>

namespace dtrun::transport {
namespace {

/// Says again what it is told, in capital letters.
class LoudAgent {
public:
    LoudAgent(asio::io_context& io, const std::string& path)
        : acceptor_(io, Unix::endpoint(path)), socket_(io) {
        acceptor_.async_accept(socket_, [this](boost::system::error_code error) {
            if (!error) answer();
        });
    }

private:
    void answer() {
        socket_.async_read_some(asio::buffer(bytes_),
                                [this](boost::system::error_code error, std::size_t n) {
                                    if (error) return;
                                    for (char& c : bytes_) c = static_cast<char>(std::toupper(c));
                                    asio::write(socket_, asio::buffer(bytes_, n));
                                    answer();
                                });
    }

    Unix::acceptor acceptor_;
    Unix::socket socket_;
    std::array<char, 100> bytes_{};
};

void take_back(asio::io_context& io, LentAgent& lent) {
    bool is_done = false;
    asio::co_spawn(io, lent.take_back(), [&is_done](const std::exception_ptr& error) {
        if (error) std::rethrow_exception(error);
        is_done = true;
    });
    io.restart();
    while (!is_done) REQUIRE(io.run_one_for(std::chrono::seconds(5)) == 1);
}

TEST_CASE("an agent that is lent is nobody's any more when it was taken back", "[lent_agent]") {
    const TempDir folder;
    asio::io_context io{1};
    const LoudAgent agent(io, folder.path() + "/agent");
    const auto lent = LentAgent::lend(io.get_executor(), folder.path() + "/agent");
    REQUIRE(lent.has_value());
    const std::string path = (*lent)->path();
    struct stat around {};
    REQUIRE(::stat(path.substr(0, path.rfind('/')).c_str(), &around) == 0);
    CHECK((around.st_mode & 0777) == 0700);

    Unix::socket borrower(io);
    borrower.connect(Unix::endpoint(path));
    asio::write(borrower, asio::buffer(std::string_view("which keys?")));
    std::string answer(11, ' ');
    bool is_answered = false, has_ended = false;
    asio::async_read(borrower, asio::buffer(answer),
                     [&](boost::system::error_code error, std::size_t) { is_answered = !error; });
    while (!is_answered) REQUIRE(io.run_one_for(std::chrono::seconds(5)) == 1);
    CHECK(answer == "WHICH KEYS?");

    std::array<char, 1> more{};
    borrower.async_read_some(asio::buffer(more), [&](boost::system::error_code error, std::size_t) {
        has_ended = error == asio::error::eof;
    });
    take_back(io, **lent);
    while (!has_ended && io.run_one_for(std::chrono::seconds(5)) == 1) {
    }
    CHECK(has_ended);
    CHECK_FALSE(std::filesystem::exists(path.substr(0, path.rfind('/'))));
    take_back(io, **lent);  // once more is as good
}

TEST_CASE("an agent whose name is too long for a socket is not lent", "[lent_agent]") {
    asio::io_context io{1};
    CHECK_FALSE(LentAgent::lend(io.get_executor(), "/" + std::string(200, 'a')).has_value());
}

}  // namespace
}  // namespace dtrun::transport
