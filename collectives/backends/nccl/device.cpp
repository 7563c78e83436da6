#include "collectives/backends/device.h"

#include "collectives/backends/nccl/library.h"
#include "collectives/backends/shared_library.h"

namespace dtrun::collectives {

Result<Device> Device::open(std::uint32_t local_rank) {
    auto library = nccl::NcclLibrary::open(
        {environment_text("DTRUN_NCCL_LIBRARY"), environment_text("DTRUN_CUDART_LIBRARY")});
    if (!library) return std::unexpected(library.error());
    const auto count = (*library)->device_count();
    if (!count) return std::unexpected(count.error());
    const int device = static_cast<int>(local_rank) % *count;
    int code = (*library)->gpu.set_device(device);
    // Before CUDA 12 only this runtime library knows the choice until a call uses the GPU, and kernels have
    // runtime libraries of their own.
    if (code == nccl::kGpuSuccess) code = (*library)->gpu.free(nullptr);
    if (code != nccl::kGpuSuccess)
        return fail(Errc::internal, "GPU {}: {}", device, (*library)->gpu_error(code));
    return Device(std::move(*library), *count);
}

Result<void*> Device::allocate(std::size_t bytes) const {
    void* data = nullptr;
    if (const int code = library_->gpu.malloc(&data, bytes); code != nccl::kGpuSuccess)
        return fail(Errc::internal, "GPU memory for an array of {} bytes: {}", bytes,
                    library_->gpu_error(code));
    return data;
}

void Device::free(void* data) const {
    library_->gpu.free(data);
}

Result<void> Device::copy(void* to, const void* from, std::size_t bytes) const {
    int code = library_->gpu.memcpy(to, from, bytes, nccl::kMemcpyDefault);
    // A small copy from the host may still be on its way, for which other streams would not wait.
    if (code == nccl::kGpuSuccess) code = library_->gpu.stream_synchronize(nullptr);
    if (code != nccl::kGpuSuccess)
        return fail(Errc::internal, "a copy between host and GPU: {}", library_->gpu_error(code));
    return {};
}

}  // namespace dtrun::collectives
