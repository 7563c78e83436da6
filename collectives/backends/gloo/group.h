#pragma once

#include "collectives/algorithms/by_messages.h"
#include "collectives/backends/tcp/address.h"

#include <gloo/context.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace dtrun::collectives::over_gloo {

Result<std::unique_ptr<Group>> connect(const GroupSpec& spec);

/// A communicator over Gloo's own collective operations, as other frameworks use them: to compare with, and for who
/// wants Gloo. Gloo has no reduce-scatter of this kind; it is an all-to-all with the sum at the end.
class GlooGroup final : public GroupOfOperations {
public:
    /// \param context  connected
    GlooGroup(const GroupSpec& spec, over_tcp::LocalAddress address,
              std::shared_ptr<::gloo::Context> context);
    ~GlooGroup() override;
    GlooGroup(const GlooGroup&) = delete;
    GlooGroup& operator=(const GlooGroup&) = delete;

    GroupFacts facts() const override;
    Result<void> run(const Operation& what) override;
    Result<std::unique_ptr<Pending>> start(std::span<const Send> sends,
                                           std::span<const Receive> receives) override;
    void abort() noexcept override;
    void expect(std::uint64_t call) override { expected_ = call; }

private:
    class Messages;
    struct Numbers {
        std::uint64_t sent = 0;
        std::uint64_t received = 0;
    };

    Error failed(const std::exception& error);
    /// Of the present operation: ranks in another one have another tag, and wait.
    std::uint32_t tag() const { return tag_; }
    std::uint64_t slot_of(std::uint64_t number, std::size_t bytes) const;
    // They throw what Gloo throws, and fail with nothing else.
#define DTRUN_OPERATION(kind, ...) Result<void> kind(const Operation& what) override;
#include "collectives/operations.def"
#undef DTRUN_OPERATION

    over_tcp::LocalAddress address_;
    std::shared_ptr<::gloo::Context> context_;
    std::uint64_t expected_ = 0;
    std::uint64_t sequence_ = 0;
    std::uint32_t tag_ = 0;
    std::vector<Numbers> messages_;  ///< by peer
    std::atomic<bool> aborted_ = false;
    std::optional<Error> error_;  ///< the first one; later operations return it
    pid_t pid_;
};

}  // namespace dtrun::collectives::over_gloo
