/// dtrun's own backend against Gloo, in one program: gloo_direct [ranks [bytes-max [operation]]]
///
/// Ranks are processes on the loopback interface. Every way in which Gloo can do an operation and
/// ours take turns, in batches; a row has the median over batches of the time of one operation, of
/// the slowest rank, in microseconds, and how much faster ours is than Gloo's best.
#include "collectives/backends/native/group.h"
#include "collectives/codec/reduce.h"
#include "collectives/group.h"
#include "collectives/host/host_topology.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

using namespace dtrun;
using namespace dtrun::collectives;

namespace {

constexpr int kBatches = 15;
constexpr std::size_t kRanksMax = 16;
constexpr std::size_t kBusyBytesMax = 4 << 20;
constexpr std::uint32_t kRoot = 0;

void require(bool well, const std::string& what) {
    if (well) return;
    std::fprintf(stderr, "gloo_direct: %s\n", what.c_str());
    std::exit(1);
}

/// What the processes share.
struct Shared {
    struct Entry {
        std::array<char, 120> key;
        std::size_t bytes;
        std::array<char, 4096> value;
    };
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_barrier_t barrier;
    std::array<double, kRanksMax> took;
    int count;
    std::size_t entries;
    std::array<Entry, 1024> table;

    static Shared& make(unsigned ranks) {
        void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        require(memory != MAP_FAILED, "mmap failed");
        auto& shared = *static_cast<Shared*>(memory);
        pthread_mutexattr_t mutex;
        pthread_mutexattr_init(&mutex);
        pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
        pthread_mutex_init(&shared.mutex, &mutex);
        pthread_condattr_t condition;
        pthread_condattr_init(&condition);
        pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED);
        pthread_cond_init(&shared.changed, &condition);
        pthread_barrierattr_t barrier;
        pthread_barrierattr_init(&barrier);
        pthread_barrierattr_setpshared(&barrier, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(&shared.barrier, &barrier, ranks);
        return shared;
    }
    void meet() { pthread_barrier_wait(&barrier); }

    void set(const std::string& key, std::string_view value) {
        pthread_mutex_lock(&mutex);
        require(entries < table.size() && key.size() < table[0].key.size() &&
                    value.size() <= table[0].value.size(),
                "the table is full");
        Entry& entry = table[entries++];
        std::ranges::copy(key, entry.key.begin());
        std::ranges::copy(value, entry.value.begin());
        entry.bytes = value.size();
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&mutex);
    }
    std::string get(const std::string& key) {
        pthread_mutex_lock(&mutex);
        const Entry* found = nullptr;
        while (!(found = find(key))) pthread_cond_wait(&changed, &mutex);
        std::string value(found->value.data(), found->bytes);
        pthread_mutex_unlock(&mutex);
        return value;
    }

private:
    const Entry* find(const std::string& key) const {
        for (std::size_t i = 0; i < entries; ++i)
            if (key == table[i].key.data()) return &table[i];
        return nullptr;
    }
};

class OurStore final : public KeyStore {
public:
    explicit OurStore(Shared& shared) : shared_(shared) {}
    Result<void> set(std::span<const Pair> pairs) override {
        for (const auto& [key, value] : pairs) shared_.set(key, value);
        return {};
    }
    Result<std::vector<std::string>> get(std::span<const std::string> keys,
                                         std::chrono::milliseconds) override {
        std::vector<std::string> values;
        for (const std::string& key : keys) values.push_back(shared_.get(key));
        return values;
    }
    Result<std::optional<std::string>> find(const std::string&) override { return std::nullopt; }

private:
    Shared& shared_;
};

class GlooStore final : public ::gloo::rendezvous::Store {
public:
    GlooStore(Shared& shared, std::string prefix) : shared_(shared), prefix_(std::move(prefix)) {}
    void set(const std::string& key, const std::vector<char>& data) override {
        shared_.set(prefix_ + key, {data.data(), data.size()});
    }
    std::vector<char> get(const std::string& key) override {
        const std::string value = shared_.get(prefix_ + key);
        return {value.begin(), value.end()};
    }
    void wait(const std::vector<std::string>& keys) override {
        for (const std::string& key : keys) static_cast<void>(get(key));
    }
    void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
        wait(keys);
    }

private:
    Shared& shared_;
    std::string prefix_;
};

