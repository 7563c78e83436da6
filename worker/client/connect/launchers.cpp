#include "worker/client/connect/launchers.h"

#include "base/strings.h"
#include "rendezvous/wire/job_key.h"

#include <arpa/inet.h>
#include <algorithm>
#include <limits>
#include <numeric>
#include <string_view>
#include <vector>

namespace dtrun::embedded {
namespace {

/// Of `dtrun serve`.
constexpr std::string_view kDaemonPort = "29400";
constexpr long long kRanksMax = 0xffff'fffe;
/// Slurm's own steps: interactive, batch, extern, pending (slurm.h, SLURM_INTERACTIVE_STEP, …).
constexpr long long kSlurmOwnSteps = 0xffff'fff0;

/// Numbers of the environment. The first mistake stays, and every later answer is 0.
class Reader {
public:
    explicit Reader(const Environment& environment) : environment_(environment) {}

    const std::string* find(std::string_view name) const {
        const auto found = environment_.find(name);
        return found == environment_.end() ? nullptr : &found->second;
    }
    std::string text(std::string_view name) const {
        const std::string* value = find(name);
        return value != nullptr ? *value : std::string();
    }
    std::uint32_t number(std::string_view name, long long min, long long max) {
        const std::string* value = find(name);
        if (value == nullptr) {
            mistake(fmt::format("{} is not set, but others of its launcher are", name));
            return 0;
        }
        const auto parsed = to_int(*value, min, max);
        if (!parsed)
            mistake(fmt::format("{}='{}' is not a number from {} to {}", name, *value, min, max));
        return static_cast<std::uint32_t>(parsed.value_or(0));
    }
    std::uint32_t number_or(std::string_view name, std::uint32_t missing, long long min = 0,
                            long long max = kRanksMax) {
        return find(name) != nullptr ? number(name, min, max) : missing;
    }
    void mistake(std::string text) {
        if (mistake_.empty()) mistake_ = std::move(text);
    }
    const std::string& mistake() const { return mistake_; }

private:
    const Environment& environment_;
    std::string mistake_;
};

/// The two variables `rank` and `size`, of which the first is below the second.
struct IndexAndCount {
    std::uint32_t index = 0;
    std::uint32_t count = 0;
};
IndexAndCount read_pair(Reader& in, std::string_view index, std::string_view count) {
    const IndexAndCount pair{in.number(index, 0, kRanksMax), in.number(count, 1, kRanksMax)};
    if (in.mistake().empty() && pair.index >= pair.count)
        in.mistake(fmt::format("{}={} is not below {}={}", index, pair.index, count, pair.count));
    return pair;
}

void read_world(Reader& in, Place& place, std::string_view rank, std::string_view size) {
    const IndexAndCount world = read_pair(in, rank, size);
    place.rank = world.index;
    place.world_size = world.count;
}

/// Local rank and size, which a launcher may leave out together.
void read_local(Reader& in, Place& place, std::string_view rank, std::string_view size) {
    if (in.find(rank) == nullptr && in.find(size) == nullptr) return;
    const IndexAndCount local = read_pair(in, rank, size);
    place.local_rank = local.index;
    place.local_size = local.count;
    if (in.mistake().empty() && local.count > place.world_size)
        in.mistake(fmt::format("{}={} is more than the {} ranks of the job", size, local.count,
                               place.world_size));
}

/// What follows when all ranks are on this host.
void fill_single_host(Place& place) {
    if (place.world_size == 1) place.local_rank = 0, place.local_size = 1;
    if (place.local_size != place.world_size) return;
    place.node_rank = place.cross_rank = 0;
    place.node_count = place.cross_size = 1;
}

/// "4(x2),3" as 4, 4, 3; empty if it is malformed or longer than `nodes`.
std::vector<std::uint32_t> expand_counts(std::string_view text, std::uint32_t nodes) {
    std::vector<std::uint32_t> counts;
    for (std::string_view item : split(text, ',')) {
        long long times = 1;
        if (const std::size_t open = item.find("(x"); open != item.npos && item.ends_with(')')) {
            const std::string_view number = item.substr(open + 2, item.size() - open - 3);
            times = to_int(number, 1, nodes).value_or(0);
            item = item.substr(0, open);
        }
        const auto count = to_int(item, 1, kRanksMax);
        if (!count || times == 0 || counts.size() + static_cast<std::size_t>(times) > nodes)
            return {};
        counts.insert(counts.end(), static_cast<std::size_t>(times),
                      static_cast<std::uint32_t>(*count));
    }
    return counts;
}

bool in_slurm_step(const Reader& in) {
    const std::string* step = in.find("SLURM_STEP_ID");
    if (step == nullptr) return false;  // a batch script has SLURM_PROCID, too
    const auto id = to_int(*step, 0, std::numeric_limits<std::uint32_t>::max());
    return !id || *id < kSlurmOwnSteps;
}

/// Slurm 22.05's srun(1), OUTPUT ENVIRONMENT VARIABLES.
void read_slurm(Reader& in, Place& place) {
    const bool step_names = in.find("SLURM_STEP_NUM_TASKS") != nullptr;
    read_world(in, place, "SLURM_PROCID", step_names ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS");
    const bool step_nodes = in.find("SLURM_STEP_NUM_NODES") != nullptr;
    const IndexAndCount node =
        read_pair(in, "SLURM_NODEID", step_nodes ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES");
    place.node_rank = node.index;
    place.node_count = node.count;
    place.local_rank = in.number("SLURM_LOCALID", 0, kRanksMax);
    place.job = fmt::format("{}.{}", in.text("SLURM_JOB_ID"), in.text("SLURM_STEP_ID"));
    place.host_name = in.text("SLURMD_NODENAME");

    const std::string_view name = in.find("SLURM_STEP_TASKS_PER_NODE") != nullptr
                                      ? "SLURM_STEP_TASKS_PER_NODE"
                                      : "SLURM_TASKS_PER_NODE";
    const std::string text = in.text(name);
    if (!in.mistake().empty()) return;
    const auto counts = expand_counts(text, node.count);
    if (counts.size() != node.count ||
        std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}) != place.world_size)
        return in.mistake(fmt::format("{}='{}' does not list {} tasks on {} nodes", name, text,
                                      place.world_size, node.count));
    place.local_size = counts[node.index];
    if (place.local_rank >= place.local_size)
        return in.mistake(
            fmt::format("SLURM_LOCALID={} is not below the {} tasks that {}='{}' "
                        "has for SLURM_NODEID={}",
                        place.local_rank, place.local_size, name, text, node.index));
    const auto has_this_local = [&](std::uint32_t count) { return count > place.local_rank; };
    const auto here = counts.begin() + node.index;
    place.cross_rank =
        static_cast<std::uint32_t>(std::count_if(counts.begin(), here, has_this_local));
    place.cross_size =
        static_cast<std::uint32_t>(std::count_if(counts.begin(), counts.end(), has_this_local));
}

SlurmStep read_step(const Reader& in, const Place& place) {
    SlurmStep step;
    step.cluster = in.text("SLURM_CLUSTER_NAME");
    step.id = place.job;
    step.nodes = in.text("SLURM_STEP_NODELIST");
    step.node = in.text("SLURMD_NODENAME");
    step.ranks = place.world_size;
    step.secret_file = in.text("DTRUN_SECRET_FILE");
    step.munge_socket = in.text("DTRUN_MUNGE_SOCKET");
    return step;
}

/// OMPI_COMM_WORLD_NODE_RANK is an index on the node, not of it: which node this is stays unknown.
void read_open_mpi(Reader& in, Place& place) {
    read_world(in, place, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
    read_local(in, place, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
    place.job = in.text("PMIX_NAMESPACE");
    fill_single_host(place);
}

void read_pmi(Reader& in, Place& place) {
    read_world(in, place, "PMI_RANK", "PMI_SIZE");
    read_local(in, place, "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
    fill_single_host(place);
}

void read_torchrun(Reader& in, Place& place) {
    read_world(in, place, "RANK", "WORLD_SIZE");
    if (in.find("LOCAL_WORLD_SIZE") != nullptr)
        read_local(in, place, "LOCAL_RANK", "LOCAL_WORLD_SIZE");
    else
        place.local_rank = in.number_or("LOCAL_RANK", DTRUN_UNKNOWN);
    if (in.find("TORCHELASTIC_RUN_ID") != nullptr)
        place.job = fmt::format("{}.{}", in.text("TORCHELASTIC_RUN_ID"),
                                in.number_or("TORCHELASTIC_RESTART_COUNT", 0));
    fill_single_host(place);
    if (in.find("GROUP_RANK") == nullptr || in.find("GROUP_WORLD_SIZE") == nullptr) return;
    const IndexAndCount group = read_pair(in, "GROUP_RANK", "GROUP_WORLD_SIZE");
    place.node_rank = group.index;
    place.node_count = group.count;
    if (std::uint64_t{place.local_size} * group.count != place.world_size) return;
    place.cross_rank = group.index;  // all nodes have as many ranks
    place.cross_size = group.count;
}

/// Whether it is a numeric address, perhaps with a zone: "fe80::1%eth0".
bool is_ipv6(const std::string& text) {
    in6_addr address{};
    return ::inet_pton(AF_INET6, text.substr(0, text.find('%')).c_str(), &address) == 1;
}

DaemonAddress read_daemon(Reader& in, const std::string& serve) {
    DaemonAddress daemon;
    const std::size_t colon = serve.rfind(':');
    const bool is_bare = colon != serve.find(':') && !serve.starts_with('[');  // "::1"
    const bool has_port = colon != serve.npos && !serve.ends_with(']') && !is_bare;
    daemon.host = serve.substr(0, has_port ? colon : serve.npos);
    if (daemon.host.starts_with('[') && daemon.host.ends_with(']'))
        daemon.host = daemon.host.substr(1, daemon.host.size() - 2);
    daemon.port = has_port ? serve.substr(colon + 1) : std::string(kDaemonPort);
    if (daemon.host.empty() || !to_int(daemon.port, 1, 65'535) ||
        (is_bare && !is_ipv6(daemon.host)))
        in.mistake(fmt::format("DTRUN_SERVE='{}' is not host:port, or [address]:port", serve));
    daemon.job_name = in.text("DTRUN_JOB_NAME");
    if (daemon.job_name.size() > kJobNameBytesMax)
        in.mistake(fmt::format("DTRUN_JOB_NAME has {} bytes, more than {}", daemon.job_name.size(),
                               kJobNameBytesMax));
    if (daemon.job_name.empty())
        in.mistake("DTRUN_JOB_NAME must name a job of the daemon in DTRUN_SERVE");
    daemon.secret_file = in.text("DTRUN_SECRET_FILE");
    if (in.find("DTRUN_SECRET_FD") != nullptr)
        daemon.secret_fd = static_cast<int>(in.number("DTRUN_SECRET_FD", 0, 1 << 30));
    if (daemon.secret_file.empty() == (daemon.secret_fd < 0))
        in.mistake(
            "either DTRUN_SECRET_FILE or DTRUN_SECRET_FD must say where the secret of the "
            "daemon in DTRUN_SERVE is");
    daemon.ranks_min = in.number_or("DTRUN_MIN_NP", 0, 1);
    daemon.ranks_max = in.number_or("DTRUN_MAX_NP", 0, 1);
    if (daemon.ranks_max != 0 && daemon.ranks_max < daemon.ranks_min)
        in.mistake(fmt::format("DTRUN_MAX_NP={} is below DTRUN_MIN_NP={}", daemon.ranks_max,
                               daemon.ranks_min));
    daemon.timeout_ms = in.number_or("DTRUN_SERVER_TIMEOUT", 60, 0, 86'400) * 1'000;
    return daemon;
}

/// Whether these variables name another rank or size than Slurm's: then the tasks of the step are
/// those of another launcher, which has started us.
bool differs_from_slurm(const Reader& in, std::string_view rank, std::string_view size) {
    if (in.find(rank) == nullptr || in.find(size) == nullptr) return false;
    const bool step = in.find("SLURM_STEP_NUM_TASKS") != nullptr;
    return in.text(rank) != in.text("SLURM_PROCID") ||
           in.text(size) != in.text(step ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS");
}

/// Finds the launcher that has started us within a Slurm step: mpirun, mpiexec and torchrun put a
/// task of their own on each node.
Launcher launcher_in_step(const Reader& in) {
    if (differs_from_slurm(in, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"))
        return Launcher::open_mpi;
    if (differs_from_slurm(in, "PMI_RANK", "PMI_SIZE")) return Launcher::pmi;
    if (in.find("TORCHELASTIC_RUN_ID") != nullptr && differs_from_slurm(in, "RANK", "WORLD_SIZE"))
        return Launcher::torchrun;
    return Launcher::slurm;
}

/// The launcher that has set ranks by itself, without a protocol of dtrun.
Launcher foreign_launcher(const Reader& in) {
    const auto any = [&in](std::string_view a, std::string_view b) {
        return in.find(a) != nullptr || in.find(b) != nullptr;
    };
    if (in_slurm_step(in)) return launcher_in_step(in);
    if (any("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")) return Launcher::open_mpi;
    if (any("PMI_RANK", "PMI_SIZE")) return Launcher::pmi;
    if (any("RANK", "WORLD_SIZE")) return Launcher::torchrun;
    return Launcher::none;
}

void read_place(Reader& in, Launcher launcher, Place& place) {
    switch (launcher) {
        case Launcher::agent:
            place.rank = in.number_or("DTRUN_RANK", DTRUN_UNKNOWN);
            place.generation = in.number_or("DTRUN_GENERATION", 0);
            return;
        case Launcher::daemon:
            place.job = in.text("DTRUN_JOB_NAME");
            return;
        case Launcher::slurm:
            return read_slurm(in, place);
        case Launcher::open_mpi:
            return read_open_mpi(in, place);
        case Launcher::pmi:
            return read_pmi(in, place);
        case Launcher::torchrun:
            return read_torchrun(in, place);
        case Launcher::none:
            return fill_single_host(place);
    }
}

}  // namespace

const char* launcher_name(Launcher launcher) {
    switch (launcher) {
        case Launcher::agent:
            return "dtrun";
        case Launcher::daemon:
            return "dtrun serve";
        case Launcher::slurm:
            return "slurm";
        case Launcher::open_mpi:
            return "openmpi";
        case Launcher::pmi:
            return "pmi";
        case Launcher::torchrun:
            return "torchrun";
        case Launcher::none:
            break;
    }
    return "none";
}

Outcome<Surroundings> find_launcher(const Environment& environment) {
    Reader in(environment);
    Surroundings found;
    found.socket = in.text("DTRUN_SOCKET");
    found.steps_file = in.text("DTRUN_STEPS_FILE");
    const std::string serve = in.text("DTRUN_SERVE");
    if (!found.socket.empty()) {
        found.launcher = Launcher::agent;
        found.elastic = in.text("DTRUN_ELASTIC") == "1";
    } else {
        found.launcher = foreign_launcher(in);
        if (!serve.empty()) {
            found.daemon = read_daemon(in, serve);
            const bool elastic = found.daemon->ranks_min != 0 || found.daemon->ranks_max != 0;
            if (found.launcher == Launcher::none || elastic) found.launcher = Launcher::daemon;
        }
    }
    read_place(in, found.launcher, found.place);
    if (!in.mistake().empty()) return failure(DTRUN_INVALID, "{}", in.mistake());
    if (found.launcher == Launcher::slurm && !found.daemon && found.place.world_size > 1)
        found.step = read_step(in, found.place);
    return found;
}

}  // namespace dtrun::embedded
