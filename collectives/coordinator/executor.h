#pragma once

#include "collectives/coordinator/fusion.h"
#include "collectives/include/dtrun_collectives.h"

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace dtrun::collectives {

struct FreeComm {
    void operator()(dtrun_comm* comm) const { dtrun_comm_free(comm); }
};
using OwnedComm = std::unique_ptr<dtrun_comm, FreeComm>;

struct FreeMemory {
    void operator()(void* memory) const { std::free(memory); }
};
/// Memory whose contents are not initialized.
using OwnedMemory = std::unique_ptr<void, FreeMemory>;
OwnedMemory allocate(std::size_t bytes);

/// What this rank gives to a request, and where it wants the result.
struct Task {
    struct Buffers {
        const void* in = nullptr;
        void* out = nullptr;
        float* error = nullptr;
    };
    Request request;
    std::string encoded;           ///< of the request
    std::vector<Buffers> buffers;  ///< one for each tensor
    std::vector<std::int64_t> extras;
};

/// See dtrun_outcome.
struct Outcome {
    std::vector<OwnedMemory> data;                ///< by tensor
    std::vector<std::vector<std::int64_t>> rows;  ///< by tensor, by rank
    std::uint32_t last_joined = 0;
};

/// A response and this rank's part in it; nullptr: it has joined.
struct Job {
    const Response* response = nullptr;
    const Task* task = nullptr;
};

/// Does what has been decided, over a communicator.
///
/// Thread: one. Errors of all: those of the communicator; after invalid_input it can go on, since
/// all ranks get the same.
class Executor {
public:
    /// \param comm  outlives it
    explicit Executor(dtrun_comm* comm);

    /// Allreduces that are fused.
    Result<void> reduce(std::span<const Job> jobs, std::span<const FusedTensor> parts);
    /// Whatever is not an allreduce.
    Result<Outcome> perform(const Job& job);

private:
    Result<Outcome> allgather(const Job& job);
    Result<void> broadcast(const Job& job);
    Result<Outcome> alltoall(const Job& job);
    Result<void> exchange_rows(const std::byte* in, std::byte* out, std::size_t row_elements,
                               DType type, const std::vector<std::int64_t>& sent,
                               const std::vector<std::int64_t>& received);
    Result<void> reduce_scatter(const Job& job);

    dtrun_comm* comm_;
    const std::uint32_t rank_;
    const std::uint32_t size_;
};

/// The error of this thread's last failed call of the C interface.
std::unexpected<Error> comm_error(int code);

}  // namespace dtrun::collectives