std::unique_ptr<Group> connect_ours(OurStore& store, std::uint32_t rank, std::uint32_t size) {
    GroupSpec spec;
    spec.rank = rank;
    spec.size = size;
    spec.members.resize(size);
    std::iota(spec.members.begin(), spec.members.end(), 0u);
    spec.topology = Topology(rank, std::vector<std::uint32_t>(size));
    spec.store = &store;
    spec.prefix = "ours/";
    spec.address = "127.0.0.1";
    auto group = native::connect(spec);
    require(group.has_value(), group ? "" : group.error().message);
    static const auto host_topology =
        find_host_topology(spec, **group);  // of this process, for as long as it lives
    require(host_topology.has_value(), host_topology ? "" : host_topology.error().message);
    require((*group)->set_topology(*host_topology).has_value(), "it cannot be arranged");
    return std::move(*group);
}

std::shared_ptr<::gloo::rendezvous::Context> connect_gloo(Shared& shared, int rank, int size,
                                                          bool busy) {
    auto device = ::gloo::transport::tcp::CreateDevice("127.0.0.1");
    GlooStore store(shared, busy ? "busy/" : "gloo/");
    auto context = std::make_shared<::gloo::rendezvous::Context>(rank, size);
    context->setTimeout(std::chrono::minutes(5));
    context->connectFullMesh(store, device);
    for (int peer = 0; busy && peer < size; ++peer)
        if (peer != rank) context->getPair(peer)->setSync(true, true);
    return context;
}

struct Way {
    const char* name;
    /// Makes the operation for a size, if it can be had.
    std::function<std::function<void()>(std::size_t bytes)> make;
};
struct Operation {
    const char* name;
    std::vector<Way> direct;
    std::function<void(std::size_t bytes)> ours;
    std::size_t bytes_max;
};

struct Bench {
    Shared& shared;
    int rank, size;
    std::shared_ptr<::gloo::rendezvous::Context> context;
    std::shared_ptr<::gloo::rendezvous::Context> busy;  ///< only if there is a core for each rank
    std::unique_ptr<Group> group;
    std::vector<float> in, out;

    std::size_t count(std::size_t bytes) const { return bytes / sizeof(float); }
    /// Of each rank's part, where `bytes` are those of all.
    std::size_t part(std::size_t bytes) const {
        return std::max<std::size_t>(count(bytes) / static_cast<std::size_t>(size), 1);
    }
    static void sum(void* result, const void* a, const void* b, std::size_t count) {
        reduce_into(result, a, b, count, DType::f32, Reduce::sum);
    }

    Operation allreduce();
    Operation reduce();
    Operation reduce_scatter();
    Operation broadcast();
    Operation allgather();
    Operation gather();
    Operation scatter();
    Operation alltoall();
    Operation barrier();

    double batch(const std::function<void()>& operation, int count_of);
    void measure(const Operation& operation, std::size_t bytes);
};

Operation Bench::allreduce() {
    const auto with = [this](::gloo::AllreduceOptions::Algorithm algorithm) {
        return [this, algorithm](std::size_t bytes) -> std::function<void()> {
            auto options = std::make_shared<::gloo::AllreduceOptions>(context);
            options->setAlgorithm(algorithm);
            options->setInput(in.data(), count(bytes));
            options->setOutput(out.data(), count(bytes));
            options->setReduceFunction(&Bench::sum);
            return [options] { ::gloo::allreduce(*options); };
        };
    };
    const auto halving = [this](auto& from) {
        return [this, &from](std::size_t bytes) -> std::function<void()> {
            // Both ends of a busy connection write before they read, and wait for each other for ever
            // once what they write does not fit into the sockets.
            if (!from || (from == busy && bytes > kBusyBytesMax)) return {};
            auto algorithm = std::make_shared<::gloo::AllreduceHalvingDoubling<float>>(
                from, std::vector<float*>{out.data()}, static_cast<int>(count(bytes)));
            return [algorithm] { algorithm->run(); };
        };
    };
    return {"allreduce",
            {{"ring", with(::gloo::AllreduceOptions::Algorithm::RING)},
             {"bcube", with(::gloo::AllreduceOptions::Algorithm::BCUBE)},
             {"halving", halving(context)},
             {"busy halving", halving(busy)}},
            [this](std::size_t bytes) {
                static_cast<void>(group->run(
                    op::allreduce(in.data(), out.data(), count(bytes), DType::f32, Reduce::sum)));
            },
            std::size_t{1} << 40};
}

Operation Bench::reduce() {
    const auto direct = [this](std::size_t bytes) -> std::function<void()> {
        auto options = std::make_shared<::gloo::ReduceOptions>(context);
        options->setInput(in.data(), count(bytes));
        options->setOutput(out.data(), count(bytes));
        options->setReduceFunction(&Bench::sum);
        options->setRoot(kRoot);
        return [options] { ::gloo::reduce(*options); };
    };
    return {"reduce",
            {{"ring", direct}},
            [this](std::size_t bytes) {
                static_cast<void>(group->run(op::reduce(in.data(), out.data(), count(bytes),
                                                        DType::f32, Reduce::sum, kRoot)));
            },
            64 << 20};
}

