#pragma once

#include "collectives/group.h"
#include "collectives/mpi/runtime.h"

#include <mpi.h>
#include <memory>
#include <span>
#include <vector>

namespace dtrun::collectives {

/// A communicator of MPI's own functions; docs say what those do not allow.
///
/// Data and results are passed on as they are. min and max of floats with NaN are what MPI's
/// comparison makes of them, which may differ from reduce_into(); halves are reduce_into()'s.
class MpiGroup final : public Group {
public:
    /// \param comm  of this group alone; owned
    MpiGroup(Runtime& runtime, MPI_Comm comm, std::uint32_t rank, std::uint32_t size,
             GroupFacts facts);
    ~MpiGroup() override;
    MpiGroup(const MpiGroup&) = delete;
    MpiGroup& operator=(const MpiGroup&) = delete;

    GroupFacts facts() const override { return facts_; }

    Result<void> allreduce(const void* in, void* out, std::size_t count, DType type,
                           Reduce reduce) override;
    Result<void> reduce(const void* in, void* out, std::size_t count, DType type, Reduce reduce,
                        std::uint32_t root) override;
    Result<void> reduce_scatter(const void* in, void* out, std::size_t count, DType type,
                                Reduce reduce) override;
    Result<void> broadcast(void* data, std::size_t bytes, std::uint32_t root) override;
    Result<void> allgather(const void* in, void* out, std::size_t bytes) override;
    Result<void> allgatherv(const void* in, void* out, std::span<const std::size_t> bytes) override;
    Result<void> gather(const void* in, void* out, std::size_t bytes, std::uint32_t root) override;
    Result<void> scatter(const void* in, void* out, std::size_t bytes, std::uint32_t root) override;
    Result<void> alltoall(const void* in, void* out, std::size_t bytes) override;
    Result<void> barrier() override;
    Result<std::unique_ptr<Pending>> start(std::span<const Send> sends,
                                           std::span<const Receive> receives) override;
    /// Calls MPI_Abort, which ends all ranks of the job, since MPI cannot be interrupted.
    void abort() noexcept override;
    void expect(std::uint64_t call) override { expected_ = call; }

private:
    template <class Function>
    Result<void> call(const char* name, Function function);
    Result<void> exchange(std::span<const Send> sends, std::span<const Receive> receives);

    // Variants for counts that do not fit into an int.
    Result<void> reduce_scatter_by_roots(const std::byte* in, void* out, std::size_t count,
                                         DType type, Reduce reduce);
    Result<void> allgather_by_steps(const void* in, std::byte* out,
                                    std::span<const std::size_t> bytes);
    Result<void> alltoall_by_steps(const std::byte* in, std::byte* out, std::size_t bytes);
    Result<void> gather_by_messages(const void* in, std::byte* out, std::size_t bytes,
                                    std::uint32_t root);
    Result<void> scatter_by_messages(const std::byte* in, void* out, std::size_t bytes,
                                     std::uint32_t root);

    Runtime& runtime_;
    Runtime::Activity activity_;
    MPI_Comm comm_;
    std::uint32_t rank_;
    std::uint32_t size_;
    GroupFacts facts_;
    std::uint64_t expected_ = 0;
    std::vector<int> counts_;   ///< of allgatherv
    std::vector<int> offsets_;  ///< likewise
};

}  // namespace dtrun::collectives
