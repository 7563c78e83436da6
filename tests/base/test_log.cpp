#include "base/fd.h"
#include "base/log.h"
#include "tests/support/catch.h"

#include <fcntl.h>
#include <unistd.h>
#include <string>

namespace dtrun {
namespace {

constexpr int kPipeBytes = 16 << 10;

/// Standard error is a pipe for as long as this lives.
class ErrorPipe {
public:
    ErrorPipe() {
        ::fcntl(pipe_.read.get(), F_SETFL, O_NONBLOCK);
        REQUIRE(::fcntl(pipe_.write.get(), F_SETPIPE_SZ, kPipeBytes) == kPipeBytes);
        ::dup2(pipe_.write.get(), STDERR_FILENO);
    }
    ~ErrorPipe() { ::dup2(before_.get(), STDERR_FILENO); }

    std::string read() const {
        std::string text(1u << 20, '\0');
        const ssize_t n = ::read(pipe_.read.get(), text.data(), text.size());
        text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
        return text;
    }

private:
    Fd before_{::dup(STDERR_FILENO)};
    Pipe pipe_ = make_pipe().value();
};

}  // namespace

TEST_CASE("lines that nobody reads are dropped and counted, and hold nobody up", "[log]") {
    const ErrorPipe error;
    const std::string text(1'000, 'x');
    for (int i = 0; i < 100; ++i) log::error("{}", text);
    const std::string line = "dtrun: " + text + "\n";
    const std::string read = error.read();
    CHECK(read.starts_with(line + line));
    const std::size_t lines = read.size() / line.size();
    CHECK(read.size() == lines * line.size());
    log::error("read again");
    CHECK(error.read() == fmt::format("dtrun: nobody read {} lines, which are not here\n"
                                      "dtrun: read again\n",
                                      100 - lines));
    log::error("all of them");
    CHECK(error.read() == "dtrun: all of them\n");
}

TEST_CASE("a line that is longer than a pipe holds is cut off where its reader has stopped",
          "[log]") {
    const ErrorPipe error;
    log::error("{}", std::string(2 * kPipeBytes, 'x'));
    CHECK(error.read().size() == kPipeBytes);
}

TEST_CASE("what others say neither steers a terminal nor begins a line of ours", "[log]") {
    const ErrorPipe error;
    log::error("what others have not read is told first");
    (void)error.read();
    log::error("{}",
               "\x1b[31mred\r\x7f\xc2\x9b"
               "2J \x9b µ\ndtrun: all is well\n  deeper");
    CHECK(error.read() ==
          "dtrun: \\x1b[31mred\\x0d\\x7f\\xc2\\x9b2J \\x9b µ\n  dtrun: all is well\n  deeper\n");
}

}  // namespace dtrun
