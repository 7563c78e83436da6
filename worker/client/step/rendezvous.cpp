#include "worker/client/step/rendezvous.h"

#include "hostfiles/nodelist.h"
#include "worker/client/step/key.h"
#include "worker/client/step/search.h"

#include <algorithm>

namespace dtrun::embedded {
namespace {

constexpr std::chrono::seconds kHelperSearchTime{5};

}  // namespace

Outcome<FrameSocket> StepRendezvous::meet(const Hello& hello, const WaitContext& context) {
    const bool is_rank = hello.rank != kNoRank;
    const bool is_first = hello.rank == Rank{0};
    const auto nodes = expand_nodelist(step_.nodes, "SLURM_STEP_NODELIST");
    auto key = StepKey::find(step_);
    std::optional<Failure> problem;
    if (!nodes)
        problem = {DTRUN_INVALID, nodes.error().message};
    else if (!key)
        problem = key.error();
    else if (is_first && std::ranges::find(*nodes, step_.node) == nodes->end())
        problem = {DTRUN_INVALID, fmt::format("SLURMD_NODENAME='{}' is not in "
                                              "SLURM_STEP_NODELIST='{}'",
                                              step_.node, step_.nodes)};
    if (problem) {
        if (is_rank && problem->code == DTRUN_NO_LAUNCHER) unmet_ = problem;
        return std::unexpected(*problem);
    }
    if (is_first) {
        auto server = StepServer::start(step_, *key);
        if (!server) return std::unexpected(server.error());
        server_ = std::move(*server);
        return FrameSocket(server_->take_own_end());
    }
    if (is_rank) return find_rank_0(step_, *nodes, *key, hello, context);
    // Rank 0 was there when our parent found it, so there is nothing to wait for.
    WaitContext shorter = context;
    shorter.deadline = std::min(context.deadline, now() + kHelperSearchTime);
    auto socket = find_rank_0(step_, *nodes, *key, hello, shorter);
    if (!socket && socket.error().code == DTRUN_TIMED_OUT && !context.over())
        socket.error().code = DTRUN_CLOSED;
    return socket;
}

Outcome<void> StepRendezvous::explain(Failure why, std::chrono::milliseconds waited) {
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
    return std::unexpected(std::move(why));
}

void StepRendezvous::leave(std::string_view failure, std::function<bool()> give_up) {
    if (!server_) return;
    if (!failure.empty())
        server_->end(fmt::format("rank 0: {}", failure));
    else if (!server_->wait_for_others({Moment::max(), std::move(give_up)}))
        server_->end("rank 0 was interrupted while others had not finalized their workers");
    server_.reset();
}

}  // namespace dtrun::embedded
