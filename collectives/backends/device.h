#pragma once

#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace dtrun::collectives {

namespace nccl {
class NcclLibrary;
}

/// This process's GPU, through the runtime library that the backend for GPUs uses, for programs that
/// are not compiled for GPUs. Copies share the library.
class Device {
public:
    /// Selects the GPU for this thread: of those that this process sees, the one of its local rank.
    /// \param local_rank  of this process on its host
    /// Errc: not_found (no GPU, or no runtime library), internal
    static Result<Device> open(std::uint32_t local_rank);

    int count() const { return count_; }  ///< GPUs that this process sees
    /// Errc: internal (out of memory)
    Result<void*> allocate(std::size_t bytes) const;
    void free(void* data) const;
    /// Either address may be in memory of the host. Errc: internal
    Result<void> copy(void* to, const void* from, std::size_t bytes) const;

private:
    Device(std::shared_ptr<const nccl::NcclLibrary> library, int count)
        : library_(std::move(library)), count_(count) {}

    std::shared_ptr<const nccl::NcclLibrary> library_;
    int count_;
};

}  // namespace dtrun::collectives
