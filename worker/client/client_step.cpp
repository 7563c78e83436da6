#include "hostfiles/nodelist.h"
#include "worker/client/client.h"

#include "rendezvous/exchange_messages.h"
#include "worker/client/step_key.h"
#include "worker/client/step_search.h"

#include <algorithm>

namespace dtrun::embedded {
namespace {

constexpr std::chrono::seconds kHelperSearchTime{5};

}  // namespace

/// Connects to the step's server, which rank 0 starts and the others search for. If the ranks have
/// no way to recognise each other, the reason is kept in unmet_ and is not an error yet: this rank
/// may only want to know its place. A way that exists and fails is an error: the other ranks may be
/// waiting.
Outcome<FrameSocket> Client::meet(const Patience& patience) {
    SlurmStep step = *surroundings_.step;
    if (step.node.empty()) step.node = surroundings_.place.host_name;
    const bool serves = role_ == Role::rank && surroundings_.place.rank == 0;
    const auto nodes = expand_nodelist(step.nodes, "SLURM_STEP_NODELIST");
    auto key = StepKey::find(step);
    std::optional<Failure> problem;
    if (!nodes)
        problem = {DTRUN_INVALID, nodes.error().message};
    else if (!key)
        problem = key.error();
    else if (serves && std::ranges::find(*nodes, step.node) == nodes->end())
        problem = {DTRUN_INVALID, fmt::format("SLURMD_NODENAME='{}' is not in "
                                              "SLURM_STEP_NODELIST='{}'",
                                              step.node, step.nodes)};
    if (problem) {
        if (role_ == Role::rank && problem->code == DTRUN_NO_LAUNCHER) unmet_ = problem;
        return std::unexpected(*problem);
    }
    if (serves) {
        auto server = StepServer::start(step, *key);
        if (!server) return std::unexpected(server.error());
        server_ = std::move(*server);
        return FrameSocket(server_->take_own_end());
    }
    Hello hello;
    hello.rank = role_ == Role::rank ? surroundings_.place.rank : kNoRank;
    hello.generation = generation();
    hello.pid = pid_;
    if (role_ == Role::rank) return find_rank_0(step, *nodes, *key, hello, patience);
    // Rank 0 was there when our parent found it, so there is nothing to wait for.
    Patience shorter = patience;
    shorter.deadline = std::min(patience.deadline, now() + kHelperSearchTime);
    auto socket = find_rank_0(step, *nodes, *key, hello, shorter);
    if (!socket && socket.error().code == DTRUN_TIMED_OUT && !patience.over())
        socket.error().code = DTRUN_CLOSED;
    return socket;
}

/// Why not all ranks have come: rank 0 knows, and tells the others.
/// \return nothing if the last one has come after all: rank 0's own welcome is on the way
Outcome<void> Client::explain(Failure why, std::chrono::milliseconds waited) {
    if (!server_) {
        if (why.code == DTRUN_TIMED_OUT)
            why.text = "rank 0 is there, but does not say that all ranks have come";
        return std::unexpected(std::move(why));
    }
    if (why.code == DTRUN_TIMED_OUT) {
        auto missing = server_->end_if_missing(waited);
        if (!missing) return {};
        why.text = std::move(*missing);
    } else {
        server_->end(fmt::format("rank 0: {}", why.text));
    }
    const Lock lock(mutex_);
    close(why);
    return std::unexpected(std::move(why));
}

void Client::leave_step(std::string_view failure, std::function<bool()> give_up) {
    if (!failure.empty())
        server_->end(fmt::format("rank 0: {}", failure));
    else if (!server_->wait_for_others({Moment::max(), std::move(give_up)}))
        server_->end("rank 0 was interrupted while others had not finalized their workers");
    server_.reset();
}

}  // namespace dtrun::embedded
