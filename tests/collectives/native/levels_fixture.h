#pragma once

#include "collectives/backends/native/group.h"
#include "tests/collectives/support/thread_ranks.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace dtrun::collectives {

/// Ranks that are threads, spread over hosts of which only the numbers are told: host_of[rank].
using Layout = std::vector<std::uint32_t>;

inline GroupSpec layout_spec(std::uint32_t rank, const Layout& layout, KeyStore& store) {
    GroupSpec spec = thread_spec(rank, static_cast<std::uint32_t>(layout.size()), store);
    spec.topology = Topology(rank, layout);
    return spec;
}

/// A group of the backend `dtrun`, with the memory that it shares.
struct LevelsRank {
    HostTopology host_topology;
    std::unique_ptr<Group> group;
};

inline Result<LevelsRank> connect_levels(const GroupSpec& spec, Locality locality = {}) {
    LevelsRank made;
    auto group = native::connect(spec);
    if (!group) return std::unexpected(group.error());
    made.group = std::move(*group);
    auto host_topology = find_host_topology(spec, *made.group, locality);
    if (!host_topology) return std::unexpected(host_topology.error());
    made.host_topology = std::move(*host_topology);
    if (auto done = made.group->set_topology(made.host_topology); !done)
        return std::unexpected(done.error());
    return made;
}

/// \param locality  by rank; empty: nobody is bound
inline std::vector<LevelsRank> connect_all(const Layout& layout, KeyStore& store,
                                           std::vector<Result<void>>& results,
                                           const std::vector<Locality>& locality = {}) {
    std::vector<LevelsRank> ranks(layout.size());
    results = run_ranks(static_cast<std::uint32_t>(layout.size()),
                        std::function([&](std::uint32_t rank) -> Result<void> {
                            auto made =
                                connect_levels(layout_spec(rank, layout, store),
                                               locality.empty() ? Locality{} : locality[rank]);
                            if (!made) return std::unexpected(made.error());
                            ranks[rank] = std::move(*made);
                            return {};
                        }));
    return ranks;
}

using Numbers = std::vector<std::int32_t>;

/// What a rank gives: other numbers than any other rank.
inline Numbers numbers_of(std::uint32_t rank, std::size_t count) {
    Numbers numbers(count);
    for (std::size_t i = 0; i < count; ++i)
        numbers[i] = static_cast<std::int32_t>(i % 1009 * (rank + 1) + rank);
    return numbers;
}

/// Calls that go through levels, each once, compared with what should come out.
inline Result<void> check_calls(Group& group, std::uint32_t rank, std::uint32_t size,
                                std::size_t count) {
    const auto wrong = [](const char* what) { return fail(Errc::internal, "{} is wrong", what); };
    const Numbers given = numbers_of(rank, count);
    Numbers sum(count), all, out = given;
    for (std::uint32_t other = 0; other < size; ++other) {
        const Numbers theirs = numbers_of(other, count);
        all.insert(all.end(), theirs.begin(), theirs.end());
        for (std::size_t i = 0; i < count; ++i) sum[i] += theirs[i];
    }

    auto done = group.run(op::allreduce(out.data(), out.data(), count, DType::i32, Reduce::sum));
    if (!done) return done;
    if (out != sum) return wrong("an allreduce in place");

    out = given;
    const std::vector<Array> arrays{
        {out.data(), 7}, {out.data() + 7, 0}, {out.data() + 7, count - 7}};
    if (done = group.allreduce_many(arrays, DType::i32, Reduce::sum); !done) return done;
    if (out != sum) return wrong("an allreduce of many arrays");

    const std::size_t own = count / size;
    out.assign(own, -1);
    done = group.run(op::reduce_scatter(given.data(), out.data(), own, DType::i32, Reduce::sum));
    if (!done) return done;
    if (!std::equal(out.begin(), out.end(), sum.begin() + static_cast<std::ptrdiff_t>(own * rank)))
        return wrong("a reduce-scatter");

    out.assign(size * count, -1);
    done = group.run(op::allgather(given.data(), out.data(), count * sizeof(std::int32_t)));
    if (!done) return done;
    return out == all ? Result<void>() : wrong("an allgather");
}

}  // namespace dtrun::collectives
