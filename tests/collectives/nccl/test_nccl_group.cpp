#include "collectives/backends/nccl/group.h"
#include "collectives/backends/plugin_import.h"
#include "tests/collectives/nccl/fake_fixture.h"
#include "tests/support/catch.h"

#include <atomic>
#include <numeric>
#include <thread>

namespace dtrun::collectives::nccl {
namespace {

using std::chrono::milliseconds;

/// So that ranks that are threads do not all set it.
const Variable kLoopback("NCCL_SOCKET_IFNAME", "=lo");

}  // namespace

TEST_CASE("every operation is right over NCCL, whatever the number of ranks", "[nccl]") {
    const Library library = fake();
    CheckOptions options;
    options.memory = device_memory(*library);
    options.nans = false;           // NCCL's own min and max lose them
    options.large_bytes = 300'004;  // the plug-in has no buffers
    for (const std::uint32_t size : {1u, 2u, 3u, 8u}) {
        INFO(size << " ranks");
        const auto check = [&](Group& group, const GroupSpec& spec) {
            return check_group(group, spec, options);
        };
        CHECK(failures(on_fake(size, check, library)) == "");
    }
}

TEST_CASE("operations that an older NCCL has not got are made of messages", "[nccl]") {
    auto older = std::make_shared<NcclLibrary>(*fake());
    older->nccl.all_to_all = nullptr;
    older->nccl.gather = nullptr;
    older->nccl.scatter = nullptr;
    older->nccl.comm_split = nullptr;
    older->nccl.comm_init_rank_scalable = nullptr;
    CheckOptions options;
    options.memory = device_memory(*older);
    options.types = {DType::f32};
    options.reduces = {Reduce::sum};
    options.large_bytes = 300'004;
    const auto check = [&](Group& group, const GroupSpec& spec) {
        return check_group(group, spec, options);
    };
    CHECK(failures(on_fake(4, check, older)) == "");
    CHECK(failures(on_fake(1, check, older)) == "");
}

TEST_CASE("several unique ids make one communicator", "[nccl]") {
    const Library library = fake();
    Settings settings;
    settings.ranks_per_id = 2;
    const auto body = [&](Group& group, const GroupSpec& spec) -> Result<void> {
        const Numbers numbers(library, {static_cast<float>(spec.rank), 1});
        if (auto ok = sum(group, numbers); !ok) return ok;
        if (numbers.values() != std::vector<float>{10, 5}) return fail(Errc::internal, "wrong sum");
        return {};
    };
    CHECK(failures(on_fake(5, body, library, settings)) == "");
}

TEST_CASE("each rank of a host has the GPU of its number, or the one it has chosen", "[nccl]") {
    const Library library = fake();
    const auto chosen = [&](int before, std::uint32_t local_rank) {
        int device = -1;
        std::thread([&] {
            library->gpu.set_device(before);
            MemoryStore store;
            GroupSpec spec = thread_spec(0, 1, store);
            spec.local_rank = local_rank;
            const auto group = NcclGroup::connect(library, spec, {});
            if (group) library->gpu.get_device(&device);
        }).join();
        return device;
    };
    CHECK(chosen(0, 0) == 0);
    CHECK(chosen(0, 3) == 3);
    CHECK(chosen(0, 11) == 3);
    CHECK(chosen(5, 1) == 5);
}

TEST_CASE("a GPU that is asked for by its number is taken, also the first one", "[nccl]") {
    const Library library = fake();
    const auto connect = [&](int gpu) {
        MemoryStore store;
        GroupSpec spec = thread_spec(0, 1, store);
        spec.local_rank = 3;
        spec.gpu = gpu;
        return NcclGroup::connect(library, spec, {});
    };
    for (const int gpu : {0, 6}) {
        const auto group = connect(gpu);
        REQUIRE(group.has_value());
        int device = -1;
        library->gpu.get_device(&device);
        CHECK(device == gpu);
    }
    const auto missing = connect(8);
    REQUIRE_FALSE(missing.has_value());
    CHECK(missing.error().message == "there is no GPU 8 on this host, which has 8: 0 to 7");
    library->gpu.set_device(0);
}

TEST_CASE("operations leave the thread's current GPU as it was", "[nccl]") {
    const Library library = fake();
    const auto body = [&](Group& group, const GroupSpec& spec) -> Result<void> {
        const Numbers numbers(library, {1});
        library->gpu.set_device(7);
        auto ok = sum(group, numbers);
        int device = -1;
        library->gpu.get_device(&device);
        library->gpu.set_device(static_cast<int>(spec.local_rank));
        if (ok && device != 7) return fail(Errc::internal, "GPU {}", device);
        return ok;
    };
    CHECK(failures(on_fake(2, body, library)) == "");
}

TEST_CASE("two ranks on one GPU are told so, both by name", "[nccl]") {
    const Library library = fake();
    const Variable one_gpu("FAKE_GPU_COUNT", "1");
    const auto results = on_fake(
        2, [](Group&, const GroupSpec&) { return Result<void>{}; }, library);
    for (const auto& result : results) {
        REQUIRE_FALSE(result.has_value());
        CHECK(result.error().message.find("ranks 0, 1 of ") != std::string::npos);
        CHECK(result.error().message.find("are on one GPU (0000:10:00.0)") != std::string::npos);
    }
}

TEST_CASE("ranks that have their GPUs for themselves learn at once of two that have not",
          "[nccl]") {
    const Library library = fake();
    const Variable two_gpus("FAKE_GPU_COUNT", "2");
    const auto begun = std::chrono::steady_clock::now();
    const auto results = on_fake(
        3, [](Group& group, const GroupSpec&) { return group.run(op::barrier()); }, library);
    CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(20));
    for (const auto& result : results) {
        REQUIRE_FALSE(result.has_value());
        INFO(result.error().message);
        CHECK(result.error().message.find("ranks 0, 2 of ") != std::string::npos);
    }
}

