#include "launcher/output/stdin_pump.h"

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <fcntl.h>
#include <unistd.h>

using namespace dtrun;
using namespace dtrun::output;

namespace {

/// This process has another standard input while this lives.
class OtherInput {
public:
    explicit OtherInput(const std::string& path) : kept_(::dup(STDIN_FILENO)) {
        const Fd other(::open(path.c_str(), O_RDONLY));
        REQUIRE(other);
        REQUIRE(::dup2(other.get(), STDIN_FILENO) == STDIN_FILENO);
    }
    ~OtherInput() { ::dup2(kept_.get(), STDIN_FILENO); }
    OtherInput(const OtherInput&) = delete;
    OtherInput& operator=(const OtherInput&) = delete;

private:
    Fd kept_;
};

/// What ranks get until the end of their input.
std::string all_input() {
    asio::io_context io;
    std::string got;
    bool ended = false;
    StdinPump pump(io.get_executor(), {HostId{0}}, [&](HostId, std::string_view bytes) {
        got += bytes;
        ended = bytes.empty();
    });
    pump.start();
    io.run_for(std::chrono::seconds(10));
    CHECK(ended);
    pump.stop();
    return got;
}

}  // namespace

TEST_CASE("ranks get a file from where the caller has got to, and the caller goes on behind them",
          "[stdin]") {
    const TempDir dir;
    const OtherInput input(dir.write("input", "header\nrow\n"));
    REQUIRE(::lseek(STDIN_FILENO, 7, SEEK_SET) == 7);
    CHECK(all_input() == "row\n");
    CHECK(::lseek(STDIN_FILENO, 0, SEEK_CUR) == 11);
    CHECK(all_input().empty());
}

TEST_CASE("a directory as standard input ends at once", "[stdin]") {
    const TempDir dir;
    const OtherInput input(dir.path());
    CHECK(all_input().empty());
}
