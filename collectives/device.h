#pragma once

#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace dtrun::collectives {

namespace nccl {
class NcclLibrary;
}

/// A stream of a GPU for the work of one thread, which goes on beside that of other streams.
class DeviceStream {
public:
    void* get() const { return stream_.get(); }  ///< a cudaStream_t
    /// Begins a copy, behind what the stream was given before. Memory of the host stays as it is
    /// until wait() has returned. Errc: internal
    Result<void> copy(void* to, const void* from, std::size_t bytes) const;
    /// Returns when the GPU has done all that the stream was given. Errc: internal
    Result<void> wait() const;

private:
    friend class Device;
    struct Destroy {
        std::shared_ptr<const nccl::NcclLibrary> library;
        void operator()(void* stream) const;
    };
    DeviceStream(std::shared_ptr<const nccl::NcclLibrary> library, void* stream)
        : stream_(stream, Destroy{std::move(library)}) {}

    std::unique_ptr<void, Destroy> stream_;
};

/// This process's GPU, through the runtime library that the backend for GPUs uses, for programs that
/// are not compiled for GPUs. Copies share the library.
class Device {
public:
    /// Selects the GPU for this thread: of those that this process sees, the one of its local rank.
    /// \param local_rank  of this process on its host
    /// Errc: not_found (no GPU, or no runtime library), internal
    static Result<Device> open(std::uint32_t local_rank);

    int count() const { return count_; }  ///< GPUs that this process sees
    bool is_amd() const;                  ///< else it is NVIDIA's
    /// Errc: internal (out of memory)
    Result<void*> allocate(std::size_t bytes) const;
    void free(void* data) const;
    /// Either address may be in memory of the host. Errc: internal
    Result<void> copy(void* to, const void* from, std::size_t bytes) const;
    /// Errc: internal
    Result<DeviceStream> make_stream() const;

private:
    Device(std::shared_ptr<const nccl::NcclLibrary> library, int count)
        : library_(std::move(library)), count_(count) {}

    std::shared_ptr<const nccl::NcclLibrary> library_;
    int count_;
};

}  // namespace dtrun::collectives
