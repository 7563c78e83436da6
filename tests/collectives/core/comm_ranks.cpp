// A rank for dtrun to start, with what users have: <dtrun/communicator.h>.
//
//     comm_ranks MODE BACKEND
//
// prints "ok", or what went wrong. Modes whose ranks go wrong print what the others are told.
#include "tests/collectives/support/sums.h"

#include <dtrun/communicator.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

namespace {

using namespace dtrun;

void same_bits_everywhere(Communicator& comm, const std::vector<float>& values) {
    if (values.empty()) return;
    std::vector<float> all(values.size() * comm.size());
    comm.allgather(values.data(), all.data(), values.size());
    for (std::uint32_t rank = 0; rank < comm.size(); ++rank)
        REQUIRE(std::memcmp(all.data() + rank * values.size(), values.data(),
                            values.size() * sizeof(float)) == 0);
}

void compression(Communicator& comm) {
    const struct {
        Format format;
        double error;
    } formats[] = {{Format::f16, 1e-3},  {Format::bf16, 6e-3},         {Format::e4m3, 6e-2},
                   {Format::e5m2, 0.12}, {Format::int8, 2e-2},         {Format::e4m3_unscaled, 0.3},
                   {Format::none, 1e-6}, {Format::e5m2_unscaled, 0.12}};
    for (const auto& [format, error] : formats)
        for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{70'001}}) {
            auto values = numbers(count, comm.rank());
            comm.allreduce(values.data(), values.data(), count, Reduce::sum,
                           {format, false, nullptr, true});
            if (count > 1) REQUIRE(relative_error(values, comm.size()) < error);
            same_bits_everywhere(comm, values);
        }
    // What is lost is made good later.
    const std::size_t count = 10'000;
    std::vector<float> left(count);
    std::vector<double> sums(count);
    for (int step = 0; step < 20; ++step) {
        auto values = numbers(count, comm.rank());
        comm.allreduce(values.data(), values.data(), count, Reduce::sum,
                       {Format::e4m3, false, left.data(), true});
        for (std::size_t i = 0; i < count; ++i) sums[i] += static_cast<double>(values[i]);
    }
    std::vector<float> mean(count);
    for (std::size_t i = 0; i < count; ++i) mean[i] = static_cast<float>(sums[i] / 20);
    REQUIRE(comm.size() == 1 || relative_error(mean, comm.size()) < 0.01);
}

/// Between hosts, both ways are tried: compressed, in full, in full, compressed.
void compression_on_trial(Communicator& comm) {
    constexpr std::size_t kCount = 150'000;
    std::vector<bool> rounded;
    std::vector<float> left(kCount);
    for (int call = 0; call < 12; ++call) {
        auto values = numbers(kCount, comm.rank());
        comm.allreduce(values.data(), values.data(), kCount, Reduce::sum,
                       {Format::int8, false, left.data()});
        const double error = relative_error(values, comm.size());
        REQUIRE(error < 4e-2);
        rounded.push_back(error > 1e-5);
        // What was lost before is not kept for the next one that is compressed.
        if (!rounded.back()) REQUIRE(left == std::vector<float>(kCount));
        same_bits_everywhere(comm, values);
    }
    REQUIRE(rounded[3] == rounded[0]);
    REQUIRE(!rounded[1]);
    REQUIRE(!rounded[2]);
}

void fused(Communicator& comm) {
    std::vector<std::vector<std::int32_t>> arrays;
    std::vector<Communicator::Array<std::int32_t>> list;
    for (std::size_t i = 0; i < 300; ++i) arrays.emplace_back(i * 37 % 1'000, 1 + comm.rank());
    for (auto& array : arrays) list.push_back({array.data(), array.size()});
    comm.allreduce_many(list, Reduce::sum);
    const auto expected = static_cast<std::int32_t>(comm.size() * (comm.size() + 1) / 2);
    for (const auto& array : arrays)
        for (const std::int32_t value : array) REQUIRE(value == expected);
    auto a = numbers(5'000, comm.rank());
    auto b = numbers(333, comm.rank());
    comm.allreduce_many<float>({{a.data(), a.size()}, {b.data(), b.size()}}, Reduce::sum,
                               {Format::int8});
    REQUIRE(relative_error(a, comm.size()) < 2e-2);
    REQUIRE(relative_error(b, comm.size()) < 2e-2);
    // A list of one array is the same operation as that array by itself, whoever calls which.
    for (const std::size_t count : {1UL, 10UL, 100'000UL, 1'500'000UL})
        for (const Reduce reduce : {Reduce::sum, Reduce::average, Reduce::adasum}) {
            std::vector<float> alike(count, 3);
            if (comm.rank() % 2 == 0)
                comm.allreduce(alike.data(), alike.size(), reduce);
            else
                comm.allreduce_many<float>({{alike.data(), alike.size()}}, reduce);
            const float sum = reduce == Reduce::sum ? 3 * static_cast<float>(comm.size()) : 3;
            REQUIRE(std::abs(alike.back() - sum) < 1e-4F);
        }
    // In whatever order they lie, none may have what another has.
    std::vector<std::int32_t> room(12, 1);
    std::int32_t* const at = room.data();
    using List = std::vector<Communicator::Array<std::int32_t>>;
    for (const List& right : {List{{at + 8, 4}, {at, 4}, {at + 4, 4}}, List{{at, 4}, {at + 4, 8}},
                              List{{at + 6, 6}, {at + 3, 0}, {at, 6}}}) {
        std::fill(room.begin(), room.end(), 1);
        comm.allreduce_many(right);
        for (const std::int32_t value : room)
            REQUIRE(value == static_cast<std::int32_t>(comm.size()));
    }
    for (const List& wrong : {List{{at, 4}, {at + 3, 4}}, List{{at + 8, 4}, {at, 4}, {at + 1, 1}},
                              List{{at, 4}, {at, 4}}, List{{at + 4, 4}, {at, 5}}}) {
        try {
            comm.allreduce_many(wrong);
            REQUIRE(false);
        } catch (const dtrun::Error& error) {
            REQUIRE(error.is(DTRUN_INVALID));
        }
    }
}

void asynchronous(Communicator& comm) {
    std::vector<std::vector<double>> arrays(20, std::vector<double>(999, comm.rank() + 1.0));
    std::vector<Future> futures;
    for (auto& array : arrays)
        futures.push_back(comm.start_allreduce(array.data(), array.data(), array.size()));
    std::int64_t own = comm.rank();
    comm.allreduce(&own, 1, Reduce::max);  // after all of them
    REQUIRE(own == static_cast<std::int64_t>(comm.size()) - 1);
    for (Future& future : futures) REQUIRE(future.wait_for(std::chrono::milliseconds(60'000)));
    for (const auto& array : arrays) REQUIRE(array[500] == comm.size() * (comm.size() + 1) / 2.0);

    std::vector<std::int32_t> mine(3, static_cast<std::int32_t>(comm.rank()));
    std::vector<std::int32_t> all(3 * comm.size());
    std::vector<std::int32_t> sums(3);
    Future gathered = comm.start_allgather(mine.data(), all.data(), 3);
    Future summed = comm.start_reduce_scatter(all.data(), sums.data(), 3);  // of what was gathered
    comm.start_broadcast(mine.data(), 3, comm.size() - 1).get();
    gathered.get();
    summed.get();
    REQUIRE(all.back() == static_cast<std::int32_t>(comm.size()) - 1);
    REQUIRE(sums[2] == static_cast<std::int32_t>(comm.size() * comm.rank()));
    REQUIRE(mine[1] == static_cast<std::int32_t>(comm.size()) - 1);
}

void adasum(Communicator& comm) {
    std::vector<float> same(100, 3.0F);  // all alike: the result is the same again
    comm.allreduce(same.data(), same.size(), Reduce::adasum);
    for (const float value : same) REQUIRE(std::abs(value - 3.0F) < 1e-5F);
    std::vector<double> own(comm.size());  // at right angles: they are added
    own[comm.rank()] = comm.rank() + 1.0;
    comm.allreduce(own.data(), own.size(), Reduce::adasum);
    for (std::size_t i = 0; i < own.size(); ++i)
        REQUIRE(std::abs(own[i] - (static_cast<double>(i) + 1)) < 1e-9);
}

void parts(Communicator& comm) {
    const std::uint32_t rank = comm.rank();
    const std::uint32_t size = comm.size();
    std::vector<std::int64_t> own{rank}, all(size);
    comm.gather(own.data(), all.data(), 1, size - 1);
    if (rank == size - 1)
        for (std::uint32_t i = 0; i < size; ++i) REQUIRE(all[i] == i);
    comm.scatter(all.data(), own.data(), 1, size - 1);
    REQUIRE(own[0] == rank);
    std::vector<std::size_t> counts(size);
    for (std::uint32_t i = 0; i < size; ++i) counts[i] = i;
    std::vector<std::uint8_t> mine(rank, static_cast<std::uint8_t>(rank));
    std::vector<std::uint8_t> gathered(size * (size - 1) / 2 + 1);
    comm.allgatherv(mine.data(), gathered.data(), counts);
    REQUIRE(size < 2 || gathered[gathered.size() - 2] == size - 1);
    std::vector<float> many(size * 3, 1), part(3);
    comm.reduce_scatter(many.data(), part.data(), 3);
    REQUIRE(part[2] == static_cast<float>(size));
    std::vector<std::int32_t> out(size), in(size);
    for (std::uint32_t i = 0; i < size; ++i) out[i] = static_cast<std::int32_t>(rank * size + i);
    comm.alltoall(out.data(), in.data(), 1);
    for (std::uint32_t i = 0; i < size; ++i)
        REQUIRE(in[i] == static_cast<std::int32_t>(i * size + rank));
    if (size > 1) {
        std::int32_t word = 0;
        if (rank == 0) comm.send(out.data() + 1, 1, 1);
        if (rank == 1) comm.recv(&word, 1, 0);
        REQUIRE(rank != 1 || word == 1);
        const std::int32_t mine_to_go = static_cast<std::int32_t>(rank);
        comm.sendrecv(&mine_to_go, 1, (rank + 1) % size, &word, 1, (rank + size - 1) % size);
        REQUIRE(word == static_cast<std::int32_t>((rank + size - 1) % size));
    }
    std::vector<bfloat16> halves(7, bfloat16{0x3f80});  // 1.0
    comm.allreduce(halves.data(), halves.size(), Reduce::average);
    REQUIRE(halves[6].bits == 0x3f80);
}

void splits(Communicator& comm) {
    auto half = comm.split(static_cast<std::int32_t>(comm.rank() % 2),
                           -static_cast<std::int32_t>(comm.rank()));
    REQUIRE(half.has_value());
    std::int32_t sum = 1;
    half->allreduce(&sum, 1);
    REQUIRE(sum == static_cast<std::int32_t>(half->size()));
    std::int32_t first = static_cast<std::int32_t>(comm.rank());
    half->broadcast(&first, 1, 0);  // by key, the highest rank of the half is its first
    REQUIRE(first >= static_cast<std::int32_t>(comm.size()) - 2);
    Communicator host = comm.split_by_host();
    host.barrier();
    REQUIRE(!comm.split(comm.rank() == 0 ? 0 : -1).has_value() || comm.rank() == 0);
    const auto again = comm.split_by_host();
    REQUIRE(again.size() == host.size());
}

/// Even and odd ranks make communicators of their own, without each other.
void some_ranks(Worker& worker, CommunicatorOptions options) {
    const std::uint32_t rank = worker.rank();
    for (std::uint32_t other = worker.world_size(); other-- > 0;)
        if (other % 2 == rank % 2) options.ranks.push_back(other);
    options.name = rank % 2 == 0 ? "even" : "odd";
    {
        Communicator half(worker, options);
        REQUIRE(half.size() == options.ranks.size());
        REQUIRE(options.ranks[half.rank()] == rank);
        std::int64_t sum = rank;
        half.allreduce(&sum, 1);
        std::int64_t expected = 0;
        for (const std::uint32_t other : options.ranks) expected += other;
        REQUIRE(sum == expected);
        Communicator part = *half.split(0);
        part.barrier();
    }
    for (const auto& [ranks, name] :
         {std::pair<std::vector<std::uint32_t>, std::string>{options.ranks, ""},
          {{rank, rank}, "twice"},
          {{(rank + 1) % worker.world_size()}, "others"},
          {{rank, worker.world_size()}, "too many"}}) {
        options.ranks = ranks;
        options.name = name;
        if (ranks.front() == rank && ranks.size() == 1 && !name.empty()) continue;  // it is alone
        try {
            const Communicator refused(worker, options);
            REQUIRE(false);
        } catch (const Error& error) {
            REQUIRE(error.is(DTRUN_INVALID));
        }
    }
}

/// Bools are and-ed and or-ed; what is only moved is not added up.
void moved_types(Communicator& comm) {
    std::uint8_t flags[] = {comm.rank() == 0, 1, 0};
    std::uint8_t any[3];
    REQUIRE(dtrun_allreduce(comm.handle(), flags, any, 3, DTRUN_BOOL, DTRUN_MAX, nullptr) ==
            DTRUN_OK);
    REQUIRE((any[0] == 1 && any[1] == 1 && any[2] == 0));
    REQUIRE(dtrun_allreduce(comm.handle(), flags, any, 3, DTRUN_BOOL, DTRUN_SUM, nullptr) ==
            DTRUN_INVALID);
    std::vector<std::uint16_t> all(comm.size());
    auto own = static_cast<std::uint16_t>(comm.rank());
    REQUIRE(dtrun_allgather(comm.handle(), &own, all.data(), 1, DTRUN_I16) == DTRUN_OK);
    REQUIRE(all.back() == comm.size() - 1);
    REQUIRE(dtrun_allreduce(comm.handle(), &own, &own, 1, DTRUN_I16, DTRUN_MAX, nullptr) ==
            DTRUN_INVALID);
    REQUIRE(dtrun_broadcast(comm.handle(), all.data(), 1, DTRUN_E5M2 + 1, 0) == DTRUN_INVALID);
}

/// A child has none of the threads and connections; it is told so, and waits for nobody.
void forked(Worker& worker, Communicator& comm) {
    const pid_t child = ::fork();
    if (child == 0) {
        int code = 1;
        try {
            comm.barrier();
        } catch (const Error& error) {
            code = error.is(DTRUN_FORKED) ? 0 : 2;
        }
        try {
            const Communicator another(worker);
            code = 3;
        } catch (const Error&) {
        }
        const Communicator ended = std::move(comm);
        ::_exit(code);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    REQUIRE(WEXITSTATUS(status) == 0);
}

void works(Worker& worker, const CommunicatorOptions& options) {
    Communicator comm(worker, options);
    REQUIRE(comm.rank() == worker.rank());
    REQUIRE(comm.size() == worker.world_size());
    for (const auto check : {parts, compression, compression_on_trial, fused, asynchronous, adasum,
                             splits, moved_types})
        check(comm);
    some_ranks(worker, options);
    forked(worker, comm);
    Communicator other(worker, options);  // beside the first
    other.barrier();
    comm.barrier();
    std::vector<std::vector<float>> arrays(8, std::vector<float>(100'000, 1));
    std::vector<Future> futures;
    {
        Communicator brief(worker, options);
        for (auto& array : arrays)
            futures.push_back(brief.start_allreduce(array.data(), array.data(), array.size()));
    }  // waits for them
    for (Future& future : futures) REQUIRE(future.wait_for(std::chrono::milliseconds(0)));
    for (const auto& array : arrays) REQUIRE(array.back() == static_cast<float>(comm.size()));
    try {
        comm.broadcast(static_cast<float*>(nullptr), 3, 0);
        REQUIRE(false);
    } catch (const Error& error) {
        REQUIRE(error.is(DTRUN_INVALID));  // and nothing is broken
    }
    std::vector<float> both(comm.size());
    REQUIRE(dtrun_alltoall(comm.handle(), both.data(), both.data(), 1, DTRUN_F32) == DTRUN_INVALID);
    REQUIRE(dtrun_broadcast(comm.handle(), both.data(), SIZE_MAX / 4, DTRUN_F32, 0) ==
            DTRUN_INVALID);
    comm.barrier();
    if (worker.rank() == 0)
        std::printf("over %s, %s\n%s", std::string(comm.backend()).c_str(),
                    std::string(comm.why()).c_str(), std::string(comm.facts()).c_str());
}

/// What ranks are told when one of them goes wrong in the middle: in allreduce(), or in split() with
/// modes that begin so.
void goes_wrong(Worker& worker, const CommunicatorOptions& options, const std::string& how) {
    Communicator comm(worker, options);
    std::vector<float> values(1 << 20, 1);
    const std::uint32_t culprit = comm.size() - 1;
    std::thread aborter;
    const bool splitting = how.rfind("split ", 0) == 0;
    const std::string what = splitting ? how.substr(6) : how;
    const auto meet = [&] {
        if (what == "types") {
            std::vector<std::uint16_t> own(10), all(10 * comm.size());
            const int code = dtrun_allgather(comm.handle(), own.data(), all.data(), own.size(),
                                             comm.rank() == culprit ? DTRUN_F16 : DTRUN_I16);
            if (code != DTRUN_OK) throw Error(code, dtrun_comm_error_text());
        } else if (what == "messages" && comm.rank() == 0)
            comm.send(values.data(), 10, 1);
        else if (what == "messages")
            comm.recv(values.data(), 12, 0);
        else if (splitting && what != "disagrees")
            comm.split(0);
        else if (splitting)
            comm.rank() == culprit ? comm.barrier() : static_cast<void>(comm.split(0));
        else
            comm.allreduce(values.data(), values.size());
    };
    try {
        comm.allreduce(values.data(), values.size());
        if (comm.rank() == culprit) {
            if (what == "killed") ::raise(SIGKILL);
            if (what == "leaves") return;
            if (what == "disagrees") values.pop_back();
            if (what == "aborts")
                aborter = std::thread([&comm] {
                    std::this_thread::sleep_for(std::chrono::milliseconds(200));
                    comm.abort("rank 3 has seen enough");
                });
        }
        const bool waits = what == "aborts" && comm.rank() == 0;  // and so do all the others
        if (waits) std::this_thread::sleep_for(std::chrono::milliseconds(1'500));
        meet();
        std::printf("nothing happened\n");
    } catch (const Error& error) {
        std::printf("%s: %s\n", dtrun_code_name(error.code().value()), error.what());
        try {
            comm.barrier();
        } catch (const Error& later) {
            std::printf("then: %s\n", later.what());
        }
    }
    if (aborter.joinable()) aborter.join();
    std::fflush(stdout);
}

dtrun_comm* freed_inside = nullptr;
dtrun_request* behind = nullptr;

/// The callback `interrupted`, inside of an operation that waits.
int free_inside() {
    if (freed_inside == nullptr) return 0;
    REQUIRE(dtrun_comm_barrier(freed_inside) == DTRUN_INVALID);
    float value = 0;
    REQUIRE(dtrun_allreduce_start(freed_inside, &value, &value, 0, DTRUN_F32, DTRUN_SUM, nullptr,
                                  &behind) == DTRUN_OK);
    int done = 1;
    REQUIRE(dtrun_request_wait(behind, DTRUN_FOREVER, &done) == DTRUN_INVALID && done == 0);
    dtrun_comm_free(std::exchange(freed_inside, nullptr));
    REQUIRE(dtrun_request_wait(behind, 0, &done) == DTRUN_TIMED_OUT);
    return 0;
}

/// Rank 0 frees its communicator from inside of an operation, which ends at once; nothing waits for ever.
void frees_inside(Worker& worker, const CommunicatorOptions& given) {
    dtrun_comm_options options{};
    options.size = sizeof options;
    options.backend = given.backend.c_str();
    options.unlock = []() -> void* { return nullptr; };
    options.lock = [](void*) {};
    options.interrupted = free_inside;
    dtrun_comm* comm = nullptr;
    REQUIRE(dtrun_comm_create(worker.handle(), &options, &comm) == DTRUN_OK);
    if (worker.rank() == 0) {
        freed_inside = comm;
        REQUIRE(dtrun_comm_barrier(comm) == DTRUN_CANCELLED);
        REQUIRE(dtrun_request_wait(behind, DTRUN_FOREVER, nullptr) == DTRUN_CANCELLED);
        worker.set("freed", "yes");
        return;
    }
    worker.get("freed");
    int code = dtrun_comm_barrier(comm);  // to which rank 0 had come
    if (code == DTRUN_OK) code = dtrun_comm_barrier(comm);
    REQUIRE(code == DTRUN_PEER_LOST);
    dtrun_comm_free(comm);
}

/// Adds up 32 MiB several times, and nothing else, for who counts bytes: "FORMAT TIMES".
void add_up(Worker& worker, const CommunicatorOptions& options, const std::string& format,
            int times) {
    Communicator comm(worker, options);
    std::vector<float> values(8 << 20, 1);
    const Compression compression{format == "int8"   ? Format::int8
                                  : format == "fp16" ? Format::f16
                                                     : Format::none};
    for (int i = 0; i < times; ++i)
        comm.allreduce(values.data(), values.data(), values.size(), Reduce::average, compression);
    REQUIRE(values.back() == 1.0F);
}

/// Ranks come and go: whenever the membership changes, there is a new communicator.
void go_through_generations(Worker& worker, const CommunicatorOptions& options) {
    for (int round = 0;; ++round) {
        try {
            Communicator comm(worker, options);
            std::printf("generation %llu: rank %u of %u\n",
                        static_cast<unsigned long long>(worker.generation()), comm.rank(),
                        comm.size());
            std::fflush(stdout);
            for (int step = 0; step < 400; ++step) {
                float one = 1;
                comm.allreduce(&one, 1);
                REQUIRE(one == static_cast<float>(comm.size()));
                if (worker.generation() == 1 && comm.rank() == 1 && step == 5) ::raise(SIGKILL);
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
            }
            return;
        } catch (const Error& error) {
            std::printf("%s: %s\n", dtrun_code_name(error.code().value()), error.what());
            std::fflush(stdout);
            worker.rejoin(std::chrono::milliseconds(60'000));
        }
    }
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc < 3) return 2;
    Worker worker;
    CommunicatorOptions options;
    options.backend = argv[2];
    const std::string mode = argv[1];
    if (mode == "works")
        works(worker, options);
    else if (mode == "adds")
        add_up(worker, options, argv[3], std::atoi(argv[4]));
    else if (mode == "frees")
        frees_inside(worker, options);
    else if (mode == "elastic")
        go_through_generations(worker, options);
    else
        goes_wrong(worker, options, mode);
    std::printf("ok\n");
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