Operation Bench::reduce_scatter() {
    const auto direct = [this](std::size_t bytes) -> std::function<void()> {
        const std::size_t each = part(bytes);
        auto algorithm = std::make_shared<::gloo::ReduceScatterHalvingDoubling<float>>(
            context, std::vector<float*>{out.data()}, static_cast<int>(each) * size,
            std::vector<int>(static_cast<std::size_t>(size), static_cast<int>(each)));
        return [algorithm] { algorithm->run(); };
    };
    return {"reduce_scatter",
            {{"halving", direct}},
            [this](std::size_t bytes) {
                static_cast<void>(group->run(op::reduce_scatter(in.data(), out.data(), part(bytes),
                                                                DType::f32, Reduce::sum)));
            },
            64 << 20};
}

Operation Bench::broadcast() {
    const auto direct = [this](std::size_t bytes) -> std::function<void()> {
        auto options = std::make_shared<::gloo::BroadcastOptions>(context);
        options->setOutput(out.data(), count(bytes));
        options->setRoot(kRoot);
        return [options] { ::gloo::broadcast(*options); };
    };
    return {"broadcast",
            {{"tree", direct}},
            [this](std::size_t bytes) {
                static_cast<void>(group->run(op::broadcast(out.data(), bytes, kRoot)));
            },
            64 << 20};
}

Operation Bench::allgather() {
    const auto direct = [this](std::size_t bytes) -> std::function<void()> {
        auto options = std::make_shared<::gloo::AllgatherOptions>(context);
        options->setInput(in.data(), part(bytes));
        options->setOutput(out.data(), part(bytes) * static_cast<std::size_t>(size));
        return [options] { ::gloo::allgather(*options); };
    };
    return {"allgather",
            {{"ring", direct}},
            [this](std::size_t bytes) {
                static_cast<void>(
                    group->run(op::allgather(in.data(), out.data(), part(bytes) * sizeof(float))));
            },
            64 << 20};
}

Operation Bench::gather() {
    const auto direct = [this](std::size_t bytes) -> std::function<void()> {
        auto options = std::make_shared<::gloo::GatherOptions>(context);
        options->setInput(in.data(), part(bytes));
        if (rank == kRoot)
            options->setOutput(out.data(), part(bytes) * static_cast<std::size_t>(size));
        options->setRoot(kRoot);
        return [options] { ::gloo::gather(*options); };
    };
    return {"gather",
            {{"direct", direct}},
            [this](std::size_t bytes) {
                static_cast<void>(group->run(
                    op::gather(in.data(), out.data(), part(bytes) * sizeof(float), kRoot)));
            },
            64 << 20};
}

Operation Bench::scatter() {
    const auto direct = [this](std::size_t bytes) -> std::function<void()> {
        auto options = std::make_shared<::gloo::ScatterOptions>(context);
        std::vector<float*> inputs;
        for (int peer = 0; peer < size; ++peer)
            inputs.push_back(in.data() + part(bytes) * static_cast<std::size_t>(peer));
        if (rank == kRoot) options->setInputs(inputs, part(bytes));
        options->setOutput(out.data(), part(bytes));
        options->setRoot(kRoot);
        return [options] { ::gloo::scatter(*options); };
    };
    return {"scatter",
            {{"direct", direct}},
            [this](std::size_t bytes) {
                static_cast<void>(group->run(
                    op::scatter(in.data(), out.data(), part(bytes) * sizeof(float), kRoot)));
            },
            64 << 20};
}

Operation Bench::alltoall() {
    const auto direct = [this](std::size_t bytes) -> std::function<void()> {
        const std::size_t all = part(bytes) * static_cast<std::size_t>(size);
        auto options = std::make_shared<::gloo::AlltoallOptions>(context);
        options->setInput(in.data(), all);
        options->setOutput(out.data(), all);
        return [options] { ::gloo::alltoall(*options); };
    };
    return {"alltoall",
            {{"direct", direct}},
            [this](std::size_t bytes) {
                static_cast<void>(
                    group->run(op::alltoall(in.data(), out.data(), part(bytes) * sizeof(float))));
            },
            64 << 20};
}

Operation Bench::barrier() {
    const auto direct = [this](std::size_t) -> std::function<void()> {
        auto options = std::make_shared<::gloo::BarrierOptions>(context);
        return [options] { ::gloo::barrier(*options); };
    };
    return {"barrier",
            {{"dissemination", direct}},
            [this](std::size_t) { static_cast<void>(group->run(op::barrier())); },
            4};
}

double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

