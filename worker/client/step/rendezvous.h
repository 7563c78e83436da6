#pragma once

#include "rendezvous/wire/exchange_messages.h"
#include "worker/client/connect/frame_socket.h"
#include "worker/client/connect/launchers.h"
#include "worker/client/connect/outcome.h"
#include "worker/client/connect/wait_context.h"
#include "worker/client/step/server.h"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

namespace dtrun::embedded {

/// How a process of a Slurm step comes together with the others: rank 0 starts the server that they
/// meet at, and the others search for it. Thus only rank 0 ever has the server.
///
/// Thread: one at a time, which starts or leaves; once meet() has returned, unmet() and serves() may
/// be asked by any. Lifetime: owns the server, which ends with leave() or with this object.
class StepRendezvous {
public:
    explicit StepRendezvous(SlurmStep step) : step_(std::move(step)) {}

    /// Connects to the step's server. If the ranks have no way to recognise each other, the reason
    /// is kept in unmet() and is not an error yet: this rank may only want to know its place. A way
    /// that exists and fails is an error: the other ranks may be waiting.
    /// \param hello  who this is; rank 0 serves, who has no rank is a helper
    Outcome<FrameSocket> meet(const Hello& hello, const WaitContext& context);
    /// Why the ranks cannot meet.
    const std::optional<Failure>& unmet() const { return unmet_; }
    const std::string& step_id() const { return step_.id; }
    bool serves() const { return server_ != nullptr; }

    /// Why not all ranks have come: rank 0 knows, and tells the others.
    /// \return nothing if the last one has come after all: rank 0's own welcome is on the way
    Outcome<void> explain(Failure why, std::chrono::milliseconds waited);
    /// Rank 0 serves until the others have left, too, unless it has failed. Nothing for the others.
    /// \param failure  empty: none
    void leave(std::string_view failure, std::function<bool()> give_up);

private:
    const SlurmStep step_;
    std::optional<Failure> unmet_;
    std::unique_ptr<StepServer> server_;
};

}  // namespace dtrun::embedded
