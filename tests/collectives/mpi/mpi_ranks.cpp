/// A rank of mpi_backend_test.py: mpi_ranks TEST PLUGIN [PLUGIN]
///
/// Prints "ok" and more if all went well, else what did not, and ends with 1.
#include "collectives/backends/plugin_import.h"
#include "collectives/codec/reduce.h"
#include "collectives/communicator/worker_store.h"
#include "tests/collectives/support/group_checks.h"

#include <dtrun.h>

#include <dlfcn.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace dtrun;
using namespace dtrun::collectives;

namespace {

using Made = Result<std::unique_ptr<Group>>;

/// What the launcher has made of this process, and a plug-in as the library would load it.
class Rank {
public:
    explicit Rank(const char* plugin) {
        auto backend = load_plugin(plugin);
        if (!backend) throw std::runtime_error(backend.error().message);
        backend_ = std::move(*backend);
        handle_ = ::dlopen(plugin, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
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
        spec.prefix = prefix;
        spec.timeout = std::chrono::seconds(20);
        return spec;
    }
    GroupSpec spec_of_all(const std::string& prefix) const {
        std::vector<std::uint32_t> all(size_);
        std::iota(all.begin(), all.end(), 0u);
        return spec(prefix, std::move(all));
    }
    Made connect(const GroupSpec& spec) const { return backend_.connect(spec); }

    /// A function of the plug-in's MPI.
    template <class Function>
    Function function(const char* name) const {
        return reinterpret_cast<Function>(::dlsym(handle_, name));
    }

private:
    void* handle_ = nullptr;
    Backend backend_;
    dtrun_worker* worker_ = nullptr;
    std::unique_ptr<WorkerStore> store_;
    std::uint32_t rank_ = 0;
    std::uint32_t size_ = 0;
};

void show(const Group& group) {
    const GroupFacts facts = group.facts();
    std::printf("version: %s\ntransport: %s\n", facts.version.c_str(), facts.transport.c_str());
    for (const auto& [name, value] : facts.details)
        std::printf("%s: %s\n", name.c_str(), value.c_str());
}

Result<void> checked(const Rank& rank, const GroupSpec& spec, const CheckOptions& options) {
    const auto group = rank.connect(spec);
    if (!group) return std::unexpected(group.error());
    return check_group(**group, spec, options);
}

/// Where it is not the operations that are tested: MPICH's ranks need milliseconds for each of them
/// when they share a processor.
CheckOptions few() {
    CheckOptions options;
    options.types = {DType::f32, DType::bf16};
    options.reduces = {Reduce::average};
    options.counts = {1027};
    options.large_bytes = 0;
    return options;
}

/// For a plug-in that takes 3 KiB for more than MPI can count.
CheckOptions beyond_counts() {
    CheckOptions options = few();
    options.large_bytes = 20'012;
    options.thorough = true;
    return options;
}

/// Every operation; and in groups of every other rank, and of all in reverse order.
Result<void> check(const Rank& rank, const CheckOptions& options) {
    const GroupSpec all = rank.spec_of_all("all");
    const auto group = rank.connect(all);
    if (!group) return std::unexpected(group.error());
    show(**group);
    if (auto ok = check_group(**group, all, options); !ok) return ok;
    std::vector<std::uint32_t> reverse(all.members.rbegin(), all.members.rend());
    if (auto ok = checked(rank, rank.spec("reverse", reverse), few()); !ok) return ok;
    std::vector<std::uint32_t> half;
    for (std::uint32_t one = rank.rank() % 2; one < rank.size(); one += 2) half.push_back(one);
    return checked(rank, rank.spec("half" + std::to_string(rank.rank() % 2), half), few());
}

/// Reductions of integers of all sizes, which wrap around. MPI libraries have their own ideas of that.
Result<void> wraps(const Rank& rank) {
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
Result<void> threads(const Rank& rank) {
    const GroupSpec specs[] = {rank.spec_of_all("one"), rank.spec_of_all("other")};
    std::unique_ptr<Group> groups[2];
    for (int i = 0; i < 2; ++i) {
        auto made = rank.connect(specs[i]);
        if (!made) return std::unexpected(made.error());
        groups[i] = std::move(*made);
    }
    Result<void> results[2];
    std::thread other([&] { results[1] = check_group(*groups[1], specs[1], few()); });
    results[0] = check_group(*groups[0], specs[0], few());
    other.join();
    return results[0] ? results[1] : results[0];
}

/// The program has called MPI_Init, for one thread only, and calls MPI_Finalize.
Result<void> begun(const Rank& rank) {
    rank.function<int (*)(int*, char***)>("MPI_Init")(nullptr, nullptr);
    auto ok = check(rank, few());
    rank.function<int (*)()>("MPI_Finalize")();
    if (!ok) return ok;
    const Availability after = rank.backend().probe();
    if (after.available) return fail(Errc::internal, "there after MPI_Finalize");
    const auto again = rank.connect(rank.spec_of_all("again"));
    if (again) return fail(Errc::internal, "a group after MPI_Finalize");
    std::printf("%s\n%s\n", after.why.c_str(), again.error().message.c_str());
    return {};
}

Result<void> fails(const Rank& rank, const GroupSpec& spec) {
    const auto made = rank.connect(spec);
    if (made) return fail(Errc::internal, "that has made a group");
    std::printf("said: %s\n", made.error().message.c_str());
    return {};
}

/// After a change of the membership, as it looks to this process.
Result<void> generations(const Rank& rank) {
    GroupSpec spec = rank.spec_of_all("first");
    spec.generation = 1;
    if (auto ok = checked(rank, spec, few()); !ok) return ok;
    spec.prefix = "second";
    spec.generation = 2;
    return fails(rank, spec);
}

Result<void> interfaces(const Rank& rank) {
    GroupSpec wrong = rank.spec_of_all("wrong");
    wrong.interfaces = {"none0"};
    if (auto ok = fails(rank, wrong); !ok) return ok;
    GroupSpec right = rank.spec_of_all("right");
    right.interfaces = {"none0", "127.0.0.1"};
    const auto group = rank.connect(right);
    if (!group) return std::unexpected(group.error());
    show(**group);
    return check_group(**group, right, few());
}

/// Rank 0 sends more than rank 1 takes.
Result<void> truncated(const Rank& rank) {
    const auto group = rank.connect(rank.spec_of_all("all"));
    if (!group) return std::unexpected(group.error());
    std::vector<char> data(100);
    const Send send{1, data.data(), 100};
    const Receive receive{0, data.data(), 10};
    auto messages =
        rank.rank() == 0 ? (*group)->start({&send, 1}, {}) : (*group)->start({}, {&receive, 1});
    if (!messages) return std::unexpected(messages.error());
    const auto waited = (*messages)->wait();
    if (!waited) std::printf("said: %s\n", waited.error().message.c_str());
    return {};
}

/// Rank 1 does what ends a job, while the others wait for it in MPI.
Result<void> leaves(const Rank& rank, const std::string& how) {
    static std::unique_ptr<Group> group;  // ends after MPI
    auto made = rank.connect(rank.spec_of_all("all"));
    if (!made) return std::unexpected(made.error());
    group = std::move(*made);
    if (auto met = group->run(op::barrier()); !met) return met;
    if (how == "exit0") {
        std::puts("ok");
        std::exit(0);
    }
    if (rank.rank() == 1 && how == "exit3") std::exit(3);
    if (rank.rank() == 1 && how == "throw") throw std::runtime_error("thrown by rank 1");
    if (rank.rank() == 1 && how == "abort") group->abort();
    return group->run(op::barrier());
}

/// MPI gives this process a world of its own, where the job has two ranks.
Result<void> alone(const Rank& rank) {
    GroupSpec spec = rank.spec("alone", {0, 1});
    spec.store = nullptr;
    return fails(rank, spec);
}

Result<void> run(const std::string& test, const Rank& rank) {
    if (test == "check") return check(rank, {});
    if (test == "few") return check(rank, few());
    if (test == "chunks") return check(rank, beyond_counts());
    if (test == "wraps") return wraps(rank);
    if (test == "threads") return threads(rank);
    if (test == "begun") return begun(rank);
    if (test == "mixed") return fails(rank, rank.spec_of_all("mixed"));
    if (test == "generations") return generations(rank);
    if (test == "interfaces") return interfaces(rank);
    if (test == "truncated") return truncated(rank);
    if (test == "alone") return alone(rank);
    return leaves(rank, test);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    const char* const number = std::getenv("DTRUN_RANK");
    const bool other = argc > 3 && number != nullptr && std::strcmp(number, "1") == 0;
    const Rank rank(argv[other ? 3 : 2]);
    const auto result = run(argv[1], rank);
    std::puts(result ? "ok" : result.error().message.c_str());
    std::fflush(stdout);
    dtrun_finalize(rank.worker(), nullptr);
    return result ? 0 : 1;
}
