// What one thread of a program gets from its store: one operation at a time by the functions that wait, and
// many in flight by requests that do not. Run it as a rank, or with a daemon's variables.
//
//     rendezvous_flight IN_FLIGHT SECONDS [VALUE_BYTES]
//
// Prints one JSON object: thousand operations a second of set and get, each way. All keys are there before the first is timed,
// so that no get waits for one that a slow disk has not been given yet.

#include <dtrun/worker.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kKeysMax = 1'000;
constexpr std::size_t kStoreBytes = 64u << 20;  // of all keys together
constexpr std::size_t kValueBytes = 64;         // as in the other loads

/// Keys, and the value that all have.
class Load {
public:
    Load(dtrun_worker* worker, double seconds, std::size_t value_bytes)
        : worker_(worker), seconds_(seconds), value_(value_bytes, 'x') {
        const std::size_t keys = std::clamp<std::size_t>(kStoreBytes / value_bytes, 1, kKeysMax);
        for (std::size_t i = 0; i < keys; ++i) keys_.push_back("key" + std::to_string(i));
    }

    void set_all_keys() {
        for (std::uint64_t i = 0; i < keys_.size(); ++i) submit(DTRUN_OP_SET, i);
        for (std::uint64_t i = 0; i < keys_.size(); ++i) complete();
    }

    double one_by_one(int operation) {
        return rate([&](std::uint64_t i) {
            const dtrun_view key = view(keys_[i % keys_.size()]);
            dtrun_bytes value{};
            check(operation == DTRUN_OP_SET ? dtrun_set(worker_, key, view(value_))
                                            : dtrun_get(worker_, key, DTRUN_FOREVER, &value));
            dtrun_free(value.data);
        });
    }

    double in_flight(int operation, std::uint64_t window) {
        for (std::uint64_t i = 0; i < window; ++i) submit(operation, i);
        const double rate_now = rate([&](std::uint64_t i) {
            complete();
            submit(operation, i);
        });
        for (std::uint64_t i = 0; i < window; ++i) complete();
        return rate_now;
    }

private:
    template <class Operation>
    double rate(Operation operation) {
        const auto begin = Clock::now();
        const auto end = begin + std::chrono::duration<double>(seconds_);
        std::uint64_t count = 0;
        do operation(count++);
        while (Clock::now() < end);
        return static_cast<double>(count) /
               std::chrono::duration<double>(Clock::now() - begin).count() * 1e-3;
    }

    void submit(int operation, std::uint64_t i) {
        const dtrun_view key = view(keys_[i % keys_.size()]), value = view(value_);
        dtrun_submission request{};
        request.size = sizeof request;
        request.operation = operation;
        request.more = 1;
        request.keys = &key;
        request.key_count = 1;
        request.values = &value;
        request.value_count = operation == DTRUN_OP_SET ? 1 : 0;
        request.timeout_ms = DTRUN_FOREVER;
        check(dtrun_submit(worker_, &request, nullptr));
    }

    void complete() {
        dtrun_completion completion{};
        completion.size = sizeof completion;
        check(dtrun_complete(worker_, DTRUN_FOREVER, &completion));
        check(completion.code);
        dtrun_free(completion.value.data);
    }

    static dtrun_view view(const std::string& text) { return {text.data(), text.size()}; }

    static void check(int code) {
        if (code == DTRUN_OK) return;
        std::fprintf(stderr, "rendezvous_flight: %s\n", dtrun_error_text());
        std::exit(1);
    }

    dtrun_worker* const worker_;
    const double seconds_;
    std::vector<std::string> keys_;
    const std::string value_;
};

}  // namespace

int main(int argc, char** argv) {
    const std::uint64_t window = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
    const double seconds = argc > 2 ? std::strtod(argv[2], nullptr) : 0;
    const std::uint64_t value_bytes = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : kValueBytes;
    if (window == 0 || seconds <= 0 || value_bytes == 0) {
        std::fputs("rendezvous_flight IN_FLIGHT SECONDS [VALUE_BYTES]\n", stderr);
        return 2;
    }
    dtrun::Worker worker;
    Load load(worker.handle(), seconds, value_bytes);
    load.set_all_keys();
    const double set = load.one_by_one(DTRUN_OP_SET), get = load.one_by_one(DTRUN_OP_GET);
    const double sets = load.in_flight(DTRUN_OP_SET, window);
    const double gets = load.in_flight(DTRUN_OP_GET, window);
    std::printf("{\"set\": %.3f, \"get\": %.3f, \"sets\": %.3f, \"gets\": %.3f}\n", set, get, sets,
                gets);
    return 0;
}
