#include "worker/mpi/pmix_job.h"

#include "worker/mpi/pmix_environment.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

namespace dtrun::mpi {
namespace {

using Ranks = std::vector<std::uint32_t>;

std::uint32_t u32_of(std::size_t number) {
    return static_cast<std::uint32_t>(number);
}

std::string comma_list(const Ranks& ranks) {
    return fmt::format("{}", fmt::join(ranks, ","));
}

/// By node_rank.
std::vector<Ranks> ranks_of_nodes(const PmixJob& job) {
    std::vector<Ranks> nodes(job.node_names.size());
    for (std::uint32_t rank = 0; rank < job.node_of_rank.size(); ++rank)
        nodes[job.node_of_rank[rank]].push_back(rank);
    return nodes;
}

std::string proc_map(const std::vector<Ranks>& nodes) {
    std::string map;
    for (const Ranks& ranks : nodes) map += (map.empty() ? "" : ";") + comma_list(ranks);
    return map;
}

/// One of the programs of the job, on ranks that follow each other.
struct App {
    std::uint32_t number = 0;
    std::uint32_t first = 0;  ///< rank
    std::uint32_t ranks = 0;
};

std::vector<App> apps_of(const PmixJob& job) {
    if (job.program_ranks.empty()) return {{0, 0, u32_of(job.node_of_rank.size())}};
    std::vector<App> apps;
    std::uint32_t first = 0;
    for (const std::uint32_t ranks : job.program_ranks) {
        apps.push_back({u32_of(apps.size()), first, ranks});
        first += ranks;
    }
    return apps;
}

/// The least that libpmix takes: there is one of these for every rank of the job.
PmixInfos rank_infos(const PmixJob& job, std::uint32_t rank, std::uint16_t local_rank) {
    const std::uint32_t node = job.node_of_rank[rank];
    PmixInfos infos;
    infos.rank("pmix.rank", rank);
    infos.u16("pmix.lrank", local_rank);
    infos.u16("pmix.nrank", local_rank);
    infos.text("pmix.hname", job.node_names[node]);
    if (job.program_ranks.empty()) return infos;
    for (const App& app : apps_of(job)) {
        if (rank < app.first || rank - app.first >= app.ranks) continue;
        infos.u32("pmix.appnum", app.number);
        infos.rank("pmix.apprank", rank - app.first);
    }
    return infos;
}

PmixInfos node_infos(const PmixJob& job, std::uint32_t node, const Ranks& ranks) {
    PmixInfos infos;
    infos.text("pmix.hname", job.node_names[node]);
    infos.u32("pmix.nodeid", node);
    infos.u32("pmix.local.size", u32_of(ranks.size()));
    infos.u32("pmix.node.size", u32_of(ranks.size()));
    infos.text("pmix.lpeers", comma_list(ranks));
    infos.rank("pmix.lldr", ranks.front());
    return infos;
}

PmixInfos app_infos(const App& app) {
    PmixInfos infos;
    infos.u32("pmix.appnum", app.number);
    infos.u32("pmix.app.size", app.ranks);
    infos.rank("pmix.aldr", app.first);
    return infos;
}

PmixInfos job_infos(const PmixJob& job, const std::vector<Ranks>& nodes,
                    const std::string& directory, const std::string& session) {
    const std::uint32_t size = u32_of(job.node_of_rank.size());
    const Ranks& local = nodes[job.node_rank];
    PmixInfos infos;
    infos.text("pmix.nmap", fmt::format("{}", fmt::join(job.node_names, ",")));
    infos.text("pmix.pmap", proc_map(nodes));
    infos.u32("pmix.univ.size", size);
    infos.u32("pmix.job.size", size);
    infos.u32("pmix.max.size", size);
    const std::vector<App> apps = apps_of(job);
    infos.u32("pmix.job.napps", u32_of(apps.size()));
    infos.u32("pmix.num.nodes", u32_of(nodes.size()));
    infos.u32("pmix.nodeid", job.node_rank);
    infos.u32("pmix.local.size", u32_of(local.size()));
    infos.u32("pmix.node.size", u32_of(local.size()));
    infos.text("pmix.lpeers", comma_list(local));
    infos.rank("pmix.lldr", local.front());
    infos.text("pmix.jobid", job.nspace);
    infos.text("pmix.hname", job.node_names[job.node_rank]);
    infos.text("pmix.tmpdir", directory);
    infos.text("pmix.nsdir", session);
    infos.flag("pmix.tdir.rmclean", true);
    for (std::uint32_t node = 0; node < nodes.size(); ++node) {
        for (std::size_t i = 0; i < nodes[node].size(); ++i)
            infos.infos("pmix.pdata",
                        rank_infos(job, nodes[node][i], static_cast<std::uint16_t>(i)));
        infos.infos("pmix.node.arr", node_infos(job, node, nodes[node]));
    }
    for (const App& app : apps) infos.infos("pmix.app.arr", app_infos(app));
    return infos;
}

/// The result of a function of libpmix, called without a callback: it has waited.
Result<void> done(const PmixLibrary& library, pmix::Status status, const char* function) {
    if (status == pmix::kSuccess || status == pmix::kOperationSucceeded) return {};
    return fail(Errc::internal, "{} of libpmix {} ({}): {} ({})", function, library.version,
                library.path, library.error_string(status), status);
}

Result<void> check(const PmixJob& job) {
    std::vector<bool> used(job.node_names.size());
    for (const std::uint32_t node : job.node_of_rank) {
        if (node >= used.size()) return fail(Errc::internal, "PMIx: a rank without a host");
        used[node] = true;
    }
    if (job.node_rank >= used.size() || !std::ranges::all_of(used, std::identity{}))
        return fail(Errc::internal, "PMIx: a host without ranks");
    return {};
}

}  // namespace

pmix::Value& PmixInfos::add(const char* key, pmix::DataType type) {
    pmix::Info& info = infos_.emplace_back();
    std::memset(&info, 0, sizeof info);
    std::strncpy(info.key, key, sizeof info.key - 1);
    info.value.type = type;
    return info.value;
}

void PmixInfos::text(const char* key, std::string value) {
    add(key, pmix::kString).data.string = texts_.emplace_back(std::move(value)).data();
}
void PmixInfos::flag(const char* key, bool value) {
    add(key, pmix::kBool).data.flag = value;
}
void PmixInfos::u16(const char* key, std::uint16_t value) {
    add(key, pmix::kUint16).data.uint16 = value;
}
void PmixInfos::u32(const char* key, std::uint32_t value) {
    add(key, pmix::kUint32).data.uint32 = value;
}
void PmixInfos::rank(const char* key, std::uint32_t value) {
    add(key, pmix::kProcRank).data.rank = value;
}
void PmixInfos::infos(const char* key, PmixInfos&& values) {
    PmixInfos& kept = inner_.emplace_back(std::move(values));
    pmix::DataArray& array = arrays_.emplace_back();
    array = {pmix::kInfo, kept.size(), kept.data()};
    add(key, pmix::kDataArray).data.darray = &array;
}

pmix::Info* PmixInfos::data() {
    if (!infos_.empty()) infos_.back().flags |= pmix::kInfoArrayEnd;
    return infos_.data();
}

pmix::Proc pmix_proc(std::string_view nspace, std::uint32_t rank) {
    pmix::Proc proc{};
    nspace.copy(proc.nspace, sizeof proc.nspace - 1);
    proc.rank = rank;
    return proc;
}

Result<void> pmix_init(const PmixLibrary& library, pmix::ServerModule& module,
                       const std::string& directory, const std::string& host_name) {
    PmixInfos infos;
    infos.text("pmix.srv.nspace", std::string(kPmixServerNspace));
    infos.rank("pmix.srv.rank", 0);
    infos.text("pmix.srvr.tmpdir", directory);
    infos.text("pmix.sys.tmpdir", directory);
    infos.text("pmix.hname", host_name);
    // Else every rank looks through the machine itself.
    infos.flag("pmix.srvr.share", true);
    return done(library, library.server_init(&module, infos.data(), infos.size()),
                "PMIx_server_init");
}

Result<void> pmix_register(const PmixLibrary& library, const PmixJob& job,
                           const std::string& directory) {
    if (auto good = check(job); !good) return good;
    const std::string session = directory + "/" + job.nspace;
    if (::mkdir(session.c_str(), 0700) != 0 && errno != EEXIST)
        return fail(Errc::internal, "{}: {}", session, strerror(errno));
    const std::vector<Ranks> nodes = ranks_of_nodes(job);
    const Ranks& local = nodes[job.node_rank];
    PmixInfos infos = job_infos(job, nodes, directory, session);
    pmix::Status status =
        library.register_nspace(job.nspace.c_str(), static_cast<int>(local.size()), infos.data(),
                                infos.size(), nullptr, nullptr);
    if (auto good = done(library, status, "PMIx_server_register_nspace"); !good) return good;
    for (const std::uint32_t rank : local) {
        const pmix::Proc proc = pmix_proc(job.nspace, rank);
        status =
            library.register_client(&proc, ::geteuid(), ::getegid(), nullptr, nullptr, nullptr);
        if (auto good = done(library, status, "PMIx_server_register_client"); !good) return good;
    }
    return {};
}

Result<std::uint16_t> pmix_port(const PmixLibrary& library, const PmixJob& job) {
    const auto local = std::ranges::find(job.node_of_rank, job.node_rank);
    const pmix::Proc proc =
        pmix_proc(job.nspace, static_cast<std::uint32_t>(local - job.node_of_rank.begin()));
    char** environment = nullptr;
    const pmix::Status status = library.setup_fork(&proc, &environment);
    if (auto good = done(library, status, "PMIx_server_setup_fork"); !good)
        return std::unexpected(good.error());
    std::uint16_t port = 0;
    for (char** variable = environment; variable != nullptr && *variable != nullptr; ++variable) {
        const std::string_view text(*variable);
        const std::size_t colon = text.rfind(':');
        if (text.starts_with("PMIX_SERVER_URI") && colon != text.npos)
            std::from_chars(text.data() + colon + 1, text.data() + text.size(), port);
        ::free(*variable);
    }
    ::free(environment);
    if (port == 0)
        return fail(Errc::internal, "libpmix {} ({}) does not tell its port", library.version,
                    library.path);
    return port;
}

}  // namespace dtrun::mpi
