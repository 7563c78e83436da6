#include "lab/rank/commands.h"

#include "collectives/backends/backend_table.h"
#include "lab/rank/host_facts.h"
#include "lab/record_json.h"

#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>

namespace dtrun::lab::rank {

namespace {

using Clock = std::chrono::steady_clock;

/// A communicator over one backend, and what is said of it.
struct Connected {
    MemoryKind memory;
    std::optional<Comm> comm;
    Places places;
    CommRecord record;
};

/// Whether a host has more ranks than processors, or than GPUs.
bool oversubscribed(const Places& places, const MemoryKind& memory) {
    const long places_there = memory.on_device() ? memory.gpus() : ::sysconf(_SC_NPROCESSORS_ONLN);
    return static_cast<long>(places.slots_per_host) > places_there;
}

/// Adds GPUDirect facts for backends that report none: only those of NCCL's kind get arrays on GPUs
/// here.
void add_gpu_direct(NameValues& details) {
    for (const char* const name : {"GPUDirect P2P", "GPUDirect RDMA"})
        if (std::ranges::find(details, name, &NameValues::value_type::first) == details.end())
            details.emplace_back(name, "no: what it sends is in memory of the host");
}

/// Speed of the interface by which a backend reaches other hosts, in Mbit/s: the one that it names,
/// else, for TCP, the one that the launcher chose.
double line_rate_here(const std::string& transport) {
    constexpr const char* kInterfaces = "/sys/class/net";
    const double named = line_rate_of(transport, kInterfaces);
    if (std::isfinite(named) || transport.find("tcp") == std::string::npos) return named;
    for (const char* const variable : {"DTRUN_NETWORK_INTERFACE", "GLOO_SOCKET_IFNAME"}) {
        const char* const chosen = std::getenv(variable);
        if (chosen == nullptr) continue;
        std::string names = chosen;
        std::ranges::replace(names, ',', ' ');
        return line_rate_of(names, kInterfaces);
    }
    return kUnknown;
}

void set_shape(ShapeRecord& shape, std::string backend, const Places& places, std::uint32_t ranks) {
    shape.backend = std::move(backend);
    shape.hosts = static_cast<int>(places.hosts);
    shape.slots_per_host = static_cast<int>(places.slots_per_host);
    shape.ranks = static_cast<int>(ranks);
}

/// The memory that a backend works on. All ranks find it, or none.
Result<MemoryKind> find_memory(const std::string& backend, const RankGroup& group,
                               std::uint32_t local_rank) {
    const collectives::BackendRow* const row = collectives::find_backend(backend);
    if (row == nullptr || !row->on_device()) return MemoryKind();
    auto device = collectives::Device::open(local_rank);
    const auto found = device ? Result<void>() : Result<void>(std::unexpected(device.error()));
    if (auto all = group.agree("dtrun-bench/gpu", found); !all)
        return fail(all.error(), "backend {}", backend);
    return MemoryKind(std::move(*device));
}

Result<Connected> connect(const std::string& backend, const RankGroup& group) {
    Connected connected;
    const auto places = find_places(group);
    if (!places) return std::unexpected(places.error());
    connected.places = *places;
    auto memory = find_memory(backend, group, places->local_rank);
    if (!memory) return std::unexpected(memory.error());
    connected.memory = std::move(*memory);
    const Clock::time_point begin = Clock::now();
    auto comm = Comm::create(group, backend, connected.memory.on_device());
    if (!comm) return std::unexpected(comm.error());
    const double own_ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    const auto times = group.gather("dtrun-bench/bootstrap", fmt::format("{}", own_ms));
    if (!times) return std::unexpected(times.error());
    double slowest_ms = 0;
    for (const std::string& time : *times) slowest_ms = std::max(slowest_ms, std::stod(time));
    CommRecord& record = connected.record;
    set_shape(record, comm->backend(), *places, comm->size());
    for (auto& [name, value] : comm->facts())
        if (name == "version")
            record.version = value;
        else if (name == "transport")
            record.transport = value;
        else if (name != "backend")
            record.details.emplace_back(name, value);
    if (!connected.memory.on_device()) add_gpu_direct(record.details);
    record.why = comm->why();
    record.bootstrap_ms = slowest_ms;
    record.oversubscribed = oversubscribed(*places, connected.memory);
    if (places->hosts > 1) record.line_rate_mbit = line_rate_here(record.transport);
    connected.comm = std::move(*comm);
    return connected;
}

RowRecord record_of(const Row& row, const Connected& connected, const SweepOptions& options) {
    const double seconds = row.us.mean / 1e6;
    RowRecord record;
    set_shape(record, connected.comm->backend(), connected.places, connected.comm->size());
    record.op = name_of(row.op);
    record.dtype = name_of(row.type);
    record.compression = name_of(row.format);
    record.in_place = row.in_place;
    record.bytes = row.extent.bytes;
    record.count = row.extent.count;
    record.iters = row.iters;
    record.warmup = options.warmup;
    record.t_min_us = row.us.min;
    record.t_mean_us = row.us.mean;
    record.t_p50_us = row.us.p50;
    record.t_p99_us = row.us.p99;
    record.t_max_us = row.us.max;
    record.algbw_GBps = seconds > 0 ? static_cast<double>(row.extent.bytes) / seconds / 1e9 : 0;
    record.busbw_GBps = record.algbw_GBps * row.extent.bus_factor;
    record.wire_bytes_per_rank = static_cast<double>(wire_bytes(row.extent, row.format));
    record.rel_err = row.rel_err;
    record.wrong = static_cast<double>(row.wrong);
    return record;
}

}  // namespace

Result<void> run_facts(const RankOptions& options, const RankGroup& group, const Print& print) {
    const auto places = find_places(group);
    if (!places) return std::unexpected(places.error());
    // One rank of each host collects the host's facts.
    const std::string own =
        places->local_rank == 0 ? line_of(collect_host_facts(group.host(), options.python)) : "";
    const auto all = group.gather("dtrun-bench/facts", own);
    if (!all) return std::unexpected(all.error());
    for (const std::string& line : *all)
        if (!line.empty()) print(line);
    for (const std::string& backend : options.backends) {
        const auto connected = connect(backend, group);
        if (connected)
            print(line_of(connected->record));
        else
            print(line_of(ErrorRecord{connected.error().message}));
    }
    return {};
}

Result<void> run_sweep(const RankOptions& options, const RankGroup& group, const Print& print) {
    const auto connected = connect(options.backend, group);
    if (!connected) return std::unexpected(connected.error());
    print(line_of(connected->record));
    return sweep(
        options.sweep, *connected->comm, connected->memory,
        [&](const Row& row) { print(line_of(record_of(row, *connected, options.sweep))); },
        [&](const Error& error) { print(line_of(ErrorRecord{error.message})); });
}

Result<void> run_pairs(const RankOptions& options, const RankGroup& group, const Print& print) {
    const auto hosts = group.gather("dtrun-bench/hosts", group.host());
    if (!hosts) return std::unexpected(hosts.error());
    const auto connected = connect(options.backend, group);
    if (!connected) return std::unexpected(connected.error());
    print(line_of(connected->record));
    return measure_pairs(options.pairs, group, *connected->comm, connected->memory,
                         [&](const PairTimes& times) {
                             PairRecord record;
                             set_shape(record, connected->comm->backend(), connected->places,
                                       connected->comm->size());
                             record.from = static_cast<int>(times.from);
                             record.to = static_cast<int>(times.to);
                             record.from_host = (*hosts)[times.from];
                             record.to_host = (*hosts)[times.to];
                             record.latency_us = times.latency_us;
                             record.bandwidth_GBps = times.bandwidth_GBps;
                             print(line_of(record));
                         });
}

}  // namespace dtrun::lab::rank
