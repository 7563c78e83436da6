#include "lab/rank/gpu/gpu_place.h"

#include "collectives/plugin_files.h"
#include "collectives/shared_library.h"

#include <dlfcn.h>
#include <dtrun_collectives.h>

namespace dtrun::lab::rank {

namespace {

/// Kernels lie with the plug-ins of libdtrun_collectives.
Result<std::string> find_kernels() {
    constexpr const char* kFile = "libdtrun_train_cuda.so";
    const auto folders = collectives::plugin_folders(collectives::folder_of(&dtrun_comm_create));
    const auto found = collectives::find_plugins(kFile, folders);
    if (!found.files.empty()) return found.files.front();
    return fail(Errc::not_found,
                "training on a GPU needs {}, which a dtrun that was built with a CUDA toolkit "
                "has (DTRUN_TRAIN_CUDA_LIBRARY names one that is elsewhere)",
                (folders.front().path / kFile).string());
}

}  // namespace

Result<const TrainKernels*> open_train_kernels(const std::string& path) {
    const auto given = path.empty() ? find_kernels() : Result<std::string>(path);
    if (!given) return std::unexpected(given.error());
    const std::string& file = *given;
    void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) return fail(Errc::not_found, "{}", ::dlerror());
    const auto entry =
        reinterpret_cast<const TrainKernels* (*)()>(::dlsym(library, "dtrun_train_cuda"));
    if (entry == nullptr)
        return fail(Errc::not_found, "{} has no kernels of dtrun's trainer", file);
    const TrainKernels* const kernels = entry();
    if (kernels->abi != TrainKernels::kAbi)
        return fail(Errc::not_found, "{} is of another version of dtrun", file);
    if (const int code = kernels->check(); code != 0)
        return fail(Errc::not_found, "the kernels of training do not run on this GPU: {}",
                    kernels->error_text(code));
    return kernels;
}

Result<GpuPlace> GpuPlace::open(const collectives::Device& device, const std::string& path) {
    if (device.is_amd())
        return fail(Errc::not_found, "training on a GPU needs one of NVIDIA's, this is AMD's");
    const auto kernels = open_train_kernels(path);
    if (!kernels) return std::unexpected(kernels.error());
    auto stream = device.make_stream();
    if (!stream) return std::unexpected(stream.error());
    return GpuPlace{device, std::move(*stream), *kernels};
}

}  // namespace dtrun::lab::rank
