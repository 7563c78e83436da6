#pragma once

#include "base/numbered.h"
#include "rendezvous/wire/exchange_messages.h"
#include "worker/mpi/network.h"
#include "worker/mpi/world.h"
#include "worker/stores/relayed_store.h"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

namespace dtrun::mpi {

/// An MpiNetwork over what leads to the root of the job's tree: fences are the tree's, mail is queues in
/// the job's store.
///
/// Thread: one.
class RelayedNetwork final : public MpiNetwork {
public:
    /// \param too_much  called when a fence has failed because ranks brought more than it takes
    RelayedNetwork(asio::any_io_executor executor, stores::RelayedStore::Send send,
                   std::function<void()> too_much)
        : send_(send),
          too_much_(std::move(too_much)),
          store_(std::move(executor), std::move(send)),
          queries_(store_) {}

    /// Forgets the generation before: nobody who waits in it is answered.
    void begin(const MpiWorld& world);
    /// A `reply` or `fenced` frame. Errc: invalid_input
    Result<void> on_frame(const FrameView& frame);

    /// All ranks have come to a fence of this generation: they have met.
    bool met() const { return met_; }

    void fence(std::string_view name, std::string bytes, Fenced done) override;
    void mail(std::uint32_t node_rank, std::string bytes) override;
    void open_mail(std::function<void(std::string bytes)> take) override;
    stores::JobStore& store() override { return store_; }

private:
    using FenceKey = std::pair<std::string, std::uint64_t>;  ///< name and round

    Result<void> on_fenced(std::string_view payload);
    void end_fence(std::map<FenceKey, Fenced>::iterator fence, const dtrun::Fenced& fenced);
    void next_mail();

    stores::RelayedStore::Send send_;
    std::function<void()> too_much_;
    stores::RelayedStore store_;
    stores::PendingQueries queries_;
    std::uint64_t generation_ = 0;
    std::uint32_t node_rank_ = 0;
    Rank first_rank_{};
    std::uint32_t ranks_ = 0;                                   ///< of this host
    std::map<std::string, std::uint64_t, std::less<>> rounds_;  ///< the next, by name
    std::map<FenceKey, Fenced> fences_;
    bool met_ = false;
    std::function<void(std::string)> take_mail_;
};

}  // namespace dtrun::mpi
