// Runs the nccl backend on this host's GPU: every operation with one rank, then with two processes
// on the one GPU, which NCCL takes for two hosts (NCCL_HOSTID); that is nothing NCCL supports, so it
// has a deadline of its own. Exit code 77: no GPU here.
//
//   test_nccl_gpu [--largest BYTES] [--ranks N] [--require-two] [--json FILE]
//                                      all of that, with N processes (default 2); --require-two:
//                                      a failure of several ranks on one GPU, and a GPU without
//                                      codecs, are failures of the test; --json: each result is a
//                                      line of the file
//   test_nccl_gpu --rank R --size N --folder DIR [--die-after K]
//                                      one of several ranks; or allreduce over and over until
//                                      rank 1 kills itself after K times

#include "collectives/backends/nccl/group.h"
#include "collectives/codec/codec.h"
#include "tests/collectives/nccl/folder_store.h"
#include "tests/collectives/nccl/nccl_fixture.h"
#include "tests/collectives/support/thread_ranks.h"
#include "tests/support/temp_dir.h"

#include <fmt/core.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <optional>
#include <string_view>

namespace dtrun::collectives::nccl {
namespace {

using Clock = std::chrono::steady_clock;
using Library = std::shared_ptr<const NcclLibrary>;

constexpr int kNoGpu = 77;

std::string environment(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? std::string() : std::string(value);
}

Result<Library> open_library() {
    auto library =
        NcclLibrary::open({environment("DTRUN_NCCL_LIBRARY"), environment("DTRUN_CUDART_LIBRARY")});
    if (!library) return library;
    if (const auto count = (*library)->device_count(); !count)
        return std::unexpected(count.error());
    return library;
}

struct Options {
    std::size_t largest = 256 << 20;  ///< bytes of an allreduce
    std::uint32_t ranks = 2;          ///< processes of the second part
    bool require = false;             ///< nothing may be left out
    std::string json;
    std::uint32_t rank = 0;
    std::uint32_t size = 0;  ///< 0: all that this program does
    std::string folder;
    int die_after = 0;

    /// Adds a line to the file of results. Several processes may, as long as one at a time does.
    void note(const std::string& members) const {
        if (json.empty()) return;
        std::ofstream file(json, std::ios::app);
        file << "{" << members << "}\n";
    }
};

/// One NCCL communicator of one rank, as a program without dtrun would use it.
class Bare {
public:
    explicit Bare(const Library& library) : library_(library) {
        UniqueId id{};
        NcclConfig config;
        config.blocking = 1;
        library_->nccl.get_unique_id(&id);
        library_->nccl.comm_init_rank_config(&comm_, 1, id, 0, &config);
        library_->gpu.stream_create_with_flags(&stream_, kStreamNonBlocking);
    }
    ~Bare() {
        library_->nccl.comm_destroy(comm_);
        library_->gpu.stream_destroy(stream_);
    }
    Bare(const Bare&) = delete;
    Bare& operator=(const Bare&) = delete;

