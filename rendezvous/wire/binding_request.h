#pragma once

#include <cstdint>
#include <string>
#include <vector>

// What the user asks of processors for the ranks of each host.

namespace dtrun {

/// --bind-to: the processors that a rank may use.
enum class BindTo : std::uint8_t {
    none,       ///< all that its agent may use
    core,       ///< as many cores as a rank is to have, else one
    share,      ///< an equal part of all cores
    l3,         ///< the cores of a level 3 cache
    numa,       ///< those of a NUMA node
    socket,     ///< those of a socket
    gpu,        ///< a part, with others that have the same, of the NUMA node of its GPU
    automatic,  ///< the NUMA node of its GPU; without GPUs as `share`
};

/// --map-by: the things to which the ranks of a host go one after the other, round and round.
enum class MapWithin : std::uint8_t {
    slot,  ///< the host is one
    core,
    l3,
    numa,
    socket,
    gpu,
    automatic,  ///< gpu, where each rank has one; else slot
};

/// What an agent is to do with its ranks' processors.
struct BindingRequest {
    BindTo to = BindTo::none;
    MapWithin by = MapWithin::slot;
    std::uint32_t cpus_per_rank = 0;  ///< cores; 0: what `to` gives
    std::string cpus;                 ///< use only these, as "0-3,8"; empty: all that are allowed
    bool overlap = false;             ///< where cores are too few, ranks share them
    bool report = false;              ///< --report-bindings
    /// OMP_NUM_THREADS where nothing else says it; 0: an equal part of the host's processors
    std::uint32_t threads = 0;
    /// How many ranks may run on this host at once; in the configuration of several nodes, of each.
    std::vector<std::uint32_t> ranks;

    /// Whether the host's topology has to be known.
    bool needs_topology() const { return to != BindTo::none || !cpus.empty() || report; }

    bool operator==(const BindingRequest&) const = default;

    template <class Self, class F>
    static void fields(Self& m, F&& f) {
        f("to", m.to), f("by", m.by), f("cpus_per_rank", m.cpus_per_rank), f("cpus", m.cpus);
        f("overlap", m.overlap), f("report", m.report), f("threads", m.threads);
        f("ranks", m.ranks);
    }
};

}  // namespace dtrun
