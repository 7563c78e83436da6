// The program by which hosts that have Python receive the agent, and pass it on while it comes.
#include "base/crypto.h"
#include "base/environment.h"
#include "base/fd.h"
#include "base/ids.h"
#include "base/process/subprocess.h"
#include "base/strings.h"
#include "launcher/transport/carrier.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

namespace dtrun {
namespace {

const std::string kBytes = std::string(3 << 20, 'x') + std::string(3 << 20, 'y') + "end";

/// A host that receives kBytes by standard input.
class Receiver {
public:
    explicit Receiver(const std::string& digest = hex(sha256(kBytes))) {
        owner_ = ::fork();
        if (owner_ == 0) {
            ::pause();
            ::_exit(0);
        }
        auto in = make_pipe();
        auto out = make_pipe();
        REQUIRE(in.has_value());
        REQUIRE(out.has_value());
        const std::string python = "python3";
        const std::vector<std::string> argv{python,
                                            "-I",
                                            "-S",
                                            "-c",
                                            std::string(transport::kCarrier),
                                            folder_.at("file"),
                                            std::to_string(kBytes.size()),
                                            digest,
                                            "word",
                                            "10",
                                            std::to_string(owner_)};
        const std::vector<std::string> env = own_environment();
        ProcessPlan plan{.path = python, .argv = argv, .env = env};
        plan.descriptors = {{in->read.get(), STDIN_FILENO},
                            {out->write.get(), STDOUT_FILENO},
                            {out->write.get(), STDERR_FILENO}};
        plan.close_others = true;
        const auto pid = spawn_process(plan);
        REQUIRE(pid.has_value());
        pid_ = *pid;
        in_ = std::move(in->write);
        out_ = std::move(out->read);
        constexpr std::string_view kSays = "dtrun-agent-receives ";
        const std::string said = line();
        REQUIRE_THAT(said, Catch::StartsWith(std::string(kSays)));
        port = static_cast<int>(to_int(said.substr(kSays.size()), 1, 65'535).value());
        // The process that was started has ended, and so its time limit.
        int status = 0;
        REQUIRE(::waitpid(pid_, &status, 0) == pid_);
        CHECK(status == 0);
        send("\n");
        REQUIRE(line() == "carrier: taken");
        REQUIRE(line() == "dtrun-agent-send");
    }
    ~Receiver() { end_owner(); }
    Receiver(const Receiver&) = delete;
    Receiver& operator=(const Receiver&) = delete;

    void send(std::string_view bytes) { REQUIRE(write_all(in_.get(), bytes).has_value()); }
    void end_input() { in_.reset(); }
    /// The next one but for signs of life, which come where the machine is slow.
    std::string line() {
        std::string text;
        do {
            text.clear();
            for (char c = 0; ::read(out_.get(), &c, 1) == 1 && c != '\n';) text += c;
        } while (text == "dtrun-agent-comes");
        return text;
    }
    void end_owner() {
        if (owner_ <= 0) return;
        ::kill(owner_, SIGKILL);
        ::waitpid(owner_, nullptr, 0);
        owner_ = 0;
    }
    std::string file() const { return read_file(folder_.at("file")).value(); }

    int port = 0;

private:
    TempDir folder_;
    pid_t owner_ = 0, pid_ = 0;
    Fd in_, out_;
};

/// A host that fetches from it; its descriptor is bad where nobody listens.
class Fetcher {
public:
    Fetcher(int port, const std::string& word)
        : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(static_cast<std::uint16_t>(port));
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        is_connected =
            ::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
        if (is_connected) REQUIRE(write_all(socket_.get(), word + "\n").has_value());
    }

    /// \param bytes_max  more are not waited for
    std::string take(std::size_t bytes_max) {
        std::string all, piece(64 << 10, '\0');
        while (all.size() < bytes_max) {
            const ssize_t n = ::recv(socket_.get(), piece.data(),
                                     std::min(piece.size(), bytes_max - all.size()), 0);
            if (n <= 0) break;
            all.append(piece, 0, static_cast<std::size_t>(n));
        }
        return all;
    }
    bool has_ended() {
        char c = 0;
        return ::recv(socket_.get(), &c, 1, 0) <= 0;
    }

    bool is_connected = false;

private:
    Fd socket_;
};

}  // namespace

TEST_CASE("a host passes on what has come while the rest is missing", "[agent]") {
    Receiver host;
    Fetcher early(host.port, "word");
    Fetcher stranger(host.port, "else");
    const std::size_t half = kBytes.size() / 2;
    host.send(kBytes.substr(0, half));
    CHECK(early.take(half) == kBytes.substr(0, half));
    CHECK(stranger.take(1).empty());
    host.send(kBytes.substr(half));
    CHECK(early.take(kBytes.size()) == kBytes.substr(half));
    CHECK(host.line() == "carrier: all");
    CHECK(host.file() == kBytes);
    for (int i = 0; i < 20; ++i)
        CHECK(Fetcher(host.port, "word").take(kBytes.size() + 1) == kBytes);
}

TEST_CASE("who takes nothing holds up nobody, and who passes the agent on ends with the agent",
          "[agent]") {
    Receiver host;
    Fetcher sleeper(host.port, "word");
    host.send(kBytes);
    CHECK(host.line() == "carrier: all");
    CHECK(Fetcher(host.port, "word").take(kBytes.size() + 1) == kBytes);
    host.end_owner();
    for (int i = 0; i < 100 && Fetcher(host.port, "word").is_connected; ++i) ::usleep(100'000);
    CHECK_FALSE(Fetcher(host.port, "word").is_connected);
}

TEST_CASE("what is not the agent is told, and those who took it hear of no end of it as a whole",
          "[agent]") {
    Receiver other(hex(sha256("other")));
    other.send(kBytes);
    CHECK(other.line() == "carrier: failed it was damaged on its way");
    Receiver cut;
    Fetcher behind(cut.port, "word");
    cut.send(kBytes.substr(0, 1000));
    CHECK(behind.take(1000) == kBytes.substr(0, 1000));
    cut.end_input();
    CHECK(cut.line() == "carrier: failed the rest does not come");
    CHECK(behind.has_ended());
}

}  // namespace dtrun
