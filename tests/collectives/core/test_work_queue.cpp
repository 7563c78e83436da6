#include "collectives/work_queue.h"
#include "tests/support/catch.h"

#include <stdexcept>
#include <vector>

using dtrun::collectives::WorkQueue;

TEST_CASE("what goes on behind and what is done at once keep their order", "[collectives]") {
    std::vector<int> done;  // only one at a time writes
    {
        WorkQueue queue;
        const auto do_now = [&](int i) {
            const auto turn = queue.wait_for_turn();
            done.push_back(i);
        };
        do_now(0);
        for (int i = 1; i < 50; i += 2) {
            queue.start([&done, i] { done.push_back(i); });
            do_now(i + 1);
        }
        queue.start([&] { done.push_back(51); });
    }  // waits
    REQUIRE(done.size() == 52);
    for (int i = 0; i < 52; ++i) CHECK(done[static_cast<std::size_t>(i)] == i);
}

TEST_CASE("threads that call at once take turns, and one that throws lets the next in",
          "[collectives]") {
    WorkQueue queue;
    int inside = 0;
    int most = 0;
    int thrown = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i)
        threads.emplace_back([&] {
            for (int k = 0; k < 100; ++k) {
                try {
                    const auto turn = queue.wait_for_turn();
                    most = std::max(most, ++inside);
                    --inside;
                    if (k % 10 == 0) throw std::runtime_error("no");
                } catch (const std::runtime_error&) {
                    const auto turn = queue.wait_for_turn();
                    ++thrown;
                }
            }
        });
    for (std::thread& thread : threads) thread.join();
    CHECK(most == 1);
    CHECK(thrown == 80);
}
