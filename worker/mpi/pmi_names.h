#pragma once

#include "worker/stores/job_store.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

namespace dtrun::mpi {

/// The names that programs publish (MPI_Publish_name), for one client of PMI: they are in the job's
/// store, so that all hosts see them.
///
/// Thread: one. Lifetime: `store` outlives it; with it nobody waits for answers.
class PmiNames {
public:
    /// \param answered  called after each answer of the store
    PmiNames(stores::JobStore& store, std::function<void()> answered)
        : queries_(store), answered_(std::move(answered)) {}

    /// \param done  called once, later, with the store's reply: of compare_set, erase and get in this
    ///              order; or within the call, refused: the name or the port is too long
    using Done = std::function<void(const StoreReply&)>;
    void publish(std::string_view name, std::string_view port, Done done);
    void unpublish(std::string_view name, Done done);
    void look_up(std::string_view name, Done done);

    std::size_t unanswered() const { return queries_.size(); }

private:
    void ask(Op op, std::string_view name, std::optional<std::string_view> value, Done done);

    stores::PendingQueries queries_;
    const std::function<void()> answered_;
};

}  // namespace dtrun::mpi
