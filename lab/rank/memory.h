#pragma once

#include "base/result.h"
#include "collectives/backends/device.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

namespace dtrun::lab::rank {

/// The memory of the arrays that a backend works on: the host's, or that of this rank's GPU.
class MemoryKind {
public:
    /// Memory of the host.
    MemoryKind() = default;
    /// Memory of a GPU.
    explicit MemoryKind(collectives::Device device) : device_(std::move(device)) {}

    bool on_device() const { return device_.has_value(); }
    /// Only if on_device().
    const collectives::Device& device() const { return *device_; }
    /// GPUs of the host; 0: memory is the host's.
    int gpus() const { return device_ ? device_->count() : 0; }

private:
    friend class Memory;
    std::optional<collectives::Device> device_;
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
    /// Copies the first bytes from host() to data(), unless these are one.
    Result<void> push(std::size_t bytes) const;
    /// Copies the first bytes from data() to host(), unless these are one.
    Result<void> pull(std::size_t bytes) const;

private:
    Memory() = default;

    struct Unmap {
        std::size_t bytes;
        void operator()(std::byte* data) const;
    };
    struct DeviceFree {
        std::optional<collectives::Device> device;
        void operator()(void* data) const { device->free(data); }
    };
    std::unique_ptr<std::byte, Unmap> host_{nullptr, Unmap{0}};
    std::unique_ptr<void, DeviceFree> device_;
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace dtrun::lab::rank
