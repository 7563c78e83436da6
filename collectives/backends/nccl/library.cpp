#include "collectives/backends/nccl/library.h"

#include "collectives/backends/shared_library.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string_view>

namespace dtrun::collectives::nccl {
namespace {

namespace fs = std::filesystem;

std::string bind_nccl(void* library, NcclFunctions& nccl) {
    Binder binder(library, "nccl");
    binder.required("GetVersion", nccl.get_version);
    binder.required("GetUniqueId", nccl.get_unique_id);
    binder.required("CommInitRankConfig", nccl.comm_init_rank_config);
    binder.required("CommFinalize", nccl.comm_finalize);
    binder.required("CommDestroy", nccl.comm_destroy);
    binder.required("CommAbort", nccl.comm_abort);
    binder.required("CommGetAsyncError", nccl.comm_get_async_error);
    binder.required("GetErrorString", nccl.get_error_string);
    binder.required("GetLastError", nccl.get_last_error);
    binder.required("GroupStart", nccl.group_start);
    binder.required("GroupEnd", nccl.group_end);
    binder.required("AllReduce", nccl.all_reduce);
    binder.required("Reduce", nccl.reduce);
    binder.required("ReduceScatter", nccl.reduce_scatter);
    binder.required("Broadcast", nccl.broadcast);
    binder.required("AllGather", nccl.all_gather);
    binder.required("Send", nccl.send);
    binder.required("Recv", nccl.recv);
    binder.optional("CommInitRankScalable", nccl.comm_init_rank_scalable);
    binder.optional("CommSplit", nccl.comm_split);
    // RCCL has had it for longer, under another name.
    if (!binder.optional("AlltoAll", nccl.all_to_all)) binder.optional("AllToAll", nccl.all_to_all);
    binder.optional("Gather", nccl.gather);
    binder.optional("Scatter", nccl.scatter);
    return binder.missing();
}

std::string bind_gpu(void* library, bool hip, GpuFunctions& gpu) {
    Binder binder(library, hip ? "hip" : "cuda");
    binder.required("GetDeviceCount", gpu.get_device_count);
    binder.required("GetDevice", gpu.get_device);
    binder.required("SetDevice", gpu.set_device);
    binder.required("DeviceGetPCIBusId", gpu.device_get_pci_bus_id);
    binder.required("DeviceGetByPCIBusId", gpu.device_get_by_pci_bus_id);
    binder.required("DeviceCanAccessPeer", gpu.device_can_access_peer);
    binder.required("StreamCreateWithFlags", gpu.stream_create_with_flags);
    binder.required("StreamDestroy", gpu.stream_destroy);
    binder.required("StreamQuery", gpu.stream_query);
    binder.required("StreamSynchronize", gpu.stream_synchronize);
    binder.required("StreamWaitEvent", gpu.stream_wait_event);
    binder.required("EventCreateWithFlags", gpu.event_create_with_flags);
    binder.required("EventDestroy", gpu.event_destroy);
    binder.required("EventRecord", gpu.event_record);
    binder.required("EventQuery", gpu.event_query);
    binder.required("Malloc", gpu.malloc);
    binder.required("Free", gpu.free);
    binder.required(hip ? "HostMalloc" : "HostAlloc", gpu.host_alloc);
    binder.required(hip ? "HostFree" : "FreeHost", gpu.host_free);
    binder.required("Memcpy", gpu.memcpy);
    binder.required("MemcpyAsync", gpu.memcpy_async);
    binder.required("GetLastError", gpu.get_last_error);
    binder.required("GetErrorString", gpu.get_error_string);
    binder.optional("PeekAtLastError", gpu.peek_at_last_error);
    binder.optional("StreamIsCapturing", gpu.stream_is_capturing);
    binder.optional("ThreadExchangeStreamCaptureMode", gpu.exchange_capture_mode);
    binder.optional("PointerGetAttributes", gpu.pointer_get_attributes);
    return binder.missing();
}

/// Folders of Python packages that this process has loaded something of, and the virtual
/// environment's.
std::vector<std::string> site_packages() {
    std::vector<std::string> sites;
    const auto add = [](dl_phdr_info* info, std::size_t, void* to) {
        const std::string_view path = info->dlpi_name;
        for (const std::string_view folder : {"/site-packages/", "/dist-packages/"}) {
            const auto at = path.find(folder);
            if (at == path.npos) continue;
            std::string site(path.substr(0, at + folder.size() - 1));
            auto& all = *static_cast<std::vector<std::string>*>(to);
            if (std::find(all.begin(), all.end(), site) == all.end()) all.push_back(site);
        }
        return 0;
    };
    ::dl_iterate_phdr(add, &sites);
    const std::string venv = environment_text("VIRTUAL_ENV");
    if (venv.empty()) return sites;
    std::error_code error;
    for (fs::directory_iterator at(venv + "/lib", error), end; !error && at != end;
         at.increment(error))
        if (at->path().filename().string().starts_with("python"))
            sites.push_back((at->path() / "site-packages").string());
    return sites;
}

std::vector<std::string> vendor_folders(bool hip) {
    std::vector<std::string> folders;
    for (const char* const name : {"CUDA_HOME", "CUDA_PATH", "ROCM_PATH"})
        if (const std::string home = environment_text(name); !home.empty())
            for (const char* const lib : {"/lib64", "/lib"}) folders.push_back(home + lib);
    folders.emplace_back(hip ? "/opt/rocm/lib" : "/usr/local/cuda/lib64");
    return folders;
}

/// The first of `sonames` that this process has already, else the first that is to be found.
void* find_library(std::span<const char* const> sonames, bool hip) {
    for (const char* const soname : sonames)
        if (void* const library = ::dlopen(soname, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD))
            return library;
    const std::vector<std::string> sites = site_packages();
    const std::vector<std::string> folders = vendor_folders(hip);
    for (const char* const soname : sonames) {
        std::vector<std::string> candidates;
        // A framework's Python packages know which version goes with them.
        for (const std::string& site : sites)
            for (std::string& path : pip_paths(site, soname)) candidates.push_back(std::move(path));
        candidates.emplace_back(soname);
        for (const std::string& folder : folders) candidates.push_back(folder + "/" + soname);
        for (const std::string& path : candidates)
            if (void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    }
    return nullptr;
}

Result<void*> open_named(const std::string& path, const char* variable) {
    void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return fail(Errc::not_found, "{}: {}", variable, ::dlerror());
    return library;
}

bool has_nvidia_driver() {
    return ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != nullptr;
}

bool has_amd_driver() {
    return ::access("/dev/kfd", R_OK | W_OK) == 0;
}

constexpr const char* kNccl[] = {"libnccl.so.2"};
constexpr const char* kRccl[] = {"librccl.so.1"};
constexpr const char* kCudart[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"};
constexpr const char* kHip[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                                "libamdhip64.so"};

Result<void*> open_nccl(const LibraryPaths& paths, bool& rccl) {
    if (!paths.nccl.empty()) {
        rccl = fs::path(paths.nccl).filename().string().find("rccl") != std::string::npos;
        return open_named(paths.nccl, "DTRUN_NCCL_LIBRARY");
    }
    const bool nvidia = has_nvidia_driver();
    if (!nvidia && !has_amd_driver())
        return fail(Errc::not_found,
                    "no driver for a GPU here (neither NVIDIA's libcuda.so.1 nor AMD's /dev/kfd)");
    rccl = !nvidia;
    if (void* const library = find_library(nvidia ? kNccl : kRccl, rccl)) return library;
    return fail(
        Errc::not_found,
        "no {} here: neither loaded, nor known to the loader, nor in {}, nor among Python's "
        "packages (DTRUN_NCCL_LIBRARY names one that is elsewhere)",
        nvidia ? kNccl[0] : kRccl[0], vendor_folders(rccl).back());
}

Result<void*> open_runtime(const LibraryPaths& paths, bool hip) {
    if (!paths.cudart.empty()) return open_named(paths.cudart, "DTRUN_CUDART_LIBRARY");
    if (!hip && !has_nvidia_driver())
        return fail(Errc::not_found, "no libcuda.so.1 here: NVIDIA's driver is not installed");
    void* const library = hip ? find_library(kHip, true) : find_library(kCudart, false);
    if (library != nullptr) return library;
    return fail(Errc::not_found, "no {} here (DTRUN_CUDART_LIBRARY names one that is elsewhere)",
                hip ? kHip[0] : "libcudart.so.13, .12 or .11.0");
}

}  // namespace

std::vector<std::string> pip_paths(const std::string& site, const std::string& soname) {
    std::vector<std::string> found;
    std::error_code error;
    for (fs::directory_iterator at(site + "/nvidia", error), end; !error && at != end;
         at.increment(error)) {
        const fs::path path = at->path() / "lib" / soname;
        std::error_code ignored;
        if (fs::exists(path, ignored)) found.push_back(path.string());
    }
    return found;
}

std::string version_text(int version) {
    // NCCL_VERSION() in nccl.h: 2.9 had too many digits for the first form.
    const int major_unit = version < 10'000 ? 1'000 : 10'000;
    return fmt::format("{}.{}.{}", version / major_unit, version % major_unit / 100, version % 100);
}

Result<std::shared_ptr<const NcclLibrary>> NcclLibrary::open(const LibraryPaths& paths) {
    auto library = std::make_shared<NcclLibrary>();
    const auto nccl = open_nccl(paths, library->rccl);
    if (!nccl) return std::unexpected(nccl.error());
    const auto runtime = open_runtime(paths, library->rccl);
    if (!runtime) return std::unexpected(runtime.error());

    const std::string missing = bind_nccl(*nccl, library->nccl);
    if (library->nccl.get_version != nullptr) library->nccl.get_version(&library->version);
    if (!missing.empty())
        return fail(Errc::invalid_input, "{} has no {}: 2.14 or newer is needed", library->name(),
                    missing);
    if (const std::string absent = bind_gpu(*runtime, library->rccl, library->gpu); !absent.empty())
        return fail(Errc::invalid_input, "the {} runtime has no {}: a newer one is needed",
                    library->rccl ? "HIP" : "CUDA", absent);
    return library;
}

std::string NcclLibrary::name() const {
    return fmt::format("{} {}", rccl ? "RCCL" : "NCCL", version_text(version));
}

Result<int> NcclLibrary::device_count() const {
    int count = 0;
    if (const int code = gpu.get_device_count(&count); code != kGpuSuccess) {
        gpu.get_last_error();
        return fail(Errc::not_found, "no GPU can be used: {}", gpu_error(code));
    }
    if (count == 0) return fail(Errc::not_found, "no GPU is visible to this process");
    return count;
}

std::string NcclLibrary::gpu_error(int code) const {
    const char* const text = gpu.get_error_string(code);
    return text == nullptr ? fmt::format("{} error {}", rccl ? "HIP" : "CUDA", code) : text;
}

std::string NcclLibrary::nccl_error(NcclResult code, NcclComm* comm) const {
    const char* const what = nccl.get_error_string(code);
    const char* const more = nccl.get_last_error(comm);
    std::string text = what == nullptr ? fmt::format("error {}", static_cast<int>(code)) : what;
    if (more != nullptr && *more != '\0') text += fmt::format(": {}", more);
    while (text.ends_with('\n')) text.pop_back();
    return text;
}

}  // namespace dtrun::collectives::nccl
