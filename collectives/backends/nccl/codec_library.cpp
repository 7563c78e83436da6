#include "collectives/backends/nccl/codec_library.h"

#include "collectives/shared_library.h"

#include <dlfcn.h>
#include <filesystem>

namespace dtrun::collectives::nccl {

namespace fs = std::filesystem;

Result<const CudaCodecs*> open_codecs(const std::string& path) {
    const fs::path file =
        path.empty() ? folder_of(&open_codecs) / "libdtrun_codec_cuda.so" : fs::path(path);
    std::error_code error;
    if (path.empty() && !fs::exists(file, error))
        return fail(Errc::invalid_input,
                    "this dtrun was built without a CUDA toolkit, and so without codecs for the "
                    "GPU (no {})",
                    file.string());
    void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) return fail(Errc::invalid_input, "{}", ::dlerror());
    const auto entry =
        reinterpret_cast<const CudaCodecs* (*)()>(::dlsym(library, "dtrun_codec_cuda"));
    if (entry == nullptr)
        return fail(Errc::invalid_input, "{} has no codecs of dtrun", file.string());
    const CudaCodecs* const codecs = entry();
    if (codecs->abi != CudaCodecs::kAbi)
        return fail(Errc::invalid_input, "{} is of another version of dtrun", file.string());
    if (const int code = codecs->check(); code != 0)
        return fail(Errc::invalid_input, "the codecs do not run on this GPU: {}",
                    codecs->error_text(code));
    return codecs;
}

}  // namespace dtrun::collectives::nccl
