// Load for rendezvous servers of several kinds, from simulated clients on one thread.
//
//     rendezvous_load PROTOCOL WORKLOAD --clients N (--tcp HOST:PORT | --unix NAME..) [OPTION..]
//
//     dtrun       over the sockets of agents, clients taking them in turn: --unix NAME=FIRST_RANK
//     tcpstore    PyTorch's TCPStore
//
//     setget      each client sets its key to 64 bytes and gets them, in turn, for --seconds
//     connect     until all clients can be used, at most --in-flight of them at a time
//     barrier     all clients arrive, one after the other, and are released; --repetitions times
//
// Prints one JSON object. Ends with 3 if clients are not done within --limit seconds.

#include "bench/rendezvous_engine.h"
#include "bench/rendezvous_process.h"
#include "bench/rendezvous_protocol.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <unistd.h>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <span>

namespace {

using namespace dtrun;
using namespace dtrun::bench;
using std::chrono::duration;
using Seconds = duration<double>;

struct Options {
    std::string protocol;
    std::string workload;
    std::uint32_t clients = 1;
    std::vector<Endpoint> endpoints;
    std::vector<Process> servers;
    double seconds = 3;
    double limit_s = 10;  ///< for connecting all, and for a workload's repetitions
    std::uint32_t repetitions = 20;
    std::uint32_t in_flight = 256;
};

constexpr Seconds kWarmUp{0.3};          // of setget
constexpr Seconds kSetUpLimit{60};       // for connecting, where that is not what is measured
constexpr std::uint32_t kArrivals = 64;  // of a barrier, between two looks at what has come in

Clock::time_point in(Seconds time) {
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(time);
}

/// Errc: invalid_input
Result<void> raise_descriptor_limit(std::uint64_t wanted) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur >= wanted) return {};
    limit = {.rlim_cur = wanted, .rlim_max = std::max<rlim_t>(limit.rlim_max, wanted)};
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0) return {};
    return fail(Errc::invalid_input, "needs {} descriptors: ulimit -n", wanted);
}

/// The value that `share` of all values do not exceed, from 0 to 1; in microseconds.
double percentile_us(std::span<Clock::duration> values, double share) {
    const auto at = static_cast<std::size_t>(share * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at),
                     values.end());
    return duration<double, std::micro>(values[at]).count();
}

std::string spread_json(std::span<Clock::duration> values) {
    return fmt::format(R"({{"p50": {:.1f}, "p99": {:.1f}, "max": {:.1f}}})",
                       percentile_us(values, 0.5), percentile_us(values, 0.99),
                       percentile_us(values, 1));
}

/// Processor time and memory of the servers and of this program, from one moment on.
class Meter {
public:
    explicit Meter(std::vector<Process> processes) : processes_(std::move(processes)) {
        processes_.push_back({.name = "load", .pid = getpid()});
    }

    /// Memory is compared with that of the first call, processor time with that of the last.
    Result<void> start() {
        if (memory_.empty()) {
            auto memory = each(memory_of);
            if (!memory) return std::unexpected(memory.error());
            memory_ = std::move(*memory);
        }
        auto cpu = each(cpu_seconds);
        if (!cpu) return std::unexpected(cpu.error());
        cpu_ = std::move(*cpu);
        return {};
    }

    /// Members of a JSON object.
    Result<std::string> stop(std::uint64_t operations) {
        const auto cpu = each(cpu_seconds);
        if (!cpu) return std::unexpected(cpu.error());
        const auto memory = each(memory_of);
        if (!memory) return std::unexpected(memory.error());
        std::vector<std::string> members;
        for (std::size_t i = 0; i < processes_.size(); ++i) {
            const double used_us = ((*cpu)[i] - cpu_[i]) * 1e6;
            members.push_back(fmt::format(
                R"("{}": {{"cpu_us": {:.3f}, "rss_kb": [{}, {}], "pss_kb": [{}, {}]}})",
                processes_[i].name, used_us / static_cast<double>(operations), memory_[i].rss_kb,
                (*memory)[i].rss_kb, memory_[i].pss_kb, (*memory)[i].pss_kb));
        }
        return fmt::format(R"("processes": {{{}}})", fmt::join(members, ", "));
    }

private:
    template <class T>
    Result<std::vector<T>> each(Result<T> (*measure)(const Process&)) const {
        std::vector<T> values;
        for (const Process& process : processes_) {
            const auto value = measure(process);
            if (!value) return std::unexpected(value.error());
            values.push_back(*value);
        }
        return values;
    }

    std::vector<Process> processes_;
    std::vector<Memory> memory_;
    std::vector<double> cpu_;
};

