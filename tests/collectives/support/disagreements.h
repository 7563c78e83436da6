#pragma once

#include "collectives/group.h"
#include "tests/collectives/support/thread_ranks.h"
#include "tests/support/catch.h"

#include <chrono>
#include <functional>
#include <latch>
#include <thread>
#include <vector>

namespace dtrun::collectives {

/// Two ranks that call different things: both have to wait until abort(), and nothing may be overwritten.
/// \param connect  makes their groups anew for each disagreement; they live as long as what it returns
template <class Connect>
void check_disagreements(Connect connect) {
    using Call = std::function<Result<void>(Group&, std::uint32_t rank, std::vector<float>&)>;
    const std::pair<const char*, Call> disagreements[] = {
        {"counts",
         [](Group& group, std::uint32_t rank, std::vector<float>& data) {
             return group.run(op::allreduce(data.data(), data.data(), rank == 0 ? 10 : 100'000,
                                            DType::f32, Reduce::sum));
         }},
        {"operations",
         [](Group& group, std::uint32_t rank, std::vector<float>& data) {
             return rank == 0 ? group.run(op::broadcast(data.data(), 400, 1))
                              : group.run(op::allreduce(data.data(), data.data(), 100, DType::f32,
                                                        Reduce::sum));
         }},
        {"what was announced",
         [](Group& group, std::uint32_t rank, std::vector<float>& data) {
             group.expect(rank);
             return group.run(
                 op::allreduce(data.data(), data.data(), 100, DType::f32, Reduce::sum));
         }},
    };
    for (const auto& [what, call] : disagreements) {
        MemoryStore store;
        auto connected = connect(store);
        const auto group = [&](std::uint32_t rank) -> Group& { return connected.group(rank); };
        std::latch ended(2);
        const auto results = run_ranks(
            3, std::function([&](std::uint32_t rank) -> Result<void> {
                if (rank == 2) {  // who watches, and grows impatient
                    std::this_thread::sleep_for(std::chrono::milliseconds(50));
                    const bool waited = !ended.try_wait();
                    group(0).abort();
                    group(1).abort();
                    return waited ? Result<void>() : fail(Errc::internal, "they did not wait");
                }
                std::vector<float> data(100'001, 7.0F);
                const auto done = call(group(rank), rank, data);
                ended.count_down();
                if (data.back() != 7.0F) return fail(Errc::internal, "overwritten");
                return done;
            }));
        INFO(what);
        CHECK(failures({results[2]}) == "");
        for (const std::uint32_t rank : {0u, 1u}) {
            REQUIRE_FALSE(results[rank].has_value());
            // The other one's end may have reached it first.
            const Errc code = results[rank].error().code;
            CHECK((code == Errc::cancelled || code == Errc::closed));
        }
    }
}

}  // namespace dtrun::collectives
