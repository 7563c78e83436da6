#include "base/loop/task_group.h"
#include "rendezvous/job/tree.h"
#include "rendezvous/links/failure_detector.h"
#include "rendezvous/wire/relayed.h"
#include "tests/support/catch.h"
#include "tests/support/loop.h"

#include <cmath>
#include <map>
#include <thread>

namespace dtrun {

TEST_CASE("up to the threshold every host connects to the head, above it few do", "[tree]") {
    const Tree flat(256, 256);
    for (const HostId host : all_hosts(256)) CHECK_FALSE(flat.parent(host));
    for (const std::uint32_t hosts : {3u, 5u, 6u, 100u, 257u, 1'000u, 4'097u, 65'536u}) {
        CAPTURE(hosts);
        const Tree tree(hosts, 2);
        std::map<HostId, std::uint32_t> behind;
        std::uint32_t direct = 0;
        for (const HostId host : all_hosts(hosts)) {
            const auto parent = tree.parent(host);
            CHECK(parent.has_value() != tree.is_relay(host));
            if (!parent) {
                ++direct;
                continue;
            }
            REQUIRE(*parent < host);  // relays are started first
            CHECK(tree.is_relay(*parent));
            ++behind[*parent];
        }
        const auto limit = static_cast<std::uint32_t>(std::ceil(std::sqrt(hosts)));
        CHECK(direct <= limit);
        for (const auto& [relay, count] : behind) CHECK(count <= limit);
    }
}

TEST_CASE("a relayed frame is whole, and not relayed twice", "[tree]") {
    const Bytes payload = encode_relayed(HostId{7}, FrameType::done, "abc");
    const auto view = decode_relayed(payload);
    REQUIRE(view.has_value());
    CHECK(view->host == HostId{7});
    CHECK(view->frame.type == FrameType::done);
    CHECK(view->frame.payload == "abc");
    CHECK_FALSE(decode_relayed(payload.substr(0, payload.size() - 1)).has_value());
    CHECK_FALSE(decode_relayed(payload + "x").has_value());
    CHECK_FALSE(decode_relayed("abc").has_value());
    CHECK_FALSE(decode_relayed(encode_relayed(HostId{7}, FrameType::relayed, payload)).has_value());
}

TEST_CASE("a process that did not run does not blame others for its silence", "[tree]") {
    asio::io_context io;
    FailureDetector detector(io.get_executor(), std::chrono::milliseconds(1'000));
    const Deadline now = Clock::now();
    CHECK_FALSE(detector.lost(now).has_value());
    CHECK_FALSE(detector.lost(now - std::chrono::seconds(9)).has_value());  // before it was born
    TaskGroup tasks(io.get_executor());
    int beats = 0;
    std::optional<std::chrono::milliseconds> silence;
    tasks.spawn(detector.run([&] {
        ++beats;
        silence = detector.lost(now);
    }));
    io.run_for(std::chrono::milliseconds(1'300));
    CHECK(beats == 2);
    CHECK(silence.has_value());
    CHECK_FALSE(detector.pause().has_value());
    CHECK_FALSE(detector.lost(now, 2).has_value());  // its packets may still be on their way
    // Not scheduled for more than the timeout: the peer's silence begins anew.
    std::this_thread::sleep_for(std::chrono::milliseconds(1'200));
    CHECK(detector.pause().has_value());
    io.restart();
    io.run_for(std::chrono::milliseconds(100));
    CHECK(beats == 3);
    CHECK_FALSE(silence.has_value());
    CHECK(detector.pause() >= std::chrono::milliseconds(1'200));
    tasks.stop();
    io.restart();
    io.run_for(std::chrono::milliseconds(100));
    CHECK(describe_silence(std::chrono::milliseconds(3'040)) == "last heard 3.0 s ago");
    CHECK(describe_pause(std::nullopt) == "");
    CHECK(describe_pause(std::chrono::milliseconds(12'040)) ==
          "; dtrun itself had not run for 12.0 s: its machine is too busy, or it was stopped");
}

}  // namespace dtrun
