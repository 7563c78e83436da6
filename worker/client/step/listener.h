#pragma once

#include "worker/client/connect/outcome.h"
#include "worker/client/connect/private_fd.h"
#include "worker/client/connect/wait_context.h"
#include "worker/client/step/poll.h"

#include <cstdint>
#include <optional>
#include <span>

namespace dtrun::embedded {

/// Where a step's server listens. When it is out of descriptors, it is not watched for a while:
/// who waits to be accepted would be announced again and again.
///
/// Thread: the server's. Lifetime: `poll` outlives it.
class StepListener {
public:
    explicit StepListener(StepPoll& poll) : poll_(poll) {}

    /// Listens at the first of these ports that is free, on every interface.
    /// \return the port; nothing, with errno, if none is free
    std::optional<std::uint16_t> listen(std::span<const std::uint16_t> ports);
    void close();

    /// \return the next connection; an empty one when nobody waits or it is closed
    /// Failures: internal, with the system's words (out of descriptors, most likely: it pauses)
    Outcome<PrivateFd> accept();
    /// Ends a pause that is over. \param at  now
    void resume(Moment at);
    /// When a pause is over.
    Moment next() const { return again_; }

private:
    void set_accepting(bool accepting);

    StepPoll& poll_;
    PrivateFd socket_;
    bool accepting_ = false;
    Moment again_ = Moment::max();
};

}  // namespace dtrun::embedded
