#pragma once

#include "base/result.h"
#include "collectives/group.h"
#include "tests/collectives/support/memory_store.h"

#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace dtrun::collectives {

/// What a rank that is a thread of this process would be told to connect.
inline GroupSpec thread_spec(std::uint32_t rank, std::uint32_t size, KeyStore& store,
                             std::string prefix = "test/") {
    GroupSpec spec;
    spec.rank = rank;
    spec.size = size;
    spec.members.resize(size);
    std::iota(spec.members.begin(), spec.members.end(), 0u);
    spec.topology = Topology::apart(rank, size);
    spec.store = &store;
    spec.prefix = std::move(prefix);
    spec.timeout = std::chrono::seconds(30);
    spec.address = "127.0.0.1";
    spec.local_rank = rank;
    return spec;
}

/// Runs `body(rank)` in `size` threads; their results by rank, once all have ended.
inline std::vector<Result<void>> run_ranks(
    std::uint32_t size, const std::function<Result<void>(std::uint32_t rank)>& body) {
    std::vector<Result<void>> results(size);
    std::vector<std::thread> threads;
    threads.reserve(size);
    for (std::uint32_t rank = 0; rank < size; ++rank)
        threads.emplace_back([&, rank] { results[rank] = body(rank); });
    for (std::thread& thread : threads) thread.join();
    return results;
}

/// The same with a store that they share.
inline std::vector<Result<void>> run_ranks(
    std::uint32_t size, const std::function<Result<void>(const GroupSpec& spec)>& body) {
    MemoryStore store;
    return run_ranks(size, std::function([&](std::uint32_t rank) -> Result<void> {
                         return body(thread_spec(rank, size, store));
                     }));
}

/// The same with a group, which `connect` makes.
inline std::vector<Result<void>> run_ranks(
    std::uint32_t size,
    const std::function<Result<std::unique_ptr<Group>>(const GroupSpec& spec)>& connect,
    const std::function<Result<void>(Group& group, const GroupSpec& spec)>& body) {
    return run_ranks(size, std::function([&](const GroupSpec& spec) -> Result<void> {
                         auto group = connect(spec);
                         if (!group) return std::unexpected(group.error());
                         return body(**group, spec);
                     }));
}

/// "rank 1: ...; rank 3: ...", or "" if all went well: `CHECK(failures(results) == "")`.
inline std::string failures(const std::vector<Result<void>>& results) {
    std::string text;
    for (std::size_t rank = 0; rank < results.size(); ++rank)
        if (!results[rank])
            text += fmt::format("{}rank {}: {}", text.empty() ? "" : "; ", rank,
                                results[rank].error().message);
    return text;
}

}  // namespace dtrun::collectives
