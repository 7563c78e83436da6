// How fast one core encodes and decodes, in bytes of f32, against memcpy() of as many bytes.
//
//     codec_bench [--mib N]... [--runs N] [--dispatch scalar|avx2|avx512] [--only TEXT] [--json]
//
// Prints medians in GB/s for each size (256, 64 and 1 MiB unless told). Every run times all codecs in
// turn, each after another memcpy, in the thread's own time, so that what else the machine does
// falls on both; the ratio is the median of the runs' ratios. Small arrays are gone through as often
// as makes 64 MiB. Beyond some size (see glibc.cpu.x86_non_temporal_threshold of `ld.so
// --list-tunables`), glibc's memcpy goes past the caches, too, and is faster than for smaller arrays.

#include "collectives/codec/codec.h"
#include "collectives/codec/reduce.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <algorithm>
#include <cstring>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace dtrun::collectives;

struct Setup {
    std::vector<std::size_t> mib;
    int runs = 9;
    std::string dispatch;
    std::string only;  ///< cases whose names have this in them
    bool json = false;
};

/// Memory that starts with a page, as the large arrays of a program do.
class Pages {
public:
    explicit Pages(std::size_t bytes)
        : bytes_(bytes),
          data_(
              ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
        if (data_ == MAP_FAILED) {
            fmt::print(stderr, "codec_bench: no memory for {} bytes\n", bytes);
            std::exit(1);
        }
        std::memset(data_, 0, bytes);
    }
    ~Pages() { ::munmap(data_, bytes_); }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;

    float* floats() const { return static_cast<float*>(data_); }
    std::byte* bytes() const { return static_cast<std::byte*>(data_); }

private:
    std::size_t bytes_;
    void* data_;
};

struct Case {
    std::string name;
    std::function<void()> run;
    std::vector<double> rates;   ///< GB/s of f32, one for each run
    std::vector<double> ratios;  ///< to the memcpy before it
};

double median(std::vector<double> values) {
    std::ranges::nth_element(values, values.begin() + static_cast<long>(values.size() / 2));
    return values[values.size() / 2];
}

double thread_seconds() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double rate(const std::function<void()>& run, std::size_t bytes) {
    const std::size_t times = std::max<std::size_t>(1, (std::size_t{64} << 20) / bytes);
    const double start = thread_seconds();
    for (std::size_t i = 0; i < times; i++) run();
    return static_cast<double>(bytes * times) / (thread_seconds() - start) * 1e-9;
}

/// What lies where.
struct Arrays {
    explicit Arrays(std::size_t bytes) : count(bytes / sizeof(float)), values(bytes), copy(bytes) {
        std::minstd_rand random(1);
        std::normal_distribution<float> normal(0, 1e-3f);
        const std::size_t distinct = std::min<std::size_t>(count, 1 << 18);
        for (std::size_t i = 0; i < distinct; i++) values.floats()[i] = normal(random);
        for (std::size_t i = distinct; i < count; i++) {
            values.floats()[i] = values.floats()[i - distinct];
        }
    }
    std::size_t count;
    Pages values;
    Pages copy;
};

std::vector<Case> cases_of(Arrays& arrays, Pages& encoded, Pages& error) {
    float* const from = arrays.values.floats();
    float* const to = arrays.copy.floats();
    const std::size_t count = arrays.count;
    std::vector<Case> cases;
    const auto add = [&](std::string name, std::function<void()> run) {
        cases.push_back({std::move(name), std::move(run), {}, {}});
    };
    add("memcpy", [=] { std::memcpy(to, from, count * sizeof(float)); });
    add("y += x", [=] { reduce_into(to, to, from, count, DType::f32, Reduce::sum); });
    std::byte* const out = encoded.bytes();
    float* const lost = error.floats();
    for (const Format format : {Format::f16, Format::bf16, Format::e4m3, Format::e5m2, Format::int8,
                                Format::e4m3_unscaled, Format::e5m2_unscaled}) {
        const std::string name(name_of(format));
        add(name + " encode", [=] { encode(format, Rounding::nearest, 0, from, count, out); });
        add(name + " decode", [=] { decode(format, out, count, to); });
        add(name + " decode_add", [=] { decode_add(format, out, count, to); });
        add(name + " encode stochastic",
            [=] { encode(format, Rounding::stochastic, 1, from, count, out); });
        add(name + " encode with error",
            [=] { encode(format, Rounding::nearest, 0, from, count, out, lost); });
    }
    return cases;
}

void measure(std::size_t mib, const Setup& setup) {
    const std::size_t bytes = mib << 20;
    Arrays arrays(bytes);
    Pages encoded(encoded_bytes(Format::f16, arrays.count));
    Pages error(bytes);
    std::vector<Case> cases = cases_of(arrays, encoded, error);
    const std::function<void()> copy = cases.front().run;
    for (int run = -1; run < setup.runs; run++) {  // the first is to warm up
        for (Case& one : cases) {
            if (!one.name.contains(setup.only)) continue;
            const double copied = rate(copy, bytes);
            const double now = rate(one.run, bytes);
            if (run < 0) continue;
            one.rates.push_back(now);
            one.ratios.push_back(now / copied);
        }
    }
    if (!setup.json) fmt::print("{} MiB, {}\n", mib, codec_dispatch());
    for (const Case& one : cases) {
        if (one.rates.empty()) continue;
        if (setup.json) {
            fmt::print(
                "{{\"mib\":{},\"dispatch\":\"{}\",\"case\":\"{}\",\"gbps\":{:.3f},"
                "\"ratio\":{:.3f}}}\n",
                mib, codec_dispatch(), one.name, median(one.rates), median(one.ratios));
        } else {
            fmt::print("  {:36} {:7.1f} GB/s {:6.2f} x memcpy\n", one.name, median(one.rates),
                       median(one.ratios));
        }
    }
    std::fflush(stdout);
}

bool parse(int argc, char** argv, Setup& setup) {
    for (int i = 1; i < argc; i++) {
        const std::string name = argv[i];
        if (name == "--json") {
            setup.json = true;
            continue;
        }
        if (++i == argc) return false;
        if (name == "--dispatch") {
            setup.dispatch = argv[i];
        } else if (name == "--only") {
            setup.only = argv[i];
        } else if (name == "--mib") {
            setup.mib.push_back(std::strtoul(argv[i], nullptr, 10));
            if (setup.mib.back() == 0) return false;
        } else if (name == "--runs") {
            setup.runs = static_cast<int>(std::strtol(argv[i], nullptr, 10));
        } else {
            return false;
        }
    }
    if (setup.mib.empty()) setup.mib = {256, 64, 1};
    return setup.runs > 0;
}

}  // namespace

int main(int argc, char** argv) {
    Setup setup;
    if (!parse(argc, argv, setup)) {
        fmt::print(stderr, "codec_bench: see the top of bench/codec_bench.cpp for the options\n");
        return 2;
    }
    if (!setup.dispatch.empty()) {
        if (auto set = set_codec_dispatch(setup.dispatch); !set) {
            fmt::print(stderr, "codec_bench: {}\n", set.error().message);
            return 1;
        }
    }
    for (const std::size_t mib : setup.mib) measure(mib, setup);
    return 0;
}