TEST_CASE("a rank that cannot begin tells those that wait for it", "[nccl]") {
    const Library library = fake();
    MemoryStore store;
    const auto results = run_ranks(3, [&](std::uint32_t rank) -> Result<void> {
        GroupSpec spec = thread_spec(rank, 3, store);
        if (rank == 2) spec.interfaces = {"eth-that-is-not-there"};
        const auto group = NcclGroup::connect(library, spec, {});
        if (!group) return std::unexpected(group.error());
        return {};
    });
    for (const auto& result : results) {
        REQUIRE_FALSE(result.has_value());
        CHECK(result.error().message.find("eth-that-is-not-there on this host") !=
              std::string::npos);
    }
    CHECK(results[0].error().message.starts_with("rank 2: no network "));
}

TEST_CASE("a rank that never comes is named when the time is over", "[nccl]") {
    const Library library = fake();
    MemoryStore store;
    std::vector<Result<void>> results(2);
    const auto rank = [&](std::uint32_t number) {
        GroupSpec spec = thread_spec(number, 3, store);
        spec.timeout = milliseconds(400);
        const auto group = NcclGroup::connect(library, spec, {});
        if (!group) results[number] = std::unexpected(group.error());
    };
    std::thread other([&] { rank(1); });
    rank(0);
    other.join();
    std::string all = failures(results);
    INFO(all);
    CHECK(all.find("not all 3 ranks have come within 0.4 s: rank 2 is missing") !=
          std::string::npos);
    for (const auto& result : results) REQUIRE_FALSE(result.has_value());
}

TEST_CASE("a communicator that does not get ready is given up when the time is over", "[nccl]") {
    const Library library = fake();
    const Variable hang("FAKE_NCCL_HANG_INIT", "1:1");
    const auto results = on_fake(
        2, [](Group&, const GroupSpec&) { return Result<void>{}; }, library, {},
        std::chrono::seconds(1));
    for (const auto& result : results) REQUIRE_FALSE(result.has_value());
    CHECK(failures(results).find("all 2 ranks are there, but ncclCommInitRankConfig has not ended "
                                 "within 1 s") != std::string::npos);
}