    Result<void> allreduce(void* data, std::size_t count) {
        const NcclResult result = library_->nccl.all_reduce(data, data, count, NcclType::f32,
                                                            NcclOp::sum, comm_, stream_);
        if (result != NcclResult::success)
            return fail(Errc::internal, "NCCL itself: {}", library_->nccl_error(result, comm_));
        while (library_->gpu.stream_query(stream_) == kGpuNotReady) {
        }
        return {};
    }

private:
    Library library_;
    NcclComm* comm_ = nullptr;
    GpuStream* stream_ = nullptr;
};

/// Shortest time of one call, in seconds: of `reduce`, with so many bytes of the GPU's memory.
Result<double> shortest(const Library& library, std::size_t bytes,
                        const std::function<Result<void>(void* data)>& reduce) {
    void* data = nullptr;
    if (const int code = library->gpu.malloc(&data, bytes); code != kGpuSuccess)
        return fail(Errc::internal, "{}", library->gpu_error(code));
    Result<void> ok;
    double best = 1e9;
    const int times = bytes > (16 << 20) ? 5 : 50;
    for (int i = 0; i < times + 2 && ok; ++i) {
        const auto begun = Clock::now();
        ok = reduce(data);
        best = std::min(best, std::chrono::duration<double>(Clock::now() - begun).count());
    }
    library->gpu.free(data);
    if (!ok) return std::unexpected(ok.error());
    return best;
}

Result<void> measure(Group& group, const GroupSpec& spec, const Library& library,
                     const Options& options) {
    std::optional<Bare> bare;
    if (spec.size == 1) bare.emplace(library);
    if (spec.rank == 0)
        fmt::print("{:>12} {:>12} {:>14} {:>14} {:>14}\n", "bytes", "time (us)", "algbw (GB/s)",
                   "busbw (GB/s)", "of NCCL itself");
    for (std::size_t bytes = 4; bytes <= options.largest; bytes *= 8) {
        const std::size_t count = bytes / sizeof(float);
        const auto ours = shortest(library, bytes, [&](void* data) {
            return group.run(op::allreduce(data, data, count, DType::f32, Reduce::sum));
        });
        if (!ours) return std::unexpected(ours.error());
        std::string ratio;
        if (bare) {
            const auto theirs =
                shortest(library, bytes, [&](void* data) { return bare->allreduce(data, count); });
            if (!theirs) return std::unexpected(theirs.error());
            ratio = fmt::format("{:.2f}", *theirs / *ours);
        }
        if (spec.rank != 0) continue;
        const double algorithm = static_cast<double>(bytes) / *ours / 1e9;
        fmt::print("{:>12} {:>12.1f} {:>14.2f} {:>14.2f} {:>14}\n", bytes, *ours * 1e6, algorithm,
                   algorithm * 2 * (spec.size - 1) / spec.size, ratio);
        options.note(fmt::format(R"("kind": "allreduce", "ranks": {}, "bytes": {}, "us": {:.2f}{})",
                                 spec.size, bytes, *ours * 1e6,
                                 ratio.empty() ? "" : ", \"of_nccl\": " + ratio));
    }
    return {};
}

/// What the codecs make of an allreduce: the same bits on all ranks, near the sum, and how long.
Result<void> check_compressed(Group& group, const GroupSpec& spec, const Library& library,
                              const Options& options) {
    const std::size_t bytes =
        std::min<std::size_t>(options.largest, 64 << 20) / sizeof(float) * sizeof(float);
    const std::size_t count = bytes / sizeof(float);
    std::vector<float> values(count);
    std::vector<float> should(count);
    for (std::size_t i = 0; i < count; ++i)
        for (std::uint32_t rank = 0; rank < spec.size; ++rank) {
            const float value = std::sin(static_cast<float>(i % 8191 * (rank + 1) + 1));
            should[i] += value;
            if (rank == spec.rank) values[i] = value;
        }
    const DeviceMemory memory = device_memory(*library);
    const std::unique_ptr<void, std::function<void(void*)>> data(memory.allocate(bytes),
                                                                 memory.release);
    auto* const array = static_cast<float*>(data.get());
    for (const Format format : {Format::int8, Format::e4m3, Format::f16}) {
        const Compression compression{.format = format};
        const Segment all{array, array, count};
        memory.copy_in(array, values.data(), bytes);
        auto ok = group.allreduce_compressed({&all, 1}, Reduce::sum, compression, 1);
        if (!ok && ok.error().code == Errc::invalid_input && !options.require) {
            if (spec.rank == 0) fmt::print("SKIPPED: {}\n", ok.error().message);
            return {};
        }
        if (!ok) return ok;
        std::vector<float> got(count);
        memory.copy_out(got.data(), array, bytes);
        double wrong = 0;
        for (std::size_t i = 0; i < count; ++i)
            wrong = std::max(wrong, std::abs(double{got[i]} - should[i]));
        const std::size_t own =
            std::hash<std::string_view>()({reinterpret_cast<const char*>(got.data()), bytes});
        std::vector<std::size_t> hashes(spec.size);
        if (ok = group.allgather_on_host(&own, hashes.data(), sizeof own); !ok) return ok;
        if (wrong > 0.1 * spec.size || hashes != std::vector<std::size_t>(spec.size, own))
            return fail(Errc::internal, "{}: wrong by {}, or other bits elsewhere", name_of(format),
                        wrong);
        const auto time = shortest(library, bytes, [&](void* some) {
            auto* const floats = static_cast<float*>(some);
            const Segment one{floats, floats, count};
            return group.allreduce_compressed({&one, 1}, Reduce::sum, compression, 1);
        });
        if (!time) return std::unexpected(time.error());
        if (spec.rank == 0)
            fmt::print("compressed allreduce: {} of {} bytes in {:.1f} us\n", name_of(format),
                       bytes, *time * 1e6);
        if (spec.rank == 0)
            options.note(fmt::format(
                R"("kind": "compressed", "format": "{}", "ranks": {}, "bytes": {}, "us": {:.2f})",
                name_of(format), spec.size, bytes, *time * 1e6));
    }
    return {};
}

Result<void> run_rank(const Library& library, const GroupSpec& spec, bool blocking,
                      const Options& options) {
    const auto begun = Clock::now();
    Settings settings;
    settings.blocking_operations = blocking;
    settings.codecs = environment("DTRUN_CODEC_CUDA_LIBRARY");
    if (settings.codecs.empty()) settings.codecs = DTRUN_CODEC_CUDA;
    auto group = NcclGroup::connect(library, spec, settings);
    if (!group) return std::unexpected(group.error());
    if (spec.rank == 0)
        fmt::print("{}, {} rank{}, connected in {:.0f} ms, operations {}\n",
                   (*group)->facts().version, spec.size, spec.size == 1 ? "" : "s",
                   std::chrono::duration<double, std::milli>(Clock::now() - begun).count(),
                   blocking ? "in the caller's thread" : "in NCCL's threads");
    CheckOptions checks;
    checks.memory = device_memory(*library);
    checks.nans = false;  // NCCL's own min and max lose them
    checks.large_bytes = std::min(checks.large_bytes, options.largest);
    if (auto ok = check_group(**group, spec, checks); !ok) return ok;
    if (auto ok = measure(**group, spec, library, options); !ok) return ok;
    if (auto ok = check_compressed(**group, spec, library, options); !ok) return ok;
    if (spec.rank == 0)
        for (const auto& [name, value] : (*group)->facts().details)
            fmt::print("{}: {}\n", name, value);
    return {};
}

/// One of several ranks, which may end itself.
Result<void> run_one_of(const Library& library, const Options& options) {
    FolderStore store(options.folder);
    GroupSpec spec = thread_spec(options.rank, options.size, store);
    if (options.die_after == 0) {
        for (const bool blocking : {true, false}) {
            spec.prefix += "next/";
            if (auto ok = run_rank(library, spec, blocking, options); !ok) return ok;
        }
        return {};
    }
    auto group = NcclGroup::connect(library, spec, {});
    if (!group) return std::unexpected(group.error());
    void* data = nullptr;
    library->gpu.malloc(&data, 4096);
    Result<void> ok;
    for (int i = 0; i < 200 && ok; ++i) {
        if (spec.rank == 1 && i == options.die_after) ::raise(SIGKILL);
        ok = (*group)->run(op::allreduce(data, data, 1024, DType::f32, Reduce::sum));
    }
    library->gpu.free(data);
    return ok;
}

/// The program as one of several ranks. \return 0 if it could not be started
pid_t start_rank(const Options& options, std::uint32_t rank, const std::string& folder) {
    std::vector<std::string> words{"test_nccl_gpu",
                                   "--rank",
                                   std::to_string(rank),
                                   "--size",
                                   std::to_string(options.ranks),
                                   "--folder",
                                   folder,
                                   "--largest",
                                   std::to_string(options.largest)};
    if (options.require) words.emplace_back("--require-two");
    if (!options.json.empty()) words.insert(words.end(), {"--json", options.json});
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    pid_t process = 0;
    const int failed =
        ::posix_spawn(&process, "/proc/self/exe", nullptr, nullptr, pointers.data(), environ);
    return failed == 0 ? process : 0;
}

/// Several processes, with a GPU each if there are as many.
int run_several(const Options& options, bool one_gpu, std::chrono::seconds timeout) {
    const TempDir folder;
    std::vector<pid_t> ranks;
    for (std::uint32_t rank = 0; rank < options.ranks; ++rank) {
        if (one_gpu) ::setenv("NCCL_HOSTID", fmt::format("dtrun-test-{}", rank).c_str(), 1);
        ranks.push_back(start_rank(options, rank, folder.path()));
        if (ranks.back() == 0) return 1;
    }
    const auto deadline = Clock::now() + timeout;
    int worst = 0;
    std::size_t left = ranks.size();
    while (left > 0) {
        for (pid_t& rank : ranks) {
            int status = 0;
            if (rank == 0 || ::waitpid(rank, &status, WNOHANG) != rank) continue;
            rank = 0;
            --left;
            worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 128);
        }
        if (Clock::now() > deadline)
            for (const pid_t rank : ranks)
                if (rank != 0) ::kill(rank, SIGKILL);
        ::usleep(10'000);
    }
    return worst;
}

int report(const Result<void>& result) {
    if (result) return 0;
    fmt::print(stderr, "{}\n", result.error().message);
    return result.error().code == Errc::closed ? 3 : 1;
}

int run_all(const Library& library, const Options& options) {
    for (const bool blocking : {true, false}) {
        MemoryStore store;
        const auto ok = run_rank(library, thread_spec(0, 1, store), blocking, options);
        if (!ok) return report(ok);
    }
    std::fflush(stdout);
    const bool one_gpu = *library->device_count() < static_cast<int>(options.ranks);
    const int code = run_several(options, one_gpu, std::chrono::seconds(120));
    options.note(fmt::format(R"("kind": "outcome", "ranks": {}, "one_gpu": {}, "exit": {})",
                             options.ranks, one_gpu, code));
    if (code == 0) return 0;
    // By NCCL's own word ranks that share a GPU may hang: what one rank has shown counts.
    fmt::print("{} ranks on {}: did not work (exit code {})\n", options.ranks,
               one_gpu ? "one GPU" : "a GPU each", code);
    return one_gpu && !options.require ? 0 : 1;
}

Options read_options(int count, char** words) {
    Options options;
    for (int i = 1; i < count; ++i) {
        const std::string_view option = words[i];
        if (option == "--require-two") {
            options.require = true;
            continue;
        }
        const char* const value = i + 1 < count ? words[++i] : "";
        const auto number = std::strtoull(value, nullptr, 10);
        if (option == "--largest") options.largest = number;
        if (option == "--ranks") options.ranks = static_cast<std::uint32_t>(number);
        if (option == "--json") options.json = value;
        if (option == "--rank") options.rank = static_cast<std::uint32_t>(number);
        if (option == "--size") options.size = static_cast<std::uint32_t>(number);
        if (option == "--folder") options.folder = value;
        if (option == "--die-after") options.die_after = static_cast<int>(number);
    }
    return options;
}

}  // namespace

int run(int count, char** words) {
    const auto library = open_library();
    if (!library) {
        fmt::print("SKIPPED: {}\n", library.error().message);
        return kNoGpu;
    }
    const Options options = read_options(count, words);
    if (options.size == 0) return run_all(*library, options);
    return report(run_one_of(*library, options));
}

}  // namespace dtrun::collectives::nccl

int main(int count, char** words) {
    return dtrun::collectives::nccl::run(count, words);
}
