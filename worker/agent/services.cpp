#include "worker/agent/services.h"

#include "rendezvous/wire/modes.h"
#include "rendezvous/wire/start_messages.h"
#include "worker/agent/change_file.h"
#include "worker/agent/error_files.h"
#include "worker/agent/foreign_stores.h"
#include "worker/agent/rank_binding.h"
#include "worker/mpi/mpi_service.h"
#include "worker/ranks/agent_directories.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

namespace dtrun::agent {
namespace {

std::unique_ptr<ranks::RankService> make_error_files(const ServiceParts&) {
    return std::make_unique<ErrorFiles>();
}

std::unique_ptr<ranks::RankService> make_change_file(const ServiceParts& parts) {
    const bool is_elastic = parts.config.ranks_min > 0;
    return std::make_unique<ChangeFile>(
        is_elastic ? ranks::directory_prefix(parts.facts.job, parts.facts.agent) : std::string());
}

std::unique_ptr<ranks::RankService> make_stores(const ServiceParts& parts) {
    // Replies find the service by this, as they come only when it has sent something.
    const auto self = std::make_shared<ForeignStores*>(nullptr);
    auto send = parts.connections.open_for_agent(PeerKind::rank, [self](const FrameView& frame) {
        return (*self)->on_reply(frame.payload);
    });
    auto stores = std::make_unique<ForeignStores>(ForeignStores::Parts{
        parts.executor, std::move(send), parts.config.torch_store == TorchStore::proxy,
        parts.config.ranks_min > 0, parts.rejoins, parts.facts, parts.user, parts.reserved_ports});
    *self = stores.get();
    return stores;
}

std::unique_ptr<ranks::RankService> make_mpi(const ServiceParts& parts) {
    const AgentConfig& config = parts.config;
    mpi::MpiService::Options options;
    const bool wanted = std::ranges::find(config.contracts, "mpi") != config.contracts.end();
    options.mode = wanted ? config.mpi : MpiMode::none;
    options.host_name = config.host_name;
    options.job = config.mpi_job;
    options.directory_prefix = ranks::directory_prefix(parts.facts.job, parts.facts.agent);
    options.env = parts.user;
    options.load_limit = config.connect_timeout * 3 / 4;
    for (const JobProgram& program : config.programs)
        options.program_ranks.push_back(program.ranks);
    options.tell = parts.tell_head;
    options.aborted = parts.aborted;
    options.started = [&runner = parts.runner](pid_t pid) { runner.spare(pid); };
    const auto self = std::make_shared<mpi::MpiService*>(nullptr);
    auto to_tree = parts.connections.open_for_agent(
        PeerKind::subtree, [self](const FrameView& frame) { return (*self)->on_frame(frame); });
    auto service =
        std::make_unique<mpi::MpiService>(parts.executor, std::move(to_tree), std::move(options));
    *self = service.get();
    return service;
}

std::unique_ptr<ranks::RankService> make_binding(const ServiceParts& parts) {
    const AgentConfig& config = parts.config;
    const bool for_slots = std::ranges::find(config.contracts, "devices") != config.contracts.end();
    return std::make_unique<RankBinding>(RankBinding::Options{
        .request = config.binding,
        .scheduler_cpus = config.cpus_per_rank,
        .devices_by_slot = for_slots && config.ranks_min == 0,
        .variable = [&user = parts.user](std::string_view name) -> std::optional<std::string_view> {
            if (const auto found = user.find(name); found != user.end()) return found->second;
            const char* const own = std::getenv(std::string(name).c_str());
            return own == nullptr ? std::nullopt : std::optional<std::string_view>(own);
        },
        .tell =
            [tell = parts.tell_head, host = config.host_name](const std::string& text) {
                MpiStatus news;
                news.note = fmt::format("{}: {}", host, text);
                tell(news);
            },
    });
}

using Make = std::unique_ptr<ranks::RankService> (*)(const ServiceParts&);
constexpr Make kServices[] = {make_error_files, make_change_file, make_binding, make_stores,
                              make_mpi};

}  // namespace

Services make_services(const ServiceParts& parts) {
    Services services;
    for (const Make make : kServices) services.push_back(make(parts));
    return services;
}

}  // namespace dtrun::agent
