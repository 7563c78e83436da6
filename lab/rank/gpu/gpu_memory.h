#pragma once

#include "collectives/device.h"

#include <cstddef>
#include <memory>
#include <utility>

namespace dtrun::lab::rank {

/// An array in GpuMemory.
template <class T>
struct GpuArray {
    std::size_t offset = 0;
    std::size_t count = 0;
};

/// Memory of a GPU for many arrays: first all of them are planned, then there is one piece for all,
/// since allocating waits for whatever the GPU is doing.
class GpuMemory {
public:
    template <class T>
    GpuArray<T> plan(std::size_t count) {
        const GpuArray<T> array{bytes_, count};
        bytes_ += (count * sizeof(T) + kBoundary - 1) / kBoundary * kBoundary;
        return array;
    }

    /// Errc: internal (out of memory)
    Result<void> allocate(const collectives::Device& device) {
        const auto data = device.allocate(bytes_);
        if (!data) return std::unexpected(data.error());
        data_ = {*data, Free{&device}};
        return {};
    }

    template <class T>
    T* at(const GpuArray<T>& array) const {
        return reinterpret_cast<T*>(static_cast<std::byte*>(data_.get()) + array.offset);
    }

private:
    static constexpr std::size_t kBoundary = 256;
    struct Free {
        const collectives::Device* device;
        void operator()(void* data) const { device->free(data); }
    };
    std::size_t bytes_ = 0;
    std::unique_ptr<void, Free> data_{nullptr, Free{nullptr}};
};

}  // namespace dtrun::lab::rank
