#include "lab/rank/memory.h"

#include <sys/mman.h>
#include <algorithm>
#include <cstdlib>

namespace dtrun::collectives::bench {

namespace {

std::string from_environment(const char* name) {
    const char* const value = std::getenv(name);
    return value ? value : "";
}

}  // namespace

Result<MemoryKind> MemoryKind::of_gpu(std::uint32_t local_rank) {
    auto library = nccl::NcclLibrary::open(
        {from_environment("DTRUN_NCCL_LIBRARY"), from_environment("DTRUN_CUDART_LIBRARY")});
    if (!library) return std::unexpected(library.error());
    const auto count = (*library)->device_count();
    if (!count) return std::unexpected(count.error());
    const int device = static_cast<int>(local_rank) % *count;
    if (const int code = (*library)->gpu.set_device(device); code != nccl::kGpuSuccess)
        return fail(Errc::internal, "GPU {}: {}", device, (*library)->gpu_error(code));
    MemoryKind kind;
    kind.library_ = std::move(*library);
    kind.gpus_ = *count;
    return kind;
}

void Memory::Unmap::operator()(std::byte* data) const {
    ::munmap(data, bytes);
}

void Memory::DeviceFree::operator()(void* data) const {
    library->gpu.free(data);
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
    void* device = nullptr;
    if (const int code = kind.library_->gpu.malloc(&device, memory.bytes_);
        code != nccl::kGpuSuccess)
        return fail(Errc::internal, "GPU memory for an array of {} bytes: {}", bytes,
                    kind.library_->gpu_error(code));
    memory.device_ = {device, DeviceFree{kind.library_}};
    memory.data_ = device;
    return memory;
}

Result<void> Memory::push(std::size_t bytes) const {
    return device_ ? copy(data_, host_.get(), bytes) : Result<void>{};
}

Result<void> Memory::pull(std::size_t bytes) const {
    return device_ ? copy(host_.get(), data_, bytes) : Result<void>{};
}

Result<void> Memory::copy(void* to, const void* from, std::size_t bytes) const {
    const nccl::NcclLibrary& library = *device_.get_deleter().library;
    const int code = library.gpu.memcpy(to, from, bytes, nccl::kMemcpyDefault);
    if (code == nccl::kGpuSuccess) return {};
    return fail(Errc::internal, "a copy between host and GPU: {}", library.gpu_error(code));
}

}  // namespace dtrun::collectives::bench
