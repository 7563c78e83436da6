/// A communicator over MPI against MPI itself, in one program: mpi_direct [single|own]
///
///     dtrun -np 2 build/release/bin/mpi_direct_openmpi
///
/// Batches of both take turns; a row has the median over batches of the time of one operation, of the
/// slowest rank, in microseconds. With `single` the program begins MPI for one thread only; with `own` the
/// communicator is over dtrun's own backend.
#include <dtrun/communicator.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kBytesMax = 64 << 20;
constexpr int kBatches = 31;

double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

using Operation = std::function<void(std::size_t bytes)>;
struct Pair {
    const char* name;
    Operation direct;
    Operation ours;
};

/// Of one operation, in a batch of some.
double batch(const Operation& operation, std::size_t bytes, int count) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = seconds();
    for (int i = 0; i < count; ++i) operation(bytes);
    double took = (seconds() - start) / count;
    MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return took;
}

double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + kBatches / 2, values.end());
    return values[kBatches / 2];
}

void measure(const Pair& pair, std::size_t bytes, bool prints) {
    double once = batch(pair.direct, bytes, 3);
    MPI_Bcast(&once, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    const int count = std::clamp(static_cast<int>(4e-3 / once), 1, 2'000);
    static_cast<void>(batch(pair.ours, bytes, count));
    std::vector<double> direct, ours, ratios;
    for (int i = 0; i < kBatches; ++i) {
        const bool first = i % 2 == 0;
        if (first) direct.push_back(batch(pair.direct, bytes, count));
        ours.push_back(batch(pair.ours, bytes, count));
        if (!first) direct.push_back(batch(pair.direct, bytes, count));
        ratios.push_back(direct.back() / ours.back());
    }
    if (!prints) return;
    const auto least = [](const std::vector<double>& all) {
        return *std::ranges::min_element(all);
    };
    std::printf("%-15s %9zu %11.2f %11.2f %7.3f %7.3f\n", pair.name, bytes, median(direct) * 1e6,
                median(ours) * 1e6, median(ratios), least(direct) / least(ours));
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    const std::string how = argc > 1 ? argv[1] : "";
    if (!how.empty()) MPI_Init(&argc, &argv);
    dtrun::Worker worker;
    dtrun::CommunicatorOptions options;
    options.backend = how == "own" ? "dtrun" : "mpi";
    dtrun::Communicator ours(worker, options);
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    std::vector<float> in(kBytesMax / sizeof(float), 1.0F);
    std::vector<float> out(kBytesMax / sizeof(float), 0.0F);
    const auto part = [size](std::size_t bytes) {
        return std::max<std::size_t>(bytes / sizeof(float) / static_cast<std::size_t>(size), 1);
    };
    const auto next = static_cast<std::uint32_t>((rank + 1) % size);
    const auto previous = static_cast<std::uint32_t>((rank + size - 1) % size);
    const std::vector<Pair> pairs{
        {"allreduce",
         [&](std::size_t bytes) {
             MPI_Allreduce(in.data(), out.data(), static_cast<int>(bytes / sizeof(float)),
                           MPI_FLOAT, MPI_SUM, comm);
         },
         [&](std::size_t bytes) { ours.allreduce(in.data(), out.data(), bytes / sizeof(float)); }},
        {"reduce_scatter",
         [&](std::size_t bytes) {
             MPI_Reduce_scatter_block(in.data(), out.data(), static_cast<int>(part(bytes)),
                                      MPI_FLOAT, MPI_SUM, comm);
         },
         [&](std::size_t bytes) { ours.reduce_scatter(in.data(), out.data(), part(bytes)); }},
        {"allgather",
         [&](std::size_t bytes) {
             const int count = static_cast<int>(part(bytes));
             MPI_Allgather(in.data(), count, MPI_FLOAT, out.data(), count, MPI_FLOAT, comm);
         },
         [&](std::size_t bytes) { ours.allgather(in.data(), out.data(), part(bytes)); }},
        {"broadcast",
         [&](std::size_t bytes) {
             MPI_Bcast(in.data(), static_cast<int>(bytes / sizeof(float)), MPI_FLOAT, 0, comm);
         },
         [&](std::size_t bytes) { ours.broadcast(in.data(), bytes / sizeof(float), 0); }},
        {"messages",
         [&](std::size_t bytes) {
             MPI_Request requests[2];
             MPI_Irecv(out.data(), static_cast<int>(bytes), MPI_BYTE, static_cast<int>(previous), 5,
                       comm, &requests[0]);
             MPI_Isend(in.data(), static_cast<int>(bytes), MPI_BYTE, static_cast<int>(next), 5,
                       comm, &requests[1]);
             MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
         },
         [&](std::size_t bytes) {
             ours.sendrecv(in.data(), bytes / sizeof(float), next, out.data(),
                           bytes / sizeof(float), previous);
         }},
    };
    if (rank == 0)
        std::printf("%s, %d ranks\n%-15s %9s %11s %11s %7s %7s\n",
                    std::string(ours.facts()).c_str(), size, "operation", "bytes", "direct us",
                    "ours us", "ratio", "of best");
    for (const Pair& pair : pairs)
        for (std::size_t bytes = 4; bytes <= kBytesMax; bytes *= 16)
            if (size > 1) measure(pair, bytes, rank == 0);
    MPI_Comm_free(&comm);
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    if (level == MPI_THREAD_SINGLE) MPI_Finalize();
}