/// One workload. Each returns a JSON object's members; Errc: timed_out, closed, not_found.
class Load {
public:
    Load(const Options& options, Protocol& protocol)
        : options_(options),
          engine_(protocol, options.endpoints, options.clients),
          meter_(options.servers) {}

    Result<std::string> connect() {
        if (auto started = meter_.start(); !started) return std::unexpected(started.error());
        const auto begin = Clock::now();
        if (auto all = all_do(Task::greet, in(Seconds(options_.limit_s))); !all)
            return std::unexpected(all.error());
        const Seconds wall = Clock::now() - begin;
        return with_usage(
            fmt::format(R"("seconds": {:.6f}, "in_flight": {})", wall.count(), options_.in_flight),
            options_.clients);
    }

    Result<std::string> setget() {
        if (auto ready = get_ready(); !ready) return std::unexpected(ready.error());
        turns_.resize(options_.clients);
        for (std::uint32_t client = 0; client < options_.clients; ++client)
            take_turn(client, Clock::now());
        const Engine::Done done = [this](std::uint32_t client) { turn_done(client); };
        if (auto run = poll_until(in(kWarmUp), done); !run) return std::unexpected(run.error());
        if (auto started = meter_.start(); !started) return std::unexpected(started.error());
        measuring_ = true;
        const auto begin = Clock::now();
        if (auto run = poll_until(in(Seconds(options_.seconds)), done); !run)
            return std::unexpected(run.error());
        const Seconds wall = Clock::now() - begin;
        if (latencies_.empty()) return fail(Errc::timed_out, "no operation has ended");
        return with_usage(
            fmt::format(R"("seconds": {:.6f}, "operations": {}, "ops_per_s": {:.1f}, )"
                        R"("latency_us": {})",
                        wall.count(), operations_, static_cast<double>(operations_) / wall.count(),
                        spread_json(latencies_)),
            operations_);
    }

    Result<std::string> barrier() {
        if (auto ready = get_ready(); !ready) return std::unexpected(ready.error());
        if (auto started = meter_.start(); !started) return std::unexpected(started.error());
        const auto end = in(Seconds(options_.limit_s));
        std::vector<Clock::duration> wholes;    // first arrival to last release, by repetition
        std::vector<Clock::duration> releases;  // from last arrival, by repetition and client
        releases.reserve(std::size_t{options_.repetitions} * options_.clients);
        while (wholes.size() < options_.repetitions && (wholes.empty() || Clock::now() < end)) {
            const auto whole = one_barrier(releases);
            if (!whole) return std::unexpected(whole.error());
            wholes.push_back(*whole);
        }
        return with_usage(fmt::format(R"("repetitions": {}, "whole_us": {}, "release_us": {})",
                                      wholes.size(), spread_json(wholes), spread_json(releases)),
                          wholes.size() * options_.clients);
    }

private:
    struct Turn {
        Task task = Task::get;
        unsigned operations = 0;
        Clock::time_point began;
    };

    Result<std::string> with_usage(const std::string& members, std::uint64_t operations) {
        const auto usage = meter_.stop(operations);
        if (!usage) return std::unexpected(usage.error());
        return members + ", " + *usage;
    }

    /// Has every client do a task, as many at a time as are allowed.
    Result<void> all_do(Task task, Clock::time_point limit) {
        std::uint32_t begun = 0;
        std::uint32_t ended = 0;
        const auto begin_more = [&] {
            while (begun < options_.clients && begun - ended < options_.in_flight)
                ended += engine_.begin(begun++, task) ? 1 : 0;
        };
        const Engine::Done done = [&](std::uint32_t) {
            ++ended;
            begin_more();
        };
        begin_more();
        while (ended < options_.clients) {
            if (Clock::now() >= limit)
                return fail(Errc::timed_out, "{} of {} clients ready", ended, options_.clients);
            if (auto polled = engine_.poll(limit, done); !polled) return polled;
        }
        return {};
    }

    /// Connects all, where that is not measured.
    Result<void> get_ready() {
        if (auto started = meter_.start(); !started) return started;
        return all_do(Task::greet, in(kSetUpLimit));
    }

    Result<void> poll_until(Clock::time_point end, const Engine::Done& done) {
        while (Clock::now() < end) {
            if (auto polled = engine_.poll(end, done); !polled) return polled;
        }
        return {};
    }

    /// An operation that has no answer ends with the next one that has.
    void take_turn(std::uint32_t client, Clock::time_point now) {
        Turn& turn = turns_[client];
        turn.began = now;
        turn.operations = 0;
        do {
            turn.task = turn.task == Task::set ? Task::get : Task::set;
            ++turn.operations;
        } while (engine_.begin(client, turn.task));
    }

