#pragma once

#include "base/result.h"
#include "collectives/nccl/library.h"

#include <cstddef>
#include <memory>
#include <span>

namespace dtrun::collectives::bench {

/// Where arrays are that a backend works on: on the host, or on this rank's GPU.
class MemoryKind {
public:
    /// Of the host.
    MemoryKind() = default;
    /// Of a GPU, which becomes the current one: of those that this process sees, the one of its
    /// place on the host. Errc: not_found (no GPU, or no runtime library)
    static Result<MemoryKind> of_gpu(std::uint32_t local_rank);

    bool on_device() const { return library_ != nullptr; }
    /// GPUs of the host; 0: memory is the host's.
    int gpus() const { return gpus_; }

private:
    friend class Memory;
    std::shared_ptr<const nccl::NcclLibrary> library_;
    int gpus_ = 0;
};

/// An array for a backend, which the program sees through a copy on the host if it is elsewhere.
class Memory {
public:
    /// Errc: internal (out of memory)
    static Result<Memory> allocate(const MemoryKind& kind, std::size_t bytes);
    Memory(Memory&& other) noexcept = default;
    Memory& operator=(Memory&& other) noexcept = default;

    void* data() const { return data_; }  ///< for the backend
    std::span<std::byte> host() const { return {host_.get(), bytes_}; }
    /// Copies the first bytes from the host's copy; nothing to do if there is but one.
    Result<void> push(std::size_t bytes) const;
    /// The other way round.
    Result<void> pull(std::size_t bytes) const;

private:
    Memory() = default;
    Result<void> copy(void* to, const void* from, std::size_t bytes) const;

    struct Unmap {
        std::size_t bytes;
        void operator()(std::byte* data) const;
    };
    struct DeviceFree {
        std::shared_ptr<const nccl::NcclLibrary> library;
        void operator()(void* data) const;
    };
    std::unique_ptr<std::byte, Unmap> host_{nullptr, Unmap{0}};
    std::unique_ptr<void, DeviceFree> device_{nullptr, DeviceFree{}};
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace dtrun::collectives::bench
