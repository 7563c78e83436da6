#include "lab/rank/pairs.h"

#include "base/strings.h"
#include "lab/rank/timing.h"

#include <algorithm>
#include <chrono>
#include <sstream>

namespace dtrun::lab::rank {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kWarmUp = 10;

double us_since(Clock::time_point begin) {
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

/// What a pair has found, as a text for all ranks.
struct Found {
    double latency_us = 0;
    double forth_GBps = 0;  ///< from the lower rank to the other
    double back_GBps = 0;
};

std::string text_of(const Found& found) {
    return fmt::format("{} {} {}", found.latency_us, found.forth_GBps, found.back_GBps);
}

Result<Found> found_of(const std::string& text) {
    Found found;
    std::istringstream stream(text);
    if (stream >> found.latency_us >> found.forth_GBps >> found.back_GBps) return found;
    return fail(Errc::internal, "a pair of ranks told \"{}\" instead of its times", text);
}

/// The two ranks of a pair, seen from one of them.
class Pair {
public:
    Pair(const PairsOptions& options, const Comm& comm, const Memory& memory, std::uint32_t peer)
        : options_(options), comm_(comm), memory_(memory), peer_(peer) {}

    Result<Found> measure() {
        Found found;
        const bool leads = comm_.rank() < peer_;
        if (auto done = latency(leads, found.latency_us); !done)
            return std::unexpected(done.error());
        for (const bool forth : {true, false}) {
            double& speed = forth ? found.forth_GBps : found.back_GBps;
            if (auto done = bandwidth(leads == forth, speed); !done)
                return std::unexpected(done.error());
            // The receiver has only answered; the one that leads has to know both.
            if (auto done = share(leads == forth, speed); !done)
                return std::unexpected(done.error());
        }
        return found;
    }

private:
    Result<void> send(std::size_t bytes) const {
        return checked(
            dtrun_send(comm_.get(), memory_.data(), bytes / sizeof(float), DTRUN_F32, peer_));
    }
    Result<void> receive(std::size_t bytes) const {
        return checked(
            dtrun_recv(comm_.get(), memory_.data(), bytes / sizeof(float), DTRUN_F32, peer_));
    }

    /// The leader says how often something is done, since both have to do it as often.
    Result<std::size_t> agree(bool leads, std::size_t count) const {
        auto number = static_cast<double>(count);
        if (auto done = share(leads, number); !done) return std::unexpected(done.error());
        return static_cast<std::size_t>(number);
    }

    /// Gives both the number of the one that knows it.
    Result<void> share(bool knows, double& number) const {
        const auto bytes = std::as_writable_bytes(std::span(&number, 1));
        std::ranges::copy(bytes, memory_.host().begin());
        if (knows) {
            if (auto done = memory_.push(bytes.size()); !done) return done;
            return send(bytes.size());
        }
        if (auto done = receive(bytes.size()); !done) return done;
        if (auto done = memory_.pull(bytes.size()); !done) return done;
        std::copy_n(memory_.host().begin(), bytes.size(), bytes.begin());
        return {};
    }

    /// \return microseconds of each of `count` round trips, or windows with their answers
    template <class F>
    Result<std::vector<double>> timed(std::size_t count, F once) const {
        std::vector<double> times(count);
        for (double& time : times) {
            const Clock::time_point begin = Clock::now();
            if (auto done = once(); !done) return std::unexpected(done.error());
            time = us_since(begin);
        }
        return times;
    }

    /// Times something often enough to fill the time that there is.
    template <class F>
    Result<double> median_us(bool leads, std::size_t warm_up, std::size_t most, F once) const {
        auto first = timed(warm_up, once);
        if (!first) return std::unexpected(first.error());
        const double each_us = std::max(summarize(*first).p50, 0.01);
        const double fitting = options_.seconds * 1e6 / each_us;
        const auto count = agree(
            leads, static_cast<std::size_t>(std::clamp(fitting, 1.0, static_cast<double>(most))));
        if (!count) return std::unexpected(count.error());
        auto times = timed(*count, once);
        if (!times) return std::unexpected(times.error());
        return summarize(*times).p50;
    }

    Result<void> latency(bool leads, double& latency_us) const {
        constexpr std::size_t kBytes = PairsOptions::kLatencyBytes;
        const auto trip = median_us(leads, kWarmUp, options_.iters, [&]() -> Result<void> {
            if (!leads)
                if (auto done = receive(kBytes); !done) return done;
            if (auto done = send(kBytes); !done) return done;
            return leads ? receive(kBytes) : Result<void>();
        });
        if (!trip) return std::unexpected(trip.error());
        latency_us = *trip / 2;
        return {};
    }

    /// As osu_bw: a window of messages one way, and a short answer.
    Result<void> bandwidth(bool sends, double& speed_GBps) const {
        constexpr std::size_t kBytes = PairsOptions::kBandwidthBytes;
        const std::size_t most = std::max<std::size_t>(options_.iters / 10, 1);
        const auto window = median_us(sends, 2, most, [&]() -> Result<void> {
            for (std::size_t i = 0; i < PairsOptions::kWindow; ++i)
                if (auto done = sends ? send(kBytes) : receive(kBytes); !done) return done;
            return sends ? receive(PairsOptions::kLatencyBytes) : send(PairsOptions::kLatencyBytes);
        });
        if (!window) return std::unexpected(window.error());
        speed_GBps = static_cast<double>(kBytes * PairsOptions::kWindow) / *window / 1e3;
        return {};
    }

    const PairsOptions& options_;
    const Comm& comm_;
    const Memory& memory_;
    const std::uint32_t peer_;
};

}  // namespace

std::vector<std::pair<std::uint32_t, std::uint32_t>> all_pairs(std::uint32_t ranks) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
    for (std::uint32_t a = 0; a < ranks; ++a)
        for (std::uint32_t b = a + 1; b < ranks; ++b) pairs.emplace_back(a, b);
    return pairs;
}

Result<void> measure_pairs(const PairsOptions& options, const RankGroup& group, const Comm& comm,
                           const MemoryKind& kind,
                           const std::function<void(const PairTimes&)>& told) {
    if (comm.size() < 2)
        return fail(Errc::invalid_input, "one rank has nobody to send to; a pair takes two");
    const auto memory = Memory::allocate(kind, PairsOptions::kBandwidthBytes);
    if (!memory) return std::unexpected(memory.error());
    if (auto done = memory->push(PairsOptions::kBandwidthBytes); !done) return done;
    for (const auto& [a, b] : all_pairs(comm.size())) {
        std::string own;
        if (comm.rank() == a || comm.rank() == b) {
            Pair pair(options, comm, *memory, comm.rank() == a ? b : a);
            const auto found = pair.measure();
            if (!found) return fail(found.error(), "ranks {} and {}", a, b);
            if (comm.rank() == a) own = text_of(*found);
        }
        const auto all = group.gather("dtrun-bench/pair", own);
        if (!all) return std::unexpected(all.error());
        const auto found = found_of((*all)[a]);
        if (!found) return std::unexpected(found.error());
        told({a, b, found->latency_us, found->forth_GBps});
        told({b, a, found->latency_us, found->back_GBps});
    }
    return {};
}

}  // namespace dtrun::lab::rank
