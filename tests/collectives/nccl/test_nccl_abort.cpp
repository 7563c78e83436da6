#include "collectives/backends/nccl/settings.h"
#include "collectives/backends/shared_library.h"
#include "tests/collectives/nccl/fake_fixture.h"

#include <atomic>
#include <map>
#include <thread>

namespace dtrun::collectives::nccl {
namespace {

using std::chrono::milliseconds;

}  // namespace

TEST_CASE("calls inside NCCL can be interrupted whatever its environment says", "[nccl]") {
    const auto settings = [](std::map<std::string, std::string> variables, bool can_split) {
        return settings_from(
            [&](const char* name) { return variables.contains(name) ? variables[name] : ""; },
            can_split);
    };
    CHECK(settings({}, true)->blocking_operations);
    CHECK_FALSE(settings({{"NCCL_COMM_SPLIT_SHARE_RESOURCES", "0"}}, true)->blocking_operations);
    CHECK(settings({{"NCCL_COMM_SPLIT_SHARE_RESOURCES", "1"}}, true)->blocking_operations);
    CHECK_FALSE(settings({{"NCCL_COMM_BLOCKING", "0"}}, true)->blocking_operations);
    CHECK(settings({{"NCCL_COMM_BLOCKING", "1"}}, true)->blocking_operations);
    CHECK(settings({{"NCCL_COMM_BLOCKING", "1"}}, false).error().message ==
          "with NCCL_COMM_BLOCKING=1 and an NCCL older than 2.18 no call of NCCL could be "
          "interrupted when a rank is lost: unset it");
    const auto neither =
        settings({{"NCCL_COMM_BLOCKING", "1"}, {"NCCL_COMM_SPLIT_SHARE_RESOURCES", "0"}}, true);
    REQUIRE_FALSE(neither.has_value());
    CHECK(neither.error().message.find("NCCL_COMM_SPLIT_SHARE_RESOURCES=0") != std::string::npos);
}

TEST_CASE("abort() ends a call inside NCCL also where split communicators share nothing",
          "[nccl]") {
    const Library library = fake();
    const Variable share("NCCL_COMM_SPLIT_SHARE_RESOURCES", "0");
    const Variable block("FAKE_NCCL_BLOCK", "1:2");
    const auto settings = settings_from(environment_text, true);
    REQUIRE(settings.has_value());
    const auto body = [&](Group& group, const GroupSpec&) -> Result<void> {
        const Numbers numbers(library, {1});
        std::atomic<int> done{0};
        Result<void> result;
        std::thread operations([&] {
            while (result) {
                result = sum(group, numbers);
                ++done;
            }
        });
        while (done == 0) std::this_thread::yield();
        group.abort();
        operations.join();
        return result;
    };
    const auto results = on_fake(2, body, library, *settings);
    for (const auto& result : results) REQUIRE_FALSE(result.has_value());
    CHECK(results[1].error().code == Errc::cancelled);
}

TEST_CASE("an abort that hangs inside NCCL does not hold up the rank for ever", "[nccl]") {
    const Library library = fake();
    const Variable die("FAKE_NCCL_DIE", "1:3");
    Settings settings;
    settings.abort_within = milliseconds(100);
    const auto body = [&](Group& group, const GroupSpec&) -> Result<void> {
        const Numbers numbers(library, {1});
        Result<void> ok;
        for (int i = 0; i < 10 && ok; ++i) ok = sum(group, numbers);
        return ok;
    };
    std::vector<Result<void>> results;
    {
        const Variable hang("FAKE_NCCL_HANG_ABORT", "0:1");
        results = on_fake(2, body, library, settings);
    }
    REQUIRE_FALSE(results[0].has_value());
    CHECK(results[0].error().message.ends_with(
        " (and NCCL's abort has not ended within 0.1 s: end the process)"));
    std::this_thread::sleep_for(milliseconds(50));  // the one that was left to itself ends now
}

}  // namespace dtrun::collectives::nccl
