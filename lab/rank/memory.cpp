#include "lab/rank/memory.h"

#include <sys/mman.h>
#include <algorithm>

namespace dtrun::lab::rank {

void Memory::Unmap::operator()(std::byte* data) const {
    ::munmap(data, bytes);
}

Result<Memory> Memory::allocate(const MemoryKind& kind, std::size_t bytes) {
    Memory memory;
    memory.bytes_ = std::max<std::size_t>(bytes, 1);
    // Mapped, not malloced, so that it begins at a page and all pages are there before any time is
    // taken.
    void* const mapped = ::mmap(nullptr, memory.bytes_, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (mapped == MAP_FAILED)
        return fail(Errc::internal, "out of memory for an array of {} bytes", bytes);
    memory.host_ = {static_cast<std::byte*>(mapped), Unmap{memory.bytes_}};
    memory.data_ = mapped;
    if (!kind.on_device()) return memory;
    const auto device = kind.device_->allocate(memory.bytes_);
    if (!device) return std::unexpected(device.error());
    memory.device_ = {*device, DeviceFree{kind.device_}};
    memory.data_ = *device;
    return memory;
}

Result<void> Memory::push(std::size_t bytes) const {
    return device_ ? device_.get_deleter().device->copy(data_, host_.get(), bytes) : Result<void>{};
}

Result<void> Memory::pull(std::size_t bytes) const {
    return device_ ? device_.get_deleter().device->copy(host_.get(), data_, bytes) : Result<void>{};
}

}  // namespace dtrun::lab::rank
