// Runs a libFuzzer target without libFuzzer: every input of the corpus, then mutations of them.
//
//     fuzz_NAME CORPUS_DIRECTORY_OR_FILE [--seconds N] [--seed S]      (or DTRUN_SEED=S)
//
// The input under test always lies in ./fuzz_NAME.input, so it is still there after a crash, a
// sanitizer's abort or a hang; run that file alone to see the failure again.

#include "base/fd.h"
#include "base/strings.h"
#include "tests/support/seed.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <random>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace dtrun {
namespace {

constexpr std::size_t kInputBytesMax = 4096;
constexpr int kUsageError = 2;

struct Options {
    std::string corpus;
    int seconds = 3;
    std::uint64_t seed = test_seed();
};

std::optional<Options> parse_options(const std::vector<std::string>& words) {
    Options options;
    for (std::size_t i = 0; i < words.size(); ++i) {
        const bool has_value = i + 1 < words.size();
        if (words[i] == "--seconds" && has_value) {
            const auto seconds = to_int(words[++i], 0, 1'000'000);
            if (!seconds) return {};
            options.seconds = static_cast<int>(*seconds);
        } else if (words[i] == "--seed" && has_value) {
            const auto seed = to_int(words[++i], 0, std::numeric_limits<long long>::max());
            if (!seed) return {};
            options.seed = static_cast<std::uint64_t>(*seed);
        } else if (options.corpus.empty() && !words[i].starts_with("--")) {
            options.corpus = words[i];
        } else {
            return {};
        }
    }
    if (options.corpus.empty()) return {};
    return options;
}

/// In order of their names, so that a seed means the same run everywhere.
Result<std::vector<std::string>> read_corpus(const std::string& path) {
    std::vector<std::string> paths;
    std::error_code error;
    if (std::filesystem::is_directory(path, error)) {
        for (const auto& entry : std::filesystem::directory_iterator(path, error))
            paths.push_back(entry.path());
    } else {
        paths.push_back(path);
    }
    if (error) return fail(Errc::internal, "{}: {}", path, error.message());
    std::sort(paths.begin(), paths.end());
    std::vector<std::string> inputs;
    for (const std::string& file : paths) {
        auto input = read_file(file);
        if (!input) return std::unexpected(input.error());
        inputs.push_back(std::move(*input));
    }
    if (inputs.empty()) return fail(Errc::invalid_input, "{}: no inputs", path);
    return inputs;
}

/// Makes new inputs out of those of the corpus.
class Mutator {
public:
    Mutator(std::vector<std::string> corpus, std::uint64_t seed)
        : corpus_(std::move(corpus)), random_(seed) {}

    std::string next() {
        std::string input = any();
        for (std::size_t edits = 1 + below(6); edits > 0; --edits) edit(input);
        if (input.size() > kInputBytesMax) input.resize(kInputBytesMax);
        return input;
    }

private:
    std::size_t below(std::size_t limit) { return random_() % limit; }
    const std::string& any() { return corpus_[below(corpus_.size())]; }
    char any_byte() { return static_cast<char>(below(256)); }

    void edit(std::string& input) {
        const std::size_t at = below(input.size() + 1);
        const std::size_t length = below(std::min<std::size_t>(input.size() - at, 16) + 1);
        switch (below(7)) {
            case 0:
                input.erase(at, length);
                break;
            case 1:
                input.insert(at, 1, any_byte());
                break;
            case 2:
                input.insert(at, input.substr(at, length));
                break;
            case 3:
                input.insert(at, kNumbers[below(kNumbers.size())]);
                break;
            case 4:
                splice(input, at);
                break;
            case 5:
                swap_with_neighbour(input, at);
                break;
            default:
                if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
        }
    }

    /// Puts a part of another input at `at`: that is where the separators of a format come from.
    void splice(std::string& input, std::size_t at) {
        const std::string& other = any();
        const std::size_t from = below(other.size() + 1);
        input.insert(at, other, from, 1 + below(32));
    }

    static void swap_with_neighbour(std::string& input, std::size_t at) {
        if (at + 1 < input.size()) std::swap(input[at], input[at + 1]);
    }

    static constexpr std::array<const char*, 8> kNumbers = {
        "0", "-1", "65536", "65537", "2147483648", "4294967296", "18446744073709551616", "999999"};

    std::vector<std::string> corpus_;
    std::mt19937_64 random_;
};

/// Runs the target on one input, which is first written to `file`.
Result<void> run(int file, const std::string& input) {
    if (::lseek(file, 0, SEEK_SET) != 0 || ::ftruncate(file, 0) != 0)
        return fail(Errc::internal, "the input under test cannot be written");
    if (const auto written = write_all(file, input); !written) return written;
    // An exact copy on the heap, so that AddressSanitizer sees a read past the end.
    const std::vector<std::uint8_t> bytes(input.begin(), input.end());
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    return {};
}

Result<std::uint64_t> fuzz(const Options& options, int file) {
    auto corpus = read_corpus(options.corpus);
    if (!corpus) return std::unexpected(corpus.error());
    std::uint64_t runs = 0;
    for (const std::string& input : *corpus) {
        if (const auto ran = run(file, input); !ran) return std::unexpected(ran.error());
        ++runs;
    }
    if (!std::filesystem::is_directory(options.corpus)) return runs;
    Mutator mutator(std::move(*corpus), options.seed);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(options.seconds);
    while (std::chrono::steady_clock::now() < end) {
        if (const auto ran = run(file, mutator.next()); !ran) return std::unexpected(ran.error());
        ++runs;
    }
    return runs;
}

}  // namespace
}  // namespace dtrun

int main(int argc, char** argv) {
    const auto options = dtrun::parse_options({argv + 1, argv + argc});
    if (!options) {
        fmt::print(stderr, "usage: {} CORPUS [--seconds N] [--seed S]\n", argv[0]);
        return dtrun::kUsageError;
    }
    const std::string path = std::filesystem::path(argv[0]).filename().string() + ".input";
    if (std::filesystem::path(options->corpus).filename() == path) {
        fmt::print(stderr, "{}: rename it first, a run overwrites this file\n", path);
        return dtrun::kUsageError;
    }
    const dtrun::Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    fmt::print("seed {}; if this ends early, the input is in {}\n", options->seed, path);
    std::fflush(stdout);
    const auto runs = dtrun::fuzz(*options, file.get());
    if (!runs) {
        fmt::print(stderr, "{}\n", runs.error().message);
        return 1;
    }
    ::unlink(path.c_str());
    fmt::print("{} inputs\n", *runs);
    return 0;
}
