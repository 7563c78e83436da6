#include "worker/mpi/pmix_library.h"

#include <dlfcn.h>
#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace dtrun::mpi {
namespace {

/// The same name since version 3.
constexpr const char* kName = "libpmix.so.2";
constexpr int kMajorMin = 4;
constexpr const char* kInstead =
    "Install version 4 or newer (Debian, Ubuntu: libpmix2; Fedora, RHEL: pmix), "
    "or see --mpi for other ways to start MPI programs.";

/// "4.2.2" in "OpenPMIx 4.2.2, repo rev: v4.2.2 (PMIx Standard: 4.1, ...)".
std::string version_in(std::string_view text) {
    constexpr std::string_view digits = "0123456789";
    const std::size_t begin = std::min(text.find_first_of(digits), text.size());
    const std::size_t end = text.find_first_not_of("0123456789.", begin);
    return std::string(text.substr(begin, end - begin));
}

template <class Function>
bool find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    return function != nullptr;
}

std::string path_of(const void* address, const std::string& otherwise) {
    Dl_info info{};
    return ::dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : otherwise;
}

}  // namespace

Result<PmixLibrary> load_pmix(const std::string& name) {
    const std::string asked = name.empty() ? kName : name;
    void* const library = ::dlopen(asked.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
        return fail(Errc::not_found, "libpmix cannot be loaded ({}). {}", ::dlerror(), kInstead);
    PmixLibrary found;
    pmix::GetVersion get_version = nullptr;
    const bool complete = find(library, "PMIx_Get_version", get_version) &&
                          find(library, "PMIx_Error_string", found.error_string) &&
                          find(library, "PMIx_server_init", found.server_init) &&
                          find(library, "PMIx_server_register_nspace", found.register_nspace) &&
                          find(library, "PMIx_server_register_client", found.register_client) &&
                          find(library, "PMIx_server_setup_fork", found.setup_fork) &&
                          find(library, "PMIx_server_dmodex_request", found.dmodex_request);
    if (get_version == nullptr)
        return fail(Errc::invalid_input, "{} is not libpmix. {}", asked, kInstead);
    found.path = path_of(reinterpret_cast<const void*>(get_version), asked);
    found.version = version_in(get_version());
    if (std::atoi(found.version.c_str()) < kMajorMin)
        return fail(Errc::invalid_input, "{} is version {} of libpmix, which is too old. {}",
                    found.path, found.version, kInstead);
    if (!complete)
        return fail(Errc::invalid_input, "{} lacks a part of libpmix. {}", found.path, kInstead);
    return found;
}

}  // namespace dtrun::mpi
