#include "tests/collectives/nccl/fake_fixture.h"

#include <dlfcn.h>
#include <atomic>
#include <thread>

namespace dtrun::collectives::nccl {
namespace {

using std::chrono::milliseconds;

/// What the fake runtime can do that no other one can.
class Switches {
public:
    Switches() : library_(::dlopen(FAKE_NCCL, RTLD_NOW | RTLD_LOCAL)) {
        REQUIRE(library_ != nullptr);
        close_gate = reinterpret_cast<void (*)(void*)>(::dlsym(library_, "fakeCloseGate"));
        open_gate = reinterpret_cast<void (*)()>(::dlsym(library_, "fakeOpenGate"));
        capture = reinterpret_cast<int (*)(void*)>(::dlsym(library_, "fakeCapture"));
    }
    ~Switches() { ::dlclose(library_); }
    Switches(const Switches&) = delete;
    Switches& operator=(const Switches&) = delete;

    void (*close_gate)(void* stream) = nullptr;
    void (*open_gate)() = nullptr;
    int (*capture)(void* stream) = nullptr;

private:
    void* library_;
};

/// A stream of the caller's.
class Stream {
public:
    explicit Stream(const Library& library) : gpu_(library->gpu) {
        gpu_.stream_create_with_flags(&stream_, kStreamNonBlocking);
    }
    ~Stream() { gpu_.stream_destroy(stream_); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    GpuStream* get() const { return stream_; }
    void wait() const {
        while (gpu_.stream_query(stream_) == kGpuNotReady) std::this_thread::yield();
    }
    void copy(const Numbers& to, const Numbers& from) const {
        gpu_.memcpy_async(to.data(), from.data(), to.count() * sizeof(float), kMemcpyDefault,
                          stream_);
    }

private:
    const GpuFunctions& gpu_;
    GpuStream* stream_ = nullptr;
};

/// The sum of one rank's numbers while `before` still waits in a stream to be copied into them.
/// \param stream  nullptr: the default one
Result<void> sum_behind_gate(Group& group, const Library& library, GpuStream* stream) {
    const Switches switches;
    const Numbers numbers(library, {0});
    const Numbers late(library, {5});
    switches.close_gate(stream);
    library->gpu.memcpy_async(numbers.data(), late.data(), sizeof(float), kMemcpyDefault, stream);
    std::atomic<bool> done{false};
    Result<void> result;
    group.follow(group.mark(stream));
    std::thread operation([&] {
        result = sum(group, numbers);
        done = true;
    });
    std::this_thread::sleep_for(milliseconds(50));
    const bool early = done;
    switches.open_gate();
    operation.join();
    if (early || numbers.values() != std::vector<float>{5})
        return fail(Errc::internal, "{} too early", numbers.values().front());
    return result;
}

}  // namespace

TEST_CASE("an operation comes after what the caller's stream was given, whichever it is",
          "[nccl][streams]") {
    const Library library = fake();
    const auto body = [&](Group& group, const GroupSpec&) -> Result<void> {
        const Stream side(library);
        if (auto ok = sum_behind_gate(group, library, side.get()); !ok) return ok;
        // 1 is the default stream's other name.
        if (auto ok = sum_behind_gate(group, library, reinterpret_cast<GpuStream*>(1)); !ok)
            return ok;
        return sum_behind_gate(group, library, nullptr);
    };
    CHECK(failures(on_fake(1, body, library)) == "");
}

TEST_CASE("an operation does not wait for what a stream is given after its mark, nor for others",
          "[nccl][streams]") {
    const Library library = fake();
    const Switches switches;
    const auto body = [&](Group& group, const GroupSpec&) -> Result<void> {
        const Stream backward(library);
        const Stream other(library);
        const Numbers numbers(library, {0});
        const Numbers ready(library, {5});
        const Numbers unready(library, {7});
        backward.copy(numbers, ready);
        const auto mark = group.mark(backward.get());
        // The rest of the backward pass is queued before the operation's own thread gets to run.
        switches.close_gate(backward.get());
        backward.copy(unready, ready);
        group.follow(mark);
        const auto result = sum(group, numbers);
        const bool waited = unready.values() != std::vector<float>{7};
        switches.open_gate();
        backward.wait();
        if (waited) return fail(Errc::internal, "it has waited for the rest");
        if (numbers.values() != std::vector<float>{5}) return fail(Errc::internal, "too early");
        return result;
    };
    CHECK(failures(on_fake(1, body, library)) == "");
}

TEST_CASE("marks from many threads are all kept, whichever thread runs the operations",
          "[nccl][streams]") {
    const Library library = fake();
    const auto body = [&](Group& group, const GroupSpec&) -> Result<void> {
        constexpr int kThreads = 4;
        std::vector<std::shared_ptr<void>> marks(kThreads * 50);
        std::vector<std::thread> threads;
        for (int thread = 0; thread < kThreads; ++thread)
            threads.emplace_back([&, thread] {
                const Stream side(library);
                const Numbers from(library, std::vector<float>(1000, 1));
                const Numbers to(library, std::vector<float>(1000));
                for (int i = 0; i < 50; ++i) {
                    side.copy(to, from);
                    marks[static_cast<std::size_t>(thread * 50 + i)] = group.mark(side.get());
                }
                side.wait();
            });
        for (std::thread& thread : threads) thread.join();
        const Numbers numbers(library, {1});
        for (auto& mark : marks) {
            group.follow(std::move(mark));
            if (auto ok = sum(group, numbers); !ok) return ok;
        }
        return {};
    };
    CHECK(failures(on_fake(1, body, library)) == "");
}

TEST_CASE("a graph that is being captured is neither joined nor disturbed", "[nccl][streams]") {
    const Library library = fake();
    const Switches switches;
    const auto body = [&](Group& group, const GroupSpec&) -> Result<void> {
        const Stream captured(library);
        const Stream side(library);
        const Numbers numbers(library, {3});
        switches.capture(captured.get());
        group.follow(group.mark(side.get()));
        auto beside = sum(group, numbers);
        group.follow(group.mark(captured.get()));
        const auto inside = sum(group, numbers);
        const int disturbed = switches.capture(nullptr);
        if (!beside) return beside;
        if (inside || inside.error().code != Errc::invalid_input ||
            inside.error().message.find("captured into a graph") == std::string::npos)
            return fail(Errc::internal, "inside: {}", outcome(inside));
        if (disturbed != 0) return fail(Errc::internal, "{} calls disturbed it", disturbed);
        group.follow(group.mark(captured.get()));
        return sum(group, numbers);
    };
    CHECK(failures(on_fake(1, body, library)) == "");
}

TEST_CASE("no operation leaves an error behind that the caller would take for its own",
          "[nccl][streams]") {
    const Library library = fake();
    const Switches switches;
    const auto body = [&](Group& group, const GroupSpec&) -> Result<void> {
        library->gpu.get_last_error();
        const Numbers numbers(library, std::vector<float>(100'000, 1));
        switches.close_gate(nullptr);
        std::thread opens([&] {
            std::this_thread::sleep_for(milliseconds(20));
            switches.open_gate();
        });
        group.follow(group.mark(nullptr));
        const auto ok = sum(group, numbers);
        opens.join();
        if (const int left = library->gpu.get_last_error(); ok && left != kGpuSuccess)
            return fail(Errc::internal, "error {}", left);
        return ok;
    };
    CHECK(failures(on_fake(1, body, library)) == "");
}

}  // namespace dtrun::collectives::nccl
