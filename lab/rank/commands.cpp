#include "lab/rank/commands.h"

#include "lab/rank/comm_reducer.h"
#include "lab/rank/host_facts.h"

#include <unistd.h>
#include <algorithm>
#include <chrono>

namespace dtrun::collectives::bench {

namespace {

using Clock = std::chrono::steady_clock;

std::string name_of_compression(const std::optional<Format>& format) {
    return format ? std::string(name_of(*format)) : "none";
}

/// A communicator over one backend, and what is said of it.
struct Connected {
    MemoryKind memory;
    std::optional<Comm> comm;
    Places places;
    JsonWriter line = json_line("comm");
};

/// Whether a host has more ranks than processors, or than GPUs.
bool oversubscribed(const Places& places, const MemoryKind& memory) {
    const long places_there = memory.on_device() ? memory.gpus() : ::sysconf(_SC_NPROCESSORS_ONLN);
    return static_cast<long>(places.slots_per_host) > places_there;
}

using Details = std::vector<std::pair<std::string, std::string>>;

/// What a backend does not say of itself: only those of NCCL's kind get arrays on GPUs here.
void add_gpu_direct(Details& details) {
    for (const char* const name : {"GPUDirect P2P", "GPUDirect RDMA"})
        if (std::ranges::find(details, name, &Details::value_type::first) == details.end())
            details.emplace_back(name, "no: what it sends is in memory of the host");
}

Result<Connected> connect(const std::string& backend, const Membership& membership) {
    Connected connected;
    const auto places = find_places(membership);
    if (!places) return std::unexpected(places.error());
    connected.places = *places;
    if (backend == "nccl") {
        auto memory = MemoryKind::of_gpu(places->local_rank);
        const auto found = memory ? Result<void>() : Result<void>(std::unexpected(memory.error()));
        if (auto all = membership.agree("dtrun-bench/gpu", found); !all)
            return fail(all.error(), "backend nccl");
        connected.memory = std::move(*memory);
    }
    const Clock::time_point begin = Clock::now();
    auto comm = Comm::create(membership, backend, connected.memory.on_device());
    if (!comm) return std::unexpected(comm.error());
    const double own_ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    const auto times = membership.gather("dtrun-bench/bootstrap", fmt::format("{}", own_ms));
    if (!times) return std::unexpected(times.error());
    double slowest_ms = 0;
    for (const std::string& time : *times) slowest_ms = std::max(slowest_ms, std::stod(time));
    std::string version;
    std::string transport;
    Details details;
    for (auto& [name, value] : comm->facts())
        if (name == "version")
            version = value;
        else if (name == "transport")
            transport = value;
        else if (name != "backend")
            details.emplace_back(name, value);
    if (!connected.memory.on_device()) add_gpu_direct(details);
    connected.line.add("backend", comm->backend())
        .add("version", version)
        .add("transport", transport)
        .add("why", comm->why())
        .add("bootstrap_ms", slowest_ms)
        .add("hosts", places->hosts)
        .add("slots_per_host", places->slots_per_host)
        .add("ranks", comm->size())
        .add("oversubscribed", oversubscribed(*places, connected.memory) ? 1 : 0)
        .add("details", details);
    connected.comm = std::move(*comm);
    return connected;
}

JsonWriter to_json(const Row& row, const Connected& connected, const SweepOptions& options) {
    const double seconds = row.us.mean / 1e6;
    const double algbw = seconds > 0 ? static_cast<double>(row.extent.bytes) / seconds / 1e9 : 0;
    return json_line("row")
        .add("backend", connected.comm->backend())
        .add("op", name_of(row.op))
        .add("dtype", name_of(row.type))
        .add("compression", name_of_compression(row.format))
        .add("hosts", connected.places.hosts)
        .add("slots_per_host", connected.places.slots_per_host)
        .add("ranks", connected.comm->size())
        .add("bytes", row.extent.bytes)
        .add("count", row.extent.count)
        .add("iters", row.iters)
        .add("warmup", options.warmup)
        .add("t_min_us", row.us.min)
        .add("t_mean_us", row.us.mean)
        .add("t_p50_us", row.us.p50)
        .add("t_p99_us", row.us.p99)
        .add("t_max_us", row.us.max)
        .add("algbw_GBps", algbw)
        .add("busbw_GBps", algbw * row.extent.bus_factor)
        .add("wire_bytes_per_rank", wire_bytes(row.extent, row.format))
        .add("rel_err", row.rel_err)
        .add("wrong", row.wrong);
}

JsonWriter to_json(const Trained& trained, const BenchOptions& options, const std::string& backend,
                   const Places& places, std::uint32_t ranks, const std::string& data) {
    return json_line("train")
        .add("algorithm", options.algorithm.name)
        .add("backend", backend)
        .add("hosts", places.hosts)
        .add("slots_per_host", places.slots_per_host)
        .add("ranks", ranks)
        .add("model", name_of(options.train.model))
        .add("epochs", options.train.epochs)
        .add("global_batch", options.train.global_batch)
        .add("loss_scale", options.train.loss_scale)
        .add("step_ms", trained.step_ms)
        .add("compute_ms", trained.compute_ms)
        .add("comm_ms", trained.comm_ms)
        .add("samples_per_s", trained.samples_per_s)
        .add("accuracy", trained.accuracy)
        .add("loss", trained.loss)
        .add("seconds", trained.seconds)
        .add("data", data);
}

}  // namespace

Result<void> run_facts(const BenchOptions& options, const Membership& membership,
                       const Print& print) {
    const auto places = find_places(membership);
    if (!places) return std::unexpected(places.error());
    // One rank of each host looks.
    const std::string own =
        places->local_rank == 0 ? to_json(collect_host_facts(membership.host())) : "";
    const auto all = membership.gather("dtrun-bench/facts", own);
    if (!all) return std::unexpected(all.error());
    for (const std::string& line : *all)
        if (!line.empty()) print(line);
    for (const std::string& backend : options.backends) {
        const auto connected = connect(backend, membership);
        if (connected)
            print(connected->line.text());
        else
            print(json_line("error").add("text", connected.error().message).text());
    }
    return {};
}

Result<void> run_sweep(const BenchOptions& options, const Membership& membership,
                       const Print& print) {
    const auto connected = connect(options.backend, membership);
    if (!connected) return std::unexpected(connected.error());
    print(connected->line.text());
    return sweep(
        options.sweep, *connected->comm, connected->memory,
        [&](const Row& row) { print(to_json(row, *connected, options.sweep).text()); },
        [&](const Error& error) { print(json_line("error").add("text", error.message).text()); });
}

Result<void> run_train(const BenchOptions& options, const Membership& membership,
                       const Print& print) {
    if (options.algorithm.serial && membership.size() > 1)
        return fail(Errc::invalid_input, "algorithm serial is for one rank; there are {}",
                    membership.size());
    auto data = options.data.empty() ? generated_digits() : read_mnist(options.data);
    const auto read = data ? Result<void>() : Result<void>(std::unexpected(data.error()));
    if (auto all = membership.agree("dtrun-bench/data", read); !all) return all;
    if (options.algorithm.serial) {
        SerialReducer reducer;
        const auto trained = train(options.train, *data, reducer);
        if (!trained) return std::unexpected(trained.error());
        print(to_json(*trained, options, "none", {}, 1, data->name).text());
        return {};
    }
    const auto connected = connect(options.backend, membership);
    if (!connected) return std::unexpected(connected.error());
    print(connected->line.text());
    CommReducer reducer(*connected->comm, connected->memory, options.algorithm);
    const auto trained = train(options.train, *data, reducer);
    if (!trained) return std::unexpected(trained.error());
    print(to_json(*trained, options, connected->comm->backend(), connected->places,
                  connected->comm->size(), data->name)
              .text());
    return {};
}

}  // namespace dtrun::collectives::bench
