// How many bytes a second the head's output path takes: 16 ranks' chunks in turn, as they would
// come from the agents, through prefixes to a descriptor.
//
//     output_bench [--tag T] [--timestamps] [--line N] [--chunk N] [--ranks N] [--mb N] [--runs N]
//                  [--dir D] [--to PATH]
//
// Prints the median of the runs: wall time, and CPU time of the thread that formats.

#include "base/fd.h"
#include "launcher/output/output_mux.h"
#include "rendezvous/wire/output_messages.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <condition_variable>
#include <ctime>
#include <map>
#include <mutex>
#include <string>

namespace {

using namespace dtrun;
using namespace dtrun::output;

struct Setup {
    OutputOptions output;
    std::string to = "/dev/null";
    std::size_t ranks = 16;
    std::size_t line_bytes = 80;
    std::size_t chunk_bytes = 65536;
    std::size_t total_bytes = 1u << 30;
    std::size_t window_bytes = 4u << 20;  // uncredited, over all ranks
    int runs = 7;
};

struct Figure {
    double wall_s;
    double cpu_s;
};

double seconds(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// Wakes the one thread of this program, as an event loop would be.
class Bell {
public:
    void ring() {
        const std::lock_guard lock(mutex_);
        rung_ = true;
        changed_.notify_one();
    }
    void wait() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return rung_; });
        rung_ = false;
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool rung_ = false;
};

/// One rank's chunks, one after the other; their ends fall anywhere in a line.
std::string make_text(const Setup& setup) {
    std::string text;
    while (text.size() < setup.chunk_bytes * 4 + setup.line_bytes) {
        text.append(setup.line_bytes - 1, static_cast<char>('a' + text.size() % 26));
        text += '\n';
    }
    return text;
}

Figure run_once(const Setup& setup) {
    OutputOptions options = setup.output;
    const Fd to(::open(setup.to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    options.stdout_fd = to.get();
    Bell bell;
    auto mux = OutputMux::create(options, std::vector<std::string>(setup.ranks, "s1"),
                                 [&] { bell.ring(); });
    if (!mux) {
        fmt::print(stderr, "output_bench: {}\n", mux.error().message);
        std::exit(1);
    }
    const std::string text = make_text(setup);
    const double wall = seconds(CLOCK_MONOTONIC);
    const double cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
    std::size_t sent = 0;
    std::size_t credited = 0;
    while (credited < setup.total_bytes) {
        while (sent < setup.total_bytes && sent - credited < setup.window_bytes) {
            const std::size_t chunk = sent / setup.chunk_bytes;
            const std::size_t at =
                chunk / setup.ranks * setup.chunk_bytes % (setup.chunk_bytes * 3);
            (*mux)->add(static_cast<plan::SlotId>(chunk % setup.ranks), Stream::out,
                        static_cast<std::int64_t>(sent) * 10,
                        std::string_view(text).substr(at, setup.chunk_bytes));
            sent += setup.chunk_bytes;
        }
        bell.wait();
        for (const OutputCredit& credit : (*mux)->collect()) credited += credit.bytes;
    }
    const double cpu_s = seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
    (*mux)->stop(after(std::chrono::seconds(60)));
    return {seconds(CLOCK_MONOTONIC) - wall, cpu_s};
}

bool parse(int argc, char** argv, Setup& setup) {
    const std::map<std::string, std::size_t*> numbers = {{"--line", &setup.line_bytes},
                                                         {"--chunk", &setup.chunk_bytes},
                                                         {"--ranks", &setup.ranks},
                                                         {"--mb", &setup.total_bytes}};
    for (int i = 1; i < argc; i++) {
        const std::string name = argv[i];
        if (name == "--timestamps") {
            setup.output.timestamps = true;
            continue;
        }
        if (++i == argc) return false;
        const std::string value = argv[i];
        if (const auto tag = Tag::parse(value); name == "--tag" && tag) {
            setup.output.tag = *tag;
        } else if (name == "--dir") {
            setup.output.directory = value;
        } else if (name == "--to") {
            setup.to = value;
        } else if (name == "--runs") {
            setup.runs = std::stoi(value);
        } else if (numbers.contains(name)) {
            *numbers.at(name) = std::stoul(value) * (name == "--mb" ? 1'000'000 : 1);
        } else {
            return false;
        }
    }
    return setup.line_bytes > 0 && setup.chunk_bytes > 0 && setup.ranks > 0 && setup.runs > 0;
}

}  // namespace

int main(int argc, char** argv) {
    Setup setup;
    if (!parse(argc, argv, setup)) {
        fmt::print(stderr, "output_bench: see the top of bench/output_bench.cpp for the options\n");
        return 2;
    }
    std::vector<double> wall;
    std::vector<double> cpu;
    for (int i = 0; i < setup.runs; i++) {
        const Figure figure = run_once(setup);
        wall.push_back(figure.wall_s);
        cpu.push_back(figure.cpu_s);
    }
    std::ranges::sort(wall);
    std::ranges::sort(cpu);
    const auto rate = [&](const std::vector<double>& times) {
        return static_cast<double>(setup.total_bytes) / times[times.size() / 2] * 1e-9;
    };
    fmt::print(
        "{} ranks, {} B lines, {} B chunks to {}: {:.2f} GB/s; formatting {:.2f} GB/s of one "
        "core\n",
        setup.ranks, setup.line_bytes, setup.chunk_bytes, setup.to, rate(wall), rate(cpu));
    return 0;
}