    void turn_done(std::uint32_t client) {
        const auto now = Clock::now();
        if (measuring_) {
            latencies_.push_back(now - turns_[client].began);
            operations_ += turns_[client].operations;
        }
        take_turn(client, now);
    }

    /// \return from first arrival to last release
    Result<Clock::duration> one_barrier(std::vector<Clock::duration>& releases) {
        std::uint32_t released = 0;
        Clock::time_point last_arrival;
        const Engine::Done done = [&](std::uint32_t) {
            ++released;
            releases.push_back(Clock::now() - last_arrival);
        };
        const auto first_arrival = Clock::now();
        const auto limit = in(Seconds(options_.limit_s));
        for (std::uint32_t client = 0; client < options_.clients; ++client) {
            last_arrival = Clock::now();
            engine_.begin(client, Task::barrier);
            if (client % kArrivals != 0) continue;
            if (auto polled = engine_.poll(last_arrival, done); !polled)
                return std::unexpected(polled.error());
        }
        while (released < options_.clients) {
            if (Clock::now() >= limit)
                return fail(Errc::timed_out, "{} of {} clients released", released,
                            options_.clients);
            if (auto polled = engine_.poll(limit, done); !polled)
                return std::unexpected(polled.error());
        }
        return Clock::now() - first_arrival;
    }

    const Options& options_;
    Engine engine_;
    Meter meter_;
    bool measuring_ = false;
    std::vector<Turn> turns_;  ///< by client
    std::vector<Clock::duration> latencies_;
    std::uint64_t operations_ = 0;
};

Result<std::string> run(const Options& options) {
    const auto protocol = make_protocol(options.protocol, options.clients);
    if (!protocol) return fail(Errc::invalid_input, "no protocol {}", options.protocol);
    if (auto raised = raise_descriptor_limit(options.clients + 64); !raised)
        return std::unexpected(raised.error());
    Load load(options, *protocol);
    if (options.workload == "setget") return load.setget();
    if (options.workload == "connect") return load.connect();
    if (options.workload == "barrier") return load.barrier();
    return fail(Errc::invalid_input, "no workload {}", options.workload);
}

template <class T>
Result<void> parse_number(std::string_view text, T& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value <= T{})
        return fail(Errc::invalid_input, "{}: not a number above 0", text);
    return {};
}

Result<void> add_endpoint(Result<Endpoint> endpoint, Options& options) {
    if (!endpoint) return std::unexpected(endpoint.error());
    options.endpoints.push_back(*endpoint);
    return {};
}

Result<void> parse_option(std::string_view name, const std::string& value, Options& options) {
    if (name == "--clients") return parse_number(value, options.clients);
    if (name == "--seconds") return parse_number(value, options.seconds);
    if (name == "--limit") return parse_number(value, options.limit_s);
    if (name == "--repetitions") return parse_number(value, options.repetitions);
    if (name == "--in-flight") return parse_number(value, options.in_flight);
    if (name == "--tcp") return add_endpoint(tcp_endpoint(value), options);
    if (name == "--unix") return add_endpoint(unix_endpoint(value), options);
    if (name == "--server-pid") {  // NAME=PID
        const std::size_t equals = std::min(value.find('='), value.size() - 1);
        Process process{.name = value.substr(0, equals)};
        auto parsed = parse_number(std::string_view(value).substr(equals + 1), process.pid);
        options.servers.push_back(std::move(process));
        return parsed;
    }
    return fail(Errc::invalid_input, "no option {}", name);
}

Result<Options> parse_arguments(std::span<char*> words) {
    if (words.size() < 2 || words.size() % 2 != 0)
        return fail(Errc::invalid_input, "PROTOCOL WORKLOAD [--OPTION VALUE]..");
    Options options;
    options.protocol = words[0];
    options.workload = words[1];
    for (std::size_t i = 2; i < words.size(); i += 2) {
        if (auto parsed = parse_option(words[i], words[i + 1], options); !parsed)
            return std::unexpected(parsed.error());
    }
    if (options.endpoints.empty()) return fail(Errc::invalid_input, "where to? --tcp or --unix");
    return options;
}

}  // namespace

int main(int argc, char** argv) {
    const auto options = parse_arguments({argv + 1, argv + argc});
    const auto members = options ? run(*options) : std::unexpected(options.error());
    if (!members) {
        fmt::print(stderr, "rendezvous_load: {}\n", members.error().message);
        return members.error().code == Errc::timed_out ? 3 : 1;
    }
    fmt::print("{{\"protocol\": \"{}\", \"workload\": \"{}\", \"clients\": {}, {}}}\n",
               options->protocol, options->workload, options->clients, *members);
    return 0;
}
