#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace dtrun {

/// What becomes of the slot of a rank that has failed, where other processes live on.
enum class Refill : std::uint8_t {
    now,    ///< the others go on without it, and a new process joins them when it is ready; "auto"
    wait,   ///< the others wait a while for a new process
    never,  ///< its host is left alone for a while, as with Horovod's own driver
};

/// Which sizes a world may have.
struct WorldSizes {
    std::uint32_t max = 1;
    std::vector<std::uint32_t> allowed{};  ///< ascending; empty: every size
    /// A host has so many ranks or none; 0: any number. `max` and `allowed` are multiples of it then.
    std::uint32_t per_host = 0;

    bool operator==(const WorldSizes&) const = default;
    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("max", m.max), f("allowed", m.allowed), f("per_host", m.per_host);
    }
};

/// What is asked of a job's membership: how many ranks it has, and what follows when ranks fail and hosts come, go or
/// are lost. The head of a job has it from its flags, a daemon from the job's first member.
struct JobPolicy {
    std::uint32_t ranks_start = 1;  ///< the first world has at least so many
    std::uint32_t ranks_min = 1;    ///< every other world
    WorldSizes sizes{};
    /// Hosts may be lost, and others may come. If not, the loss of one ends the job.
    bool elastic = false;
    bool hosts_may_come = false;  ///< that are not listed yet: the job waits for them
    bool hosts_enter = false;     ///< by themselves: whoever is not there may be on its way
    /// To wait for ranks_start slots; unset: as `timeout`.
    std::optional<std::chrono::milliseconds> start_timeout{};
    std::chrono::milliseconds timeout{600'000};  ///< to wait for ranks_min slots; 0: do not wait
    /// How long a world that is large enough waits for hosts that are on their way.
    std::chrono::milliseconds last_call{1'000};
    std::optional<std::uint32_t> resets_max{};    ///< how many worlds may follow the first
    std::optional<std::uint32_t> failures_max{};  ///< how many ranks may fail and hosts be lost
    /// How often a rank may fail while no host is lost; the next time ends the job. Unset: an elastic job ends when
    /// its program fails again and again, any other at the first failure.
    std::optional<std::uint32_t> rank_failures_max{};
    std::uint32_t spares = 0;  ///< hosts that are kept ready without ranks, if there are so many
    /// How long ranks that are to start again are told before they are ended, when hosts come or go.
    std::chrono::milliseconds warn_time{0};
    std::int32_t warn_signal = 0;  ///< who ends after it does so to start again; 0: none is sent
    /// How long a host that was lost is left alone: this long at first, then each time twice as
    /// long up to the maximum. A random part of up to the minimum is added.
    std::chrono::milliseconds cooldown_min{10'000}, cooldown_max{300'000};
    Refill refill = Refill::now;
    std::chrono::milliseconds refill_wait{10'000};  ///< with Refill::wait
    /// For survivors of a loss to ask for a new place; who has not by then is ended.
    std::chrono::milliseconds rejoin_timeout{300'000};

    bool operator==(const JobPolicy&) const = default;
    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("ranks_start", m.ranks_start), f("ranks_min", m.ranks_min), f("sizes", m.sizes);
        f("elastic", m.elastic), f("hosts_may_come", m.hosts_may_come),
            f("hosts_enter", m.hosts_enter);
        f("start_timeout_ms", m.start_timeout), f("timeout_ms", m.timeout);
        f("last_call_ms", m.last_call);
        f("resets_max", m.resets_max), f("failures_max", m.failures_max);
        f("rank_failures_max", m.rank_failures_max), f("spares", m.spares);
        f("warn_time_ms", m.warn_time), f("warn_signal", m.warn_signal);
        f("cooldown_min_ms", m.cooldown_min), f("cooldown_max_ms", m.cooldown_max);
        f("refill", m.refill), f("refill_wait_ms", m.refill_wait);
        f("desk_timeout_ms", m.rejoin_timeout);
    }
};

}  // namespace dtrun
