#pragma once

#include "collectives/algorithms/by_messages.h"
#include "collectives/algorithms/stand_ins.h"
#include "collectives/backends/oneccl/bootstrap.h"
#include "collectives/backends/oneccl/messages.h"

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

namespace dtrun::collectives::oneccl {

/// A communicator of oneCCL, whose data are in the host's memory.
///
/// An operation is begun and then polled until it has ended, so that abort() can interrupt it;
/// after that oneCCL cannot be used again in this process (OnecclRuntime).
class OnecclGroup final : public GroupOfOperations {
public:
    OnecclGroup(OnecclRuntime& runtime, std::shared_ptr<const Library> library,
                const GroupSpec& spec, JoinedComm meeting, GroupFacts facts);
    ~OnecclGroup() override;
    OnecclGroup(const OnecclGroup&) = delete;
    OnecclGroup& operator=(const OnecclGroup&) = delete;

    GroupFacts facts() const override { return facts_; }

    Result<void> run(const Operation& what) override;
    Result<std::unique_ptr<Pending>> start(std::span<const Send> sends,
                                           std::span<const Receive> receives) override;
    void abort() noexcept override { aborted_ = true; }

private:
    class Started;

    /// Runs one call of oneCCL from its beginning to its end.
    template <class Begin>
    Result<void> call(const char* what, Begin begin);
    Result<void> allreduce(const Operation& what) override;
    Result<void> reduce(const Operation& what) override;
    Result<void> reduce_scatter(const Operation& what) override;
    Result<void> broadcast(const Operation& what) override;
    Result<void> allgather(const Operation& what) override;
    Result<void> allgatherv(const Operation& what) override { return allgather(what); }
    Result<void> alltoall(const Operation& what) override;
    Result<void> barrier(const Operation& what) override;
    /// Polls until `ended` returns true. \param ended  may throw
    template <class Ended>
    Result<void> wait(const char* what, Ended ended);
    Result<void> advance();
    bool ended(Event& event) const;
    std::unexpected<Error> broken(Error error);
    Event begin_barrier();
    bool met_at_the_end();

    OnecclRuntime& runtime_;
    const std::shared_ptr<const Library> library_;
    JoinedComm meeting_;
    const GroupFacts facts_;
    std::unique_ptr<std::int32_t> token_ = std::make_unique<std::int32_t>(0);  ///< of barriers
    const Events none_;  ///< no events to wait for before an operation
    StandInRoom keys_;
    OnecclMessages messages_;
    std::optional<Error> broken_;
    std::atomic<bool> aborted_{false};
};

}  // namespace dtrun::collectives::oneccl