TEST_CASE("ranks with different versions of NCCL refuse each other", "[nccl]") {
    const Library library = fake();
    const Variable version("FAKE_NCCL_VERSION", "22703");
    const Library older = fake();
    MemoryStore store;
    const auto results = run_ranks(2, [&](std::uint32_t rank) -> Result<void> {
        GroupSpec spec = thread_spec(rank, 2, store);
        spec.timeout = std::chrono::seconds(20);
        const auto group = NcclGroup::connect(rank == 0 ? older : library, spec, {});
        if (!group) return std::unexpected(group.error());
        return {};
    });
    REQUIRE_FALSE(results[1].has_value());
    CHECK(results[1].error().message ==
          "rank 0 has 2.27.3, this rank 2.28.9: all ranks need the same version");
    REQUIRE_FALSE(results[0].has_value());
    CHECK(results[0].error().code == Errc::closed);
}

TEST_CASE("a lost peer ends the operation of the others", "[nccl]") {
    const Library library = fake();
    const Variable die("FAKE_NCCL_DIE", "1:3");
    for (const bool blocking : {true, false}) {
        Settings settings;
        settings.blocking_operations = blocking;
        const auto body = [&](Group& group, const GroupSpec&) -> Result<void> {
            const Numbers numbers(library, std::vector<float>(1000, 1));
            for (int i = 0; i < 10; ++i)
                if (auto ok = sum(group, numbers); !ok) {
                    const auto again = sum(group, numbers);
                    if (again || again.error().message != ok.error().message)
                        return fail(Errc::internal, "it goes on after {}", ok.error().message);
                    return ok;
                }
            return {};
        };
        const auto results = on_fake(3, body, library, settings);
        for (const std::uint32_t survivor : {0u, 2u}) {
            REQUIRE_FALSE(results[survivor].has_value());
            CHECK(results[survivor].error().code == Errc::closed);
            CHECK(results[survivor].error().message.starts_with(
                "nccl: allreduce: remote process exited or there was a network error: rank "));
        }
    }
}

TEST_CASE("abort() from another thread ends an operation that hangs", "[nccl]") {
    const Library library = fake();
    // In the stream, and in the library's call itself.
    for (const char* const where : {"FAKE_NCCL_STALL", "FAKE_NCCL_BLOCK"}) {
        const Variable hang(where, "1:2");
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
        const auto results = on_fake(2, body, library);
        INFO(where);
        REQUIRE_FALSE(results[1].has_value());
        CHECK(results[1].error().code == Errc::cancelled);
        // The other one may have heard of it before its own abort().
        REQUIRE_FALSE(results[0].has_value());
        CHECK((results[0].error().code == Errc::cancelled ||
               results[0].error().code == Errc::closed));
    }
}

TEST_CASE("abort() without an operation ends those that come, and those of the others", "[nccl]") {
    const Library library = fake();
    const auto body = [&](Group& group, const GroupSpec& spec) -> Result<void> {
        const Numbers numbers(library, {1});
        if (spec.rank == 0) group.abort();
        auto first = sum(group, numbers);
        group.abort();
        group.abort();
        return first;
    };
    const auto results = on_fake(2, body, library);
    REQUIRE_FALSE(results[0].has_value());
    CHECK(results[0].error().code == Errc::cancelled);
    REQUIRE_FALSE(results[1].has_value());
    CHECK(results[1].error().code == Errc::closed);
}

TEST_CASE("a group whose other members stay away at the end is given up after a while", "[nccl]") {
    const Library library = fake();
    Settings settings;
    settings.close_within = milliseconds(300);
    std::atomic<bool> left{false};
    MemoryStore store;
    const auto results = run_ranks(2, [&](std::uint32_t rank) -> Result<void> {
        auto group = NcclGroup::connect(library, thread_spec(rank, 2, store), settings);
        if (!group) return std::unexpected(group.error());
        auto result = (*group)->run(op::barrier());
        while (rank == 1 && !left) std::this_thread::sleep_for(milliseconds(5));
        group->reset();
        left = true;
        return result;
    });
    CHECK(failures(results) == "");
}

