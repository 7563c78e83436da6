#pragma once

#include "collectives/algorithms/by_messages.h"
#include "collectives/backends/mpi/runtime.h"

#include <mpi.h>
#include <memory>
#include <span>
#include <vector>

namespace dtrun::collectives {

/// A communicator of MPI's own functions; docs say what those do not allow.
///
/// Data and results are passed on as they are; what MPI would reduce otherwise than reduce_into() does, it reduces by
/// that (see MpiRuntime).
class MpiGroup final : public GroupOfOperations {
public:
    /// \param comm  of this group alone; owned
    MpiGroup(MpiRuntime& runtime, MPI_Comm comm, std::uint32_t rank, std::uint32_t size,
             GroupFacts facts);
    ~MpiGroup() override;
    MpiGroup(const MpiGroup&) = delete;
    MpiGroup& operator=(const MpiGroup&) = delete;

    GroupFacts facts() const override { return facts_; }

    Result<std::unique_ptr<Pending>> start(std::span<const Send> sends,
                                           std::span<const Receive> receives) override;
    /// Calls MPI_Abort, which ends all ranks of the job, since MPI cannot be interrupted.
    void abort() noexcept override;
    void expect(std::uint64_t call) override { expected_ = call; }

private:
    template <class Function>
    Result<void> call(const char* name, Function function);
    bool fits(std::size_t count) const;
#define DTRUN_OPERATION(kind, ...) Result<void> kind(const Operation& what) override;
#include "collectives/operations.def"
#undef DTRUN_OPERATION

    MpiRuntime& runtime_;
    MpiRuntime::Activity activity_;
    MPI_Comm comm_;
    GroupFacts facts_;
    std::uint64_t expected_ = 0;
    std::vector<int> counts_;   ///< of allgatherv
    std::vector<int> offsets_;  ///< likewise
};

}  // namespace dtrun::collectives
