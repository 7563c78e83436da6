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

void read_world(Reader& in, RankInfo& info, std::string_view rank, std::string_view size) {
    const IndexAndCount world = read_pair(in, rank, size);
    info.rank = world.index;
    info.world_size = world.count;
}

/// Local rank and size, which a launcher may leave out together.
void read_local(Reader& in, RankInfo& info, std::string_view rank, std::string_view size) {
    if (in.find(rank) == nullptr && in.find(size) == nullptr) return;
    const IndexAndCount local = read_pair(in, rank, size);
    info.local_rank = local.index;
    info.local_size = local.count;
    if (in.mistake().empty() && local.count > info.world_size)
        in.mistake(fmt::format("{}={} is more than the {} ranks of the job", size, local.count,
                               info.world_size));
}

/// What follows when all ranks are on this host.
void fill_single_host(RankInfo& info) {
    if (info.world_size == 1) info.local_rank = 0, info.local_size = 1;
    if (info.local_size != info.world_size) return;
    info.node_rank = info.cross_rank = 0;
    info.node_count = info.cross_size = 1;
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
void read_slurm(Reader& in, RankInfo& info) {
    const bool step_names = in.find("SLURM_STEP_NUM_TASKS") != nullptr;
    read_world(in, info, "SLURM_PROCID", step_names ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS");
    const bool step_nodes = in.find("SLURM_STEP_NUM_NODES") != nullptr;
    const IndexAndCount node =
        read_pair(in, "SLURM_NODEID", step_nodes ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES");
    info.node_rank = node.index;
    info.node_count = node.count;
    info.local_rank = in.number("SLURM_LOCALID", 0, kRanksMax);
    info.job = fmt::format("{}.{}", in.text("SLURM_JOB_ID"), in.text("SLURM_STEP_ID"));
    info.host_name = in.text("SLURMD_NODENAME");

    const std::string_view name = in.find("SLURM_STEP_TASKS_PER_NODE") != nullptr
                                      ? "SLURM_STEP_TASKS_PER_NODE"
                                      : "SLURM_TASKS_PER_NODE";
    const std::string text = in.text(name);
    if (!in.mistake().empty()) return;
    const auto counts = expand_counts(text, node.count);
    if (counts.size() != node.count ||
        std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}) != info.world_size)
        return in.mistake(fmt::format("{}='{}' does not list {} tasks on {} nodes", name, text,
                                      info.world_size, node.count));
    info.local_size = counts[node.index];
    if (info.local_rank >= info.local_size)
        return in.mistake(
            fmt::format("SLURM_LOCALID={} is not below the {} tasks that {}='{}' "
                        "has for SLURM_NODEID={}",
                        info.local_rank, info.local_size, name, text, node.index));
    const auto has_this_local = [&](std::uint32_t count) { return count > info.local_rank; };
    const auto here = counts.begin() + node.index;
    info.cross_rank =
        static_cast<std::uint32_t>(std::count_if(counts.begin(), here, has_this_local));
    info.cross_size =
        static_cast<std::uint32_t>(std::count_if(counts.begin(), counts.end(), has_this_local));
}

SlurmStep read_step(const Reader& in, const RankInfo& info) {
    SlurmStep step;
    step.cluster = in.text("SLURM_CLUSTER_NAME");
    step.id = info.job;
    step.nodes = in.text("SLURM_STEP_NODELIST");
    step.node = in.text("SLURMD_NODENAME");
    step.ranks = info.world_size;
    step.secret_file = in.text("DTRUN_SECRET_FILE");
    step.munge_socket = in.text("DTRUN_MUNGE_SOCKET");
    return step;
}

/// OMPI_COMM_WORLD_NODE_RANK is an index on the node, not of it: which node this is stays unknown.
void read_open_mpi(Reader& in, RankInfo& info) {
    read_world(in, info, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
    read_local(in, info, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
    info.job = in.text("PMIX_NAMESPACE");
    fill_single_host(info);
}

void read_pmi(Reader& in, RankInfo& info) {
    read_world(in, info, "PMI_RANK", "PMI_SIZE");
    read_local(in, info, "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
    fill_single_host(info);
}

void read_torchrun(Reader& in, RankInfo& info) {
    read_world(in, info, "RANK", "WORLD_SIZE");
    if (in.find("LOCAL_WORLD_SIZE") != nullptr)
        read_local(in, info, "LOCAL_RANK", "LOCAL_WORLD_SIZE");
    else
        info.local_rank = in.number_or("LOCAL_RANK", DTRUN_UNKNOWN);
    if (in.find("TORCHELASTIC_RUN_ID") != nullptr)
        info.job = fmt::format("{}.{}", in.text("TORCHELASTIC_RUN_ID"),
                               in.number_or("TORCHELASTIC_RESTART_COUNT", 0));
    fill_single_host(info);
    if (in.find("GROUP_RANK") == nullptr || in.find("GROUP_WORLD_SIZE") == nullptr) return;
    const IndexAndCount group = read_pair(in, "GROUP_RANK", "GROUP_WORLD_SIZE");
    info.node_rank = group.index;
    info.node_count = group.count;
    if (std::uint64_t{info.local_size} * group.count != info.world_size) return;
    info.cross_rank = group.index;  // all nodes have as many ranks
    info.cross_size = group.count;
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

void read_info(Reader& in, Launcher launcher, RankInfo& info) {
    switch (launcher) {
        case Launcher::agent:
            info.rank = in.number_or("DTRUN_RANK", DTRUN_UNKNOWN);
            info.generation = in.number_or("DTRUN_GENERATION", 0);
            return;
        case Launcher::daemon:
            info.job = in.text("DTRUN_JOB_NAME");
            return;
        case Launcher::slurm:
            return read_slurm(in, info);
        case Launcher::open_mpi:
            return read_open_mpi(in, info);
        case Launcher::pmi:
            return read_pmi(in, info);
        case Launcher::torchrun:
            return read_torchrun(in, info);
        case Launcher::none:
            return fill_single_host(info);
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
    read_info(in, found.launcher, found.info);
    if (!in.mistake().empty()) return failure(DTRUN_INVALID, "{}", in.mistake());
    if (found.launcher == Launcher::slurm && !found.daemon && found.info.world_size > 1)
        found.step = read_step(in, found.info);
    return found;
}

}  // namespace dtrun::embedded
