#include "worker/client/step/server.h"

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "worker/client/connect/frame_socket.h"

#include <unistd.h>

namespace dtrun::embedded {
namespace {

using namespace std::chrono_literals;

/// Rank 0's server of a step, before any other rank has come.
std::unique_ptr<StepServer> server_of(std::uint32_t ranks) {
    static int count = 0;
    const TempDir dir;
    SlurmStep step;
    step.cluster = "servers";
    step.id = std::to_string(::getpid()) + "." + std::to_string(++count);
    step.node = "localhost";
    step.ranks = ranks;
    step.secret_file = dir.write("secret", "0123456789abcdef0123456789abcdef", 0600);
    auto key = StepKey::find(step).value();
    return StepServer::start(step, key).value();
}

}  // namespace

TEST_CASE("a step is not ended for missing ranks when all have come", "[client][step]") {
    const auto server = server_of(1);
    CHECK_FALSE(server->end_if_missing(1s).has_value());
    FrameSocket rank_0(server->take_own_end());
    std::vector<FrameType> said;  // and it stays so
    const Moment until = now() + 300ms;
    while (rank_0.receive(until) == FrameSocket::Got::bytes)
        for (auto frame = rank_0.next(); frame && *frame; frame = rank_0.next())
            said.push_back((*frame)->type);
    CHECK(said == std::vector{FrameType::heartbeat, FrameType::welcome});
    CHECK(now() >= until);  // not closed
}

TEST_CASE("a step is ended once, for the ranks that are missing", "[client][step]") {
    const auto server = server_of(4);
    CHECK(server->end_if_missing(1'500ms) == "ranks 1, 2 and 3 of 4 have not come within 1.5 s");
}

}  // namespace dtrun::embedded