TEST_CASE("data of the host and of another GPU are refused, and nothing is broken", "[nccl]") {
    const Library library = fake();
    const auto body = [&](Group& group, const GroupSpec& spec) -> Result<void> {
        const Numbers numbers(library, {1, 2});
        std::vector<float> host{1, 2};
        const auto refused =
            group.run(op::allreduce(host.data(), numbers.data(), 2, DType::f32, Reduce::sum));
        if (refused || refused.error().code != Errc::invalid_input ||
            refused.error().message.find("not in the GPU's memory") == std::string::npos)
            return fail(Errc::internal, "host memory: {}", outcome(refused));
        library->gpu.set_device(7);
        const Numbers elsewhere(library, {1, 2});
        library->gpu.set_device(static_cast<int>(spec.local_rank));
        const auto other = sum(group, elsewhere);
        if (other || other.error().message.find("memory of GPU 7") == std::string::npos)
            return fail(Errc::internal, "other GPU: {}", outcome(other));
        if (const auto adasum = group.run(
                op::allreduce(numbers.data(), numbers.data(), 2, DType::f32, Reduce::adasum));
            adasum || adasum.error().code != Errc::invalid_input)
            return fail(Errc::internal, "adasum: {}", outcome(adasum));
        return sum(group, numbers);
    };
    CHECK(failures(on_fake(2, body, library)) == "");
}

TEST_CASE("messages of several start() go out together, so that none waits for another", "[nccl]") {
    const Library library = fake();
    constexpr std::size_t kCount = 4 << 20;  // more than sockets hold
    const auto body = [&](Group& group, const GroupSpec& spec) -> Result<void> {
        const std::uint32_t peer = 1 - spec.rank;
        const Numbers out(library, std::vector<float>(kCount, static_cast<float>(spec.rank)));
        const Numbers in(library, std::vector<float>(kCount, 9));
        const Send send{peer, out.data(), kCount * sizeof(float)};
        const Receive receive{peer, in.data(), kCount * sizeof(float)};
        auto first = group.start({&send, 1}, {});
        auto second = group.start({}, {&receive, 1});
        if (!first || !second) return fail(Errc::internal, "start");
        if (auto ok = (*first)->wait(); !ok) return ok;
        if (auto ok = (*second)->wait(); !ok) return ok;
        if (in.values().back() != static_cast<float>(peer))
            return fail(Errc::internal, "got {}", in.values().back());
        return {};
    };
    CHECK(failures(on_fake(2, body, library)) == "");
}

TEST_CASE("what nobody has waited for is sent before the next operation", "[nccl]") {
    const Library library = fake();
    const auto body = [&](Group& group, const GroupSpec& spec) -> Result<void> {
        const Numbers out(library, {3});
        const Numbers in(library, {9});
        const Send send{1, out.data(), sizeof(float)};
        const Receive receive{0, in.data(), sizeof(float)};
        auto pending =
            spec.rank == 0 ? group.start({&send, 1}, {}) : group.start({}, {&receive, 1});
        if (!pending) return std::unexpected(pending.error());
        if (auto ok = group.run(op::barrier()); !ok) return ok;
        if (auto ok = (*pending)->wait(); !ok) return ok;
        if (spec.rank == 1 && in.values() != std::vector<float>{3})
            return fail(Errc::internal, "got {}", in.values().front());
        return {};
    };
    CHECK(failures(on_fake(2, body, library)) == "");
}

