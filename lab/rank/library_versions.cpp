#include "base/fd.h"
#include "base/strings.h"
#include "collectives/nccl/library.h"
#include "collectives/oneccl/library.h"
#include "lab/rank/host_facts.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <cstdlib>
#include <initializer_list>

namespace dtrun::collectives::bench {

namespace {

/// The first of these libraries that the loader finds, not closed again.
void* open_any(std::initializer_list<const char*> names) {
    for (const char* name : names)
        if (void* library = ::dlopen(name, RTLD_LAZY | RTLD_LOCAL)) return library;
    return nullptr;
}

template <class F>
F* function(void* library, const char* name) {
    return library ? reinterpret_cast<F*>(::dlsym(library, name)) : nullptr;
}

std::string from_environment(const char* name) {
    const char* const value = std::getenv(name);
    return value ? value : "";
}

std::string nccl_version() {
    const std::string given = from_environment("DTRUN_NCCL_LIBRARY");
    // Where there is a GPU, the one that the backend takes; else what lies about.
    if (const auto library =
            nccl::NcclLibrary::open({given, from_environment("DTRUN_CUDART_LIBRARY")}))
        return (*library)->rccl ? (*library)->name() : nccl::version_text((*library)->version);
    const auto ask =
        function<int(int*)>(open_any({"libnccl.so.2", "librccl.so.1"}), "ncclGetVersion");
    int version = 0;
    return ask && ask(&version) == 0 ? nccl::version_text(version) : "";
}

std::string cuda_version() {
    void* const runtime =
        open_any({"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"});
    auto ask = function<int(int*)>(runtime, "cudaRuntimeGetVersion");
    if (!ask) ask = function<int(int*)>(open_any({"libcuda.so.1"}), "cuDriverGetVersion");
    int version = 0;  // 13000 is 13.0
    if (!ask || ask(&version) != 0) return {};
    return fmt::format("{}.{}", version / 1'000, version % 1'000 / 10);
}

/// All that are there, since the backend takes the one that the program was started with.
std::string mpi_version() {
    std::string versions;
    for (void* const library : {open_any({"libmpi.so.40", "libmpi.so.20"}),
                                open_any({"libmpich.so.12", "libmpi.so.12"})}) {
        const auto ask = function<int(char*, int*)>(library, "MPI_Get_library_version");
        char text[8'192] = "";  // MPI_MAX_LIBRARY_VERSION_STRING of either
        int length = 0;
        if (!ask || ask(text, &length) != 0) continue;
        versions += (versions.empty() ? "" : ", ") + short_mpi_version(text);
    }
    return versions;
}

/// The library does not say, its package does.
std::string gloo_version() {
    if (!open_any({"libgloo.so.0", "libgloo.so"})) return {};
    const std::string packages = read_file("/var/lib/dpkg/status").value_or("");
    const std::size_t package = packages.find("\nPackage: libgloo0\n");
    const std::size_t version = packages.find("\nVersion: ", package);
    const std::size_t next = packages.find("\nPackage: ", package + 1);
    if (package == packages.npos || version > next) return "libgloo";
    const std::size_t begin = version + std::string_view("\nVersion: ").size();
    return packages.substr(begin, packages.find('\n', begin) - begin);
}

std::string oneccl_version() {
    const auto library = oneccl::Library::open(from_environment("DTRUN_ONECCL_LIBRARY"));
    return library ? (*library)->name() : "";
}

}  // namespace

std::string version_of(std::string_view name) {
    if (name == "cuda") return cuda_version();
    if (name == "nccl") return nccl_version();
    if (name == "mpi") return mpi_version();
    if (name == "gloo") return gloo_version();
    if (name == "oneccl") return oneccl_version();
    return {};
}

}  // namespace dtrun::collectives::bench
