#include "collectives/backends/oneccl/library.h"

#include "base/environment.h"
#include "collectives/backends/shared_library.h"

#include <dlfcn.h>
#include <link.h>
#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

namespace dtrun::collectives::oneccl {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSoname = "libccl.so.1";

std::string bind_functions(void* library, Functions& to) {
    Binder binder(library);
    binder.required("_ZN3ccl2v119get_library_versionEv", to.version);
    binder.required("_ZN3ccl2v115create_main_kvsERKNS0_8kvs_attrE", to.create_main_kvs);
    binder.required("_ZN3ccl2v110create_kvsERKSt5arrayIcLm256EERKNS0_8kvs_attrE", to.create_kvs);
    binder.required("_ZNK3ccl2v13kvs11get_addressEv", to.address_of);
    binder.required(
        "_ZN3ccl2v119create_communicatorEiiSt10shared_ptrINS0_13kvs_interfaceEERKNS0_9comm_attrE",
        to.create_communicator);
    binder.required("_ZN3ccl2v112communicatorD1Ev", to.destroy_communicator);
    binder.required("_ZN3ccl2v15event4testEv", to.test);
    binder.required("_ZN3ccl2v15eventD1Ev", to.destroy_event);
    binder.required(
        "_ZN3ccl2v19allreduceEPKvPvmNS0_8datatypeENS0_9reductionERKNS0_12communicatorERKNS0_"
        "14allreduce_attrERKSt6vectorINS0_5eventESaISD_EE",
        to.allreduce);
    binder.required(
        "_ZN3ccl2v16reduceEPKvPvmNS0_8datatypeENS0_9reductionEiRKNS0_12communicatorERKNS0_"
        "11reduce_attrERKSt6vectorINS0_5eventESaISD_EE",
        to.reduce);
    binder.required(
        "_ZN3ccl2v114reduce_scatterEPKvPvmNS0_8datatypeENS0_9reductionERKNS0_12communicatorERKNS0_"
        "19reduce_scatter_attrERKSt6vectorINS0_5eventESaISD_EE",
        to.reduce_scatter);
    binder.required(
        "_ZN3ccl2v19broadcastEPvmNS0_8datatypeEiRKNS0_12communicatorERKNS0_14broadcast_attrE"
        "RKSt6vectorINS0_5eventESaISA_EE",
        to.broadcast);
    binder.required(
        "_ZN3ccl2v110allgathervEPKvmPvRKSt6vectorImSaImEENS0_8datatypeERKNS0_12communicatorERKNS0_"
        "15allgatherv_attrERKS4_INS0_5eventESaISG_EE",
        to.allgatherv);
    binder.required(
        "_ZN3ccl2v18alltoallEPKvPvmNS0_8datatypeERKNS0_12communicatorERKNS0_13alltoall_attrE"
        "RKSt6vectorINS0_5eventESaISC_EE",
        to.alltoall);
    binder.required(
        "_ZN3ccl2v14sendEPvmNS0_8datatypeEiRKNS0_12communicatorERKNS0_10pt2pt_attrERKSt6vectorI"
        "NS0_5eventESaISA_EE",
        to.send);
    binder.required(
        "_ZN3ccl2v14recvEPvmNS0_8datatypeEiRKNS0_12communicatorERKNS0_10pt2pt_attrERKSt6vectorI"
        "NS0_5eventESaISA_EE",
        to.receive);
    return binder.missing();
}

std::string bind_attributes(void* library, Attributes& to) {
    Binder binder(library);
    binder.required("_ZN3ccl2v116default_kvs_attrE", to.kvs);
    binder.required("_ZN3ccl2v117default_comm_attrE", to.comm);
    binder.required("_ZN3ccl2v122default_allreduce_attrE", to.allreduce);
    binder.required("_ZN3ccl2v119default_reduce_attrE", to.reduce);
    binder.required("_ZN3ccl2v127default_reduce_scatter_attrE", to.reduce_scatter);
    binder.required("_ZN3ccl2v122default_broadcast_attrE", to.broadcast);
    binder.required("_ZN3ccl2v123default_allgatherv_attrE", to.allgatherv);
    binder.required("_ZN3ccl2v121default_alltoall_attrE", to.alltoall);
    binder.required("_ZN3ccl2v118default_pt2pt_attrE", to.message);
    return binder.missing();
}

/// Folders PREFIX/lib of the Python environments that this process has loaded something of: where
/// pip puts libraries of packages that are not Python's.
void add_python_folders(std::vector<std::string>& folders) {
    const auto add = [](dl_phdr_info* info, std::size_t, void* to) {
        const fs::path path = info->dlpi_name;
        auto& all = *static_cast<std::vector<std::string>*>(to);
        for (fs::path at = path.parent_path(); at.has_relative_path(); at = at.parent_path()) {
            if (at.filename() != "site-packages") continue;
            std::string lib = at.parent_path().parent_path().string();  // PREFIX/lib/pythonX.Y
            if (std::ranges::find(all, lib) == all.end()) all.push_back(std::move(lib));
        }
        return 0;
    };
    ::dl_iterate_phdr(add, &folders);
}

std::vector<std::string> folders() {
    std::vector<std::string> all;
    // oneAPI's own library needs SYCL; the one for processors lies below it.
    for (const std::string& root :
         {environment_text("CCL_ROOT"), std::string("/opt/intel/oneapi/ccl/latest")})
        if (!root.empty())
            for (const char* const lib : {"/lib/ccl/cpu/lib", "/lib"}) all.push_back(root + lib);
    for (const char* const name : {"VIRTUAL_ENV", "CONDA_PREFIX"})
        if (const std::string root = environment_text(name); !root.empty())
            all.push_back(root + "/lib");
    add_python_folders(all);
    return all;
}

Result<void*> find_library(const std::string& given) {
    constexpr int kHow = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
    if (!given.empty()) {
        if (void* const library = ::dlopen(given.c_str(), kHow)) return library;
        return fail(Errc::not_found, "DTRUN_ONECCL_LIBRARY: {}", ::dlerror());
    }
    if (void* const library = ::dlopen(kSoname, kHow | RTLD_NOLOAD)) return library;
    std::string unusable;  // one that is there, but lacks something
    for (const std::string& folder : folders()) {
        const std::string path = folder + "/" + kSoname;
        std::error_code ignored;
        if (!fs::exists(path, ignored)) continue;
        if (void* const library = ::dlopen(path.c_str(), kHow)) return library;
        if (unusable.empty()) unusable = ::dlerror();
    }
    if (void* const library = ::dlopen(kSoname, kHow)) return library;
    if (!unusable.empty()) return fail(Errc::not_found, "{}", unusable);
    return fail(
        Errc::not_found,
        "no {} here: neither loaded, nor known to the loader, nor in CCL_ROOT, nor in a Python "
        "environment (pip install --no-deps oneccl-cpu==2021.16.2; DTRUN_ONECCL_LIBRARY names "
        "one that is elsewhere)",
        kSoname);
}

std::string file_of(const void* symbol) {
    Dl_info info{};
    return ::dladdr(symbol, &info) == 0 ? std::string() : std::string(info.dli_fname);
}

/// The file of libfabric, which oneCCL opens when it begins; not all versions look for the
/// system's.
Result<std::string> find_libfabric(const std::string& beside) {
    if (environment_text("CCL_ATL_TRANSPORT") == "mpi") return std::string();
    if (std::string given = environment_text("CCL_OFI_LIBRARY_PATH"); !given.empty()) return given;
    // A library below libfabric would catch the program's fatal signals, and leave files behind.
    set_variable("IPATH_NO_BACKTRACE", "1", IfSet::keep);
    const std::string root = environment_text("CCL_ROOT");
    for (const std::string& path :
         {(fs::path(beside).parent_path() / "libfabric.so.1").string(),
          root + "/opt/mpi/libfabric/lib/libfabric.so.1", std::string("libfabric.so.1")}) {
        void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) continue;
        link_map* map = nullptr;
        return ::dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 ? std::string(map->l_name) : path;
    }
    return fail(Errc::not_found,
                "{} needs libfabric.so.1, which is not here (Debian: apt install libfabric1)",
                beside);
}

}  // namespace

Result<std::shared_ptr<const Library>> Library::open(const std::string& path) {
    const auto handle = find_library(path);
    if (!handle) return std::unexpected(handle.error());
    auto library = std::make_shared<Library>();
    std::string missing = bind_functions(*handle, library->call);
    if (missing.empty()) missing = bind_attributes(*handle, library->attributes);
    if (!missing.empty())
        return fail(Errc::invalid_input, "{} has no {}: oneCCL 2021.14 or newer is needed",
                    path.empty() ? kSoname : path, missing);
    library->file = file_of(reinterpret_cast<const void*>(library->call.create_main_kvs));
    auto libfabric = find_libfabric(library->file);
    if (!libfabric) return std::unexpected(libfabric.error());
    library->libfabric = std::move(*libfabric);
    return library;
}

std::string Library::name() const {
    const Version version = call.version();
    return fmt::format("oneCCL {}.{}.{}", version.major, version.minor, version.update);
}

}  // namespace dtrun::collectives::oneccl