/// The time of one operation in a batch of some, of the slowest rank.
double Bench::batch(const std::function<void()>& operation, int times) {
    shared.meet();
    const double start = seconds();
    for (int i = 0; i < times; ++i) operation();
    shared.took[static_cast<std::size_t>(rank)] = (seconds() - start) / times;
    shared.meet();
    const double slowest = *std::max_element(shared.took.begin(), shared.took.begin() + size);
    shared.meet();
    return slowest;
}

double median(std::vector<double> values) {
    std::ranges::nth_element(values, values.begin() + kBatches / 2);
    return values[kBatches / 2];
}

void Bench::measure(const Operation& operation, std::size_t bytes) {
    std::vector<const char*> names;
    std::vector<std::function<void()>> ways;
    for (const auto& [name, make] : operation.direct) {
        if (auto way = make(bytes)) {
            names.push_back(name);
            ways.push_back(std::move(way));
        }
    }
    ways.push_back([&] { operation.ours(bytes); });
    std::vector<int> times;
    for (const auto& way : ways)
        times.push_back(std::clamp(static_cast<int>(3e-3 / batch(way, 3)), 1, 200));
    std::vector<std::vector<double>> took(ways.size());
    for (std::size_t i = 0; i < ways.size() * kBatches; ++i) {
        // Nobody always comes after the same one.
        const std::size_t way = (i + i / ways.size()) % ways.size();
        took[way].push_back(batch(ways[way], times[way]));
    }
    if (rank != 0) return;
    std::printf("%-15s %10zu", operation.name, bytes);
    double best = 1e9, least = 1e9;
    std::string all;
    for (std::size_t way = 0; way < names.size(); ++way) {
        best = std::min(best, median(took[way]));
        least = std::min(least, *std::ranges::min_element(took[way]));
        all += fmt::format("  {} {:.1f}", names[way], median(took[way]) * 1e6);
    }
    const double ours = median(took.back());
    std::printf(" %11.1f %11.1f %7.3f %7.3f %s\n", best * 1e6, ours * 1e6, best / ours,
                least / *std::ranges::min_element(took.back()), all.c_str());
    std::fflush(stdout);
}

void run(Shared& shared, int rank, int size, std::size_t bytes_max, std::string_view only) {
    OurStore store(shared);
    Bench bench{.shared = shared,
                .rank = rank,
                .size = size,
                .context = connect_gloo(shared, rank, size, false),
                .busy = nullptr,
                .group = connect_ours(store, static_cast<std::uint32_t>(rank),
                                      static_cast<std::uint32_t>(size)),
                .in = std::vector<float>(bytes_max / sizeof(float), 1.0F),
                .out = std::vector<float>(bytes_max / sizeof(float), 0.0F)};
    if (static_cast<unsigned>(size) <= std::thread::hardware_concurrency())
        bench.busy = connect_gloo(shared, rank, size, true);
    if (rank == 0)
        std::printf("%d ranks\n%-15s %10s %11s %11s %7s %7s\n", size, "operation", "bytes",
                    "Gloo us", "dtrun us", "ratio", "least");
    for (const auto& operation :
         {bench.allreduce(), bench.reduce(), bench.reduce_scatter(), bench.broadcast(),
          bench.allgather(), bench.gather(), bench.scatter(), bench.alltoall(), bench.barrier()})
        for (const std::size_t bytes :
             {4UL, 1UL << 10, 64UL << 10, 1UL << 20, 16UL << 20, 64UL << 20, 256UL << 20})
            if (bytes <= std::min(bytes_max, operation.bytes_max) &&
                (only.empty() || only == operation.name))
                bench.measure(operation, bytes);
    shared.meet();
}

}  // namespace

int main(int argc, char** argv) {
    const int size = argc > 1 ? std::atoi(argv[1]) : 2;
    require(size >= 2 && size <= static_cast<int>(kRanksMax), "2 to 16 ranks");
    const std::size_t bytes_max =
        argc > 2 ? std::strtoull(argv[2], nullptr, 10) : std::size_t{256} << 20;
    const std::string_view only = argc > 3 ? argv[3] : "";
    require(bytes_max >= 4, "at least 4 bytes");
    Shared& shared = Shared::make(static_cast<unsigned>(size));
    std::vector<pid_t> ranks;
    for (int rank = 1; rank < size; ++rank) {
        const pid_t pid = fork();
        if (pid == 0) {
            run(shared, rank, size, bytes_max, only);
            std::_Exit(0);
        }
        ranks.push_back(pid);
    }
    run(shared, 0, size, bytes_max, only);
    for (const pid_t pid : ranks) waitpid(pid, nullptr, 0);
    return 0;
}
