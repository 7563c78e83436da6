#pragma once
// Ranks of a test that dtrun has started, over a plug-in: what is tested of each library that has communicators of its own.

#include "collectives/backends/plugin_import.h"
#include "collectives/codec/reduce.h"
#include "collectives/communicator/worker_store.h"
#include "tests/collectives/support/group_checks.h"

#include <dtrun.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace dtrun::collectives {

inline Backend load(const char* plugin) {
    auto backend = load_plugin(plugin);
    if (!backend) throw std::runtime_error(backend.error().message);
    return std::move(*backend);
}

/// What the launcher has made of this process, and a plug-in as the library would load it.
class Rank {
public:
    /// \param large_bytes  of the large operations of few()
    Rank(const char* plugin, std::size_t large_bytes)
        : backend_(load(plugin)), large_bytes_(large_bytes) {
        if (dtrun_init(nullptr, &worker_) != DTRUN_OK) throw std::runtime_error(dtrun_error_text());
        store_ = std::make_unique<WorkerStore>(worker_);
        rank_ = dtrun_rank(worker_);
        size_ = dtrun_world_size(worker_);
    }

    std::uint32_t rank() const { return rank_; }
    std::uint32_t size() const { return size_; }
    const Backend& backend() const { return backend_; }
    dtrun_worker* worker() const { return worker_; }

    /// Of the ranks that `chosen` has, which include this one.
    GroupSpec spec(const std::string& prefix, std::vector<std::uint32_t> chosen) const {
        GroupSpec spec;
        spec.size = static_cast<std::uint32_t>(chosen.size());
        for (std::uint32_t i = 0; i < spec.size; ++i)
            if (chosen[i] == rank_) spec.rank = i;
        spec.members = std::move(chosen);
        spec.topology = Topology::apart(spec.rank, spec.size);
        spec.store = store_.get();
        spec.prefix = prefix + "/";
        spec.address = "127.0.0.1";
        spec.timeout = std::chrono::seconds(20);
        return spec;
    }
    GroupSpec spec_of_all(const std::string& prefix) const {
        std::vector<std::uint32_t> all(size_);
        std::iota(all.begin(), all.end(), 0u);
        return spec(prefix, std::move(all));
    }
    Result<std::unique_ptr<Group>> connect(const GroupSpec& spec) const {
        return backend_.connect(spec);
    }

    /// Where it is not the operations that are tested, and where ranks share processors.
    CheckOptions few() const {
        CheckOptions options;
        options.types = {DType::f32, DType::bf16};
        options.reduces = {Reduce::average};
        options.counts = {1027};
        options.large_bytes = large_bytes_;
        return options;
    }

private:
    Backend backend_;
    std::size_t large_bytes_;
    dtrun_worker* worker_ = nullptr;
    std::unique_ptr<WorkerStore> store_;
    std::uint32_t rank_ = 0;
    std::uint32_t size_ = 0;
};

inline void show(const Group& group) {
    const GroupFacts facts = group.facts();
    std::printf("version: %s\ntransport: %s\n", facts.version.c_str(), facts.transport.c_str());
    for (const auto& [name, value] : facts.details)
        std::printf("%s: %s\n", name.c_str(), value.c_str());
}

inline Result<void> checked(const Rank& rank, const GroupSpec& spec, const CheckOptions& options) {
    const auto group = rank.connect(spec);
    if (!group) return std::unexpected(group.error());
    return check_group(**group, spec, options);
}

/// Every operation; and in groups of every other rank, and of all in reverse order.
inline Result<void> check(const Rank& rank, const CheckOptions& options) {
    const GroupSpec all = rank.spec_of_all("all");
    const auto group = rank.connect(all);
    if (!group) return std::unexpected(group.error());
    show(**group);
    if (auto ok = check_group(**group, all, options); !ok) return ok;
    std::vector<std::uint32_t> reverse(all.members.rbegin(), all.members.rend());
    if (auto ok = checked(rank, rank.spec("reverse", reverse), rank.few()); !ok) return ok;
    std::vector<std::uint32_t> half;
    for (std::uint32_t one = rank.rank() % 2; one < rank.size(); one += 2) half.push_back(one);
    return checked(rank, rank.spec("half" + std::to_string(rank.rank() % 2), half), rank.few());
}

/// Reductions of integers of all sizes, which wrap around. MPI libraries have their own ideas of that.
inline Result<void> wraps(const Rank& rank) {
    constexpr std::size_t kCount = 1'027;
    const auto group = rank.connect(rank.spec_of_all("all"));
    if (!group) return std::unexpected(group.error());
    const auto data_of = [](std::uint32_t of) {
        std::vector<std::uint64_t> words(kCount);
        std::mt19937_64 random(of);
        for (std::uint64_t& word : words) word = random();
        return words;
    };
    for (const DType type : {DType::i8, DType::u8, DType::i32, DType::i64})
        for (const Reduce by : {Reduce::sum, Reduce::product, Reduce::min, Reduce::max}) {
            auto expected = data_of(0);
            for (std::uint32_t other = 1; other < rank.size(); ++other)
                reduce_into(expected.data(), expected.data(), data_of(other).data(), kCount, type,
                            by);
            auto words = data_of(rank.rank());
            auto done = (*group)->run(op::allreduce(words.data(), words.data(), kCount, type, by));
            if (!done) return done;
            if (std::memcmp(words.data(), expected.data(), kCount * bytes_of(type)) != 0)
                return fail(Errc::internal, "{} {} is another", name_of(type), name_of(by));
        }
    return {};
}

/// Two groups of the same ranks, used by two threads.
inline Result<void> threads(const Rank& rank) {
    const GroupSpec specs[] = {rank.spec_of_all("one"), rank.spec_of_all("other")};
    std::unique_ptr<Group> groups[2];
    for (int i = 0; i < 2; ++i) {
        auto made = rank.connect(specs[i]);
        if (!made) return std::unexpected(made.error());
        groups[i] = std::move(*made);
    }
    Result<void> results[2];
    std::thread other([&] { results[1] = check_group(*groups[1], specs[1], rank.few()); });
    results[0] = check_group(*groups[0], specs[0], rank.few());
    other.join();
    return results[0] ? results[1] : results[0];
}

inline Result<void> fails(const Rank& rank, const GroupSpec& spec) {
    const auto made = rank.connect(spec);
    if (made) return fail(Errc::internal, "that has made a group");
    std::printf("said: %s\n", made.error().message.c_str());
    return {};
}

/// \param is_wrong  this rank is told of an interface that there is not, at first
inline Result<void> interfaces(const Rank& rank, bool is_wrong) {
    GroupSpec wrong = rank.spec_of_all("wrong");
    if (is_wrong) wrong.interfaces = {"none0"};
    if (auto ok = fails(rank, wrong); !ok) return ok;
    GroupSpec right = rank.spec_of_all("right");
    right.interfaces = {"none0", "127.0.0.1"};
    const auto group = rank.connect(right);
    if (!group) return std::unexpected(group.error());
    show(**group);
    return check_group(**group, right, rank.few());
}

/// Says how it went. \return the exit code
inline int finish(const Rank& rank, const Result<void>& result) {
    std::puts(result ? "ok" : result.error().message.c_str());
    std::fflush(stdout);
    dtrun_finalize(rank.worker(), nullptr);
    return result ? 0 : 1;
}

}  // namespace dtrun::collectives
