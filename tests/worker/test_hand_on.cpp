// How a host hands the agent on that it has got.
#include "worker/stored/hand_on.h"

#include "base/fd.h"
#include "base/strings.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>

namespace dtrun {

using namespace agent;

namespace {

/// A process that hands a file on, as the agent does. What it starts for that lives a minute, and is a child of its own:
/// other tests look at those of this one.
class Giver {
public:
    explicit Giver(Fd file) {
        auto pipe = make_pipe();
        REQUIRE(pipe.has_value());
        std::fflush(stdout);
        process_ = ::fork();
        if (process_ == 0) {
            ::dup2(pipe->write.get(), STDOUT_FILENO);
            pipe->write.reset();
            start_handing_on("word", std::move(file));
            ::close(STDOUT_FILENO);
            for (;;) ::pause();
        }
        pipe->write.reset();
        said_ = read_all(pipe->read.get(), "standard output", 200).value_or("");
    }
    ~Giver() {
        ::kill(process_, SIGKILL);
        ::waitpid(process_, nullptr, 0);
    }
    Giver(const Giver&) = delete;
    Giver& operator=(const Giver&) = delete;

    /// What start_handing_on() says on standard output.
    const std::string& said() const { return said_; }

private:
    pid_t process_ = 0;
    std::string said_;
};

/// All that comes after `word` was said.
std::string take(int port, const std::string& word) {
    const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(write_all(socket.get(), word + "\n").has_value());
    std::string all, piece(64 << 10, '\0');
    for (ssize_t n = 0; (n = ::recv(socket.get(), piece.data(), piece.size(), 0)) > 0;)
        all.append(piece, 0, static_cast<std::size_t>(n));
    return all;
}

}  // namespace

TEST_CASE("a host hands on to who knows the word, also when the file has no name any more",
          "[agent]") {
    const TempDir folder;
    const std::string bytes = std::string(3 << 20, 'x') + "end";
    const std::string file = folder.write("received", bytes);
    Fd opened(::open(file.c_str(), O_RDONLY));
    REQUIRE(std::filesystem::remove(file));
    const Giver giver(std::move(opened));
    const std::string& said = giver.said();
    constexpr std::string_view kSays = "dtrun-agent-hands-on ";
    REQUIRE_THAT(said, Catch::StartsWith(std::string(kSays)));
    const auto port = to_int(trim(std::string_view(said).substr(kSays.size())), 1, 65'535);
    REQUIRE(port.has_value());
    for (int i = 0; i < 20; ++i) CHECK(take(static_cast<int>(*port), "word") == bytes);
    CHECK(take(static_cast<int>(*port), "else") == "");
}

TEST_CASE("a host whose shell has not passed on what it has received hands nothing on", "[agent]") {
    CHECK(Giver(Fd(1'000'000)).said().empty());
}

}  // namespace dtrun
