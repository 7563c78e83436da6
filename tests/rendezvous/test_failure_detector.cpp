#include "base/loop/task_group.h"
#include "rendezvous/links/failure_detector.h"
#include "tests/support/catch.h"
#include "tests/support/virtual_time.h"

#include <chrono>
#include <optional>
#include <vector>

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using Moments = std::vector<milliseconds>;

namespace dtrun {
namespace {

/// A process that does nothing but beat, and what it says at each beat.
struct Process {
    explicit Process(milliseconds timeout = kHeartbeatTimeout)
        : detector(io.get_executor(), timeout), tasks(io.get_executor()), began(time.now()) {
        tasks.spawn(detector.run([this] {
            beats.push_back(passed());
            if (at_beat) at_beat();
            return pace;
        }));
    }
    ~Process() {
        tasks.stop();
        io.restart();
        io.poll();
    }

    milliseconds passed() const {
        return std::chrono::duration_cast<milliseconds>(time.now() - began);
    }
    /// Until this time has passed since the beginning.
    void run_until(milliseconds when) {
        Timer alarm(io, began + when);
        alarm.async_wait([](boost::system::error_code) {});
        time.run(
            io, [&] { return passed() >= when; }, began + 1h);
        io.poll();
    }

    VirtualTime time;
    asio::io_context io;
    FailureDetector detector;
    TaskGroup tasks;
    Deadline began;
    Moments beats{};
    Pace pace = Pace::calm;
    std::function<void()> at_beat{};
};

}  // namespace

TEST_CASE("a process beats every 1.25 s while all is calm, and every half while something goes on",
          "[liveness]") {
    Process process;
    process.run_until(3'100ms);
    CHECK(process.beats == Moments{500ms, 1'750ms, 3'000ms});
    process.pace = Pace::alert;
    process.run_until(5'300ms);
    CHECK(process.beats == Moments{500ms, 1'750ms, 3'000ms, 4'250ms, 4'750ms, 5'250ms});
    process.pace = Pace::calm;
    process.run_until(5'900ms);
    process.detector.hasten(Pace::alert);  // the next one would have come at 7,000
    process.detector.hasten(Pace::alert);
    process.run_until(7'700ms);
    CHECK(Moments(process.beats.begin() + 6, process.beats.end()) ==
          Moments{5'750ms, 6'400ms, 7'650ms});
}

TEST_CASE(
    "a process whose peers are all on its machine beats each ten seconds until something goes on",
    "[liveness]") {
    Process process;
    process.pace = Pace::still;
    process.run_until(10'600ms);
    CHECK(process.beats == Moments{500ms, 10'500ms});
    process.detector.hasten(Pace::calm);
    process.run_until(11'500ms);
    process.detector.hasten(Pace::calm);  // later than what was asked for is no haste
    process.run_until(21'800ms);
    process.detector.follow();  // half an interval later than the head's beat, its own would come
    process.run_until(36'700ms);
    CHECK(Moments(process.beats.begin() + 2, process.beats.end()) == Moments{11'850ms, 21'800ms});
}

TEST_CASE("ten seconds in which nothing had to be done are no pause", "[liveness]") {
    Process process;
    process.pace = Pace::still;
    process.run_until(10'400ms);
    process.time.stand_still(600ms);  // the beat at 10,500 is late
    CHECK_FALSE(process.detector.pause());
    process.run_until(11'100ms);
    CHECK(process.detector.lateness() > 0ms);
    CHECK_FALSE(process.detector.pause());
}

TEST_CASE("a short timeout leaves no time for long intervals", "[liveness]") {
    Process process(2'000ms);
    process.run_until(1'600ms);
    CHECK(process.beats == Moments{500ms, 1'000ms, 1'500ms});
}

TEST_CASE("who follows somebody beats with him, and alone once he does not", "[liveness]") {
    Process process;
    for (const milliseconds when : {100ms, 1'350ms, 2'600ms, 3'850ms}) {
        process.run_until(when);
        process.detector.follow();
    }
    CHECK(process.beats == Moments{100ms, 1'350ms, 2'600ms, 3'850ms});
    process.pace = Pace::alert;  // since he is late
    process.run_until(6'800ms);
    CHECK(Moments(process.beats.begin() + 4, process.beats.end()) ==
          Moments{5'725ms, 6'225ms, 6'725ms});
    process.tasks.stop();
    process.run_until(6'900ms);
    process.detector.follow();
    process.run_until(9'000ms);
    CHECK(process.beats.size() == 7);
}

TEST_CASE("a process that did not run does not blame others for its silence", "[liveness]") {
    Process process(1'000ms);
    FailureDetector& detector = process.detector;
    CHECK_FALSE(detector.lost(process.began).has_value());
    CHECK_FALSE(detector.lost(process.began - 9s).has_value());  // before it was born
    std::optional<milliseconds> silence;
    process.at_beat = [&] { silence = detector.lost(process.began); };
    process.run_until(1'100ms);
    CHECK_FALSE(silence.has_value());  // an answer may come a moment after the beat
    process.run_until(1'600ms);
    CHECK(silence == 1'500ms);
    CHECK_FALSE(detector.pause().has_value());
    CHECK_FALSE(
        detector.lost(process.began, 2).has_value());  // its packets may still be on their way
    // Not scheduled for more than the timeout: the peer's silence begins anew.
    process.time.stand_still(1'200ms);
    CHECK(detector.pause().has_value());
    CHECK(detector.awake_since() == process.time.now());
    process.run_until(2'900ms);
    CHECK(process.beats == Moments{500ms, 1'000ms, 1'500ms, 2'800ms});
    CHECK_FALSE(silence.has_value());
    CHECK(std::chrono::duration_cast<milliseconds>(detector.lateness()) == 800ms);
    CHECK(detector.pause() >= 1'299ms);
    CHECK(describe_silence(3'040ms) == "last heard 3.0 s ago");
    CHECK(describe_pause(std::nullopt) == "");
    CHECK(describe_pause(12'040ms) ==
          "; dtrun itself had not run for 12.0 s: its machine is too busy, or it was stopped");
}

}  // namespace dtrun
