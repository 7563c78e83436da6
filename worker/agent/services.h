#pragma once

#include "base/numbered.h"
#include "contracts/variables.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/start_messages.h"
#include "worker/agent/connections.h"
#include "worker/agent/reserved_ports.h"
#include "worker/ranks/rank_runner.h"
#include "worker/ranks/rank_service.h"
#include "worker/stores/rejoin_queue.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace dtrun::agent {

/// What services are made of. All of it belongs to the agent, and outlives them.
struct ServiceParts {
    asio::any_io_executor executor;
    const AgentConfig& config;
    const contracts::ContractFacts& facts;
    const contracts::Environment& user;  ///< what ranks have without contracts
    Connections& connections;
    ReservedPorts& reserved_ports;
    ranks::RankRunner& runner;
    std::function<void(const MpiStatus&)> tell_head;
    stores::RejoinQueue& rejoins;            ///< of an elastic job
    std::function<void(Rank rank)> aborted;  ///< a rank has called MPI_Abort
};

using Services = std::vector<std::unique_ptr<ranks::RankService>>;

/// All services of a real agent. A new one is a file and a row here.
Services make_services(const ServiceParts& parts);

}  // namespace dtrun::agent