TEST_CASE("what ranks say to each other from the host's memory goes through the GPUs'", "[nccl]") {
    const Library library = fake();
    for (const std::uint32_t size : {1u, 2u, 3u, 5u}) {
        const auto body = [&](Group& group, const GroupSpec& spec) -> Result<void> {
            for (const std::size_t bytes : {0, 1, 8, 13'107, 200'001}) {
                std::vector<unsigned char> out(bytes * size, 0xee);
                const std::vector<unsigned char> in(bytes, static_cast<unsigned char>(spec.rank));
                if (auto ok = group.allgather_on_host(in.data(), out.data(), bytes); !ok) return ok;
                for (std::size_t i = 0; i < out.size(); ++i)
                    if (out[i] != i / bytes)
                        return fail(Errc::internal, "byte {} of {} is {}", i, bytes, out[i]);
            }
            std::vector<std::uint64_t> all(size);
            all[spec.rank] = spec.rank + 10;
            auto ok = group.allgather_on_host(&all[spec.rank], all.data(), sizeof(std::uint64_t));
            if (ok && all.back() != size + 9) return fail(Errc::internal, "in place");
            return ok;
        };
        CHECK(failures(on_fake(size, body, library)) == "");
    }
}

TEST_CASE("many arrays are reduced without a wait in between", "[nccl]") {
    const Library library = fake();
    for (const bool blocking : {true, false}) {
        Settings settings;
        settings.blocking_operations = blocking;
        const auto body = [&](Group& group, const GroupSpec& spec) -> Result<void> {
            std::vector<std::unique_ptr<Numbers>> data;
            std::vector<Array> arrays;
            for (std::size_t i = 0; i < 600; ++i) {
                const std::vector<float> values(i % 7, static_cast<float>(i + spec.rank));
                data.push_back(std::make_unique<Numbers>(library, values));
                arrays.push_back({data.back()->data(), values.size()});
            }
            if (auto ok = group.allreduce_many(arrays, DType::f32, Reduce::average); !ok) return ok;
            for (std::size_t i = 0; i < data.size(); ++i)
                for (const float value : data[i]->values())
                    if (value != static_cast<float>(i) + 1)
                        return fail(Errc::internal, "array {}: {}", i, value);
            std::vector<float> host{1, 2};
            arrays[599] = {host.data(), 2};
            const auto refused = group.allreduce_many(arrays, DType::f32, Reduce::sum);
            if (refused || refused.error().code != Errc::invalid_input)
                return fail(Errc::internal, "host memory: {}", outcome(refused));
            return group.allreduce_many({}, DType::f32, Reduce::sum);
        };
        CHECK(failures(on_fake(3, body, library, settings)) == "");
    }
}

TEST_CASE("a single rank needs no store", "[nccl]") {
    const Library library = fake();
    MemoryStore store;
    GroupSpec spec = thread_spec(0, 1, store);
    spec.store = nullptr;
    const auto group = NcclGroup::connect(library, spec, {});
    INFO((group ? "" : group.error().message));
    REQUIRE(group.has_value());
    CHECK((*group)->run(op::barrier()).has_value());
    CHECK((*group)->facts().details[1].second == "no: no other rank on this host");
}

TEST_CASE("the plug-in finds the library by itself and makes groups", "[nccl]") {
    const Variable nccl("DTRUN_NCCL_LIBRARY", FAKE_NCCL);
    const Variable cudart("DTRUN_CUDART_LIBRARY", FAKE_NCCL);
    const auto backend = load_plugin(NCCL_PLUGIN);
    INFO((backend ? "" : backend.error().message));
    REQUIRE(backend.has_value());
    CHECK(backend->probe().available);
    CHECK(backend->probe().why == "NCCL 2.28.9, 8 GPUs");
    {
        const Variable no_driver("FAKE_GPU_ERROR", "35");
        CHECK_FALSE(backend->probe().available);
        CHECK(backend->probe().why ==
              "NCCL 2.28.9, but no GPU can be used: CUDA driver version is insufficient for CUDA "
              "runtime version");
    }
    const auto body = [](Group& group, const GroupSpec&) -> Result<void> {
        if (!group.on_device()) return fail(Errc::internal, "not on a GPU");
        const GroupFacts facts = group.facts();
        if (facts.version != "NCCL 2.28.9" || facts.details.size() != 3 ||
            facts.details[1].second != "yes")
            return fail(Errc::internal, "other facts");
        return group.run(op::barrier());
    };
    CHECK(failures(run_ranks(2, backend->connect, body)) == "");
}

}  // namespace dtrun::collectives::nccl
