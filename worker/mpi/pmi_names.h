#pragma once

#include "worker/stores/job_store.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string_view>

namespace dtrun::mpi {

/// The names that programs publish (MPI_Publish_name), for one client of PMI: they are in the job's
/// store, so that all hosts see them.
///
/// Thread: one. Lifetime: `store` outlives it; with it nobody waits for answers.
class PmiNames {
public:
    /// \param answered  called after each answer that came later
    PmiNames(stores::JobStore& store, std::function<void()> answered);
    ~PmiNames();
    PmiNames(const PmiNames&) = delete;
    PmiNames& operator=(const PmiNames&) = delete;

    /// \param done  called once, from within the call or later, with the store's reply: of
    ///              compare_set, erase and get in this order. refused: the name or the port is too
    ///              long
    using Done = std::function<void(const StoreReply&)>;
    void publish(std::string_view name, std::string_view port, Done done);
    void unpublish(std::string_view name, Done done);
    void look_up(std::string_view name, Done done);

    std::size_t unanswered() const { return asked_.size(); }

private:
    void ask(Op op, std::string_view name, std::optional<std::string_view> value, Done done);

    stores::JobStore& store_;
    const std::function<void()> answered_;
    std::map<std::uint64_t, stores::JobStore::Ticket> asked_;  ///< what has no answer
    std::uint64_t last_asked_ = 0;
};

}  // namespace dtrun::mpi
