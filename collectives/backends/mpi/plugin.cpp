#include "collectives/backends/plugin.h"
#include "collectives/backends/mpi/group.h"
#include "collectives/backends/mpi/interfaces.h"
#include "collectives/backends/mpi/rank_status.h"
#include "collectives/backends/mpi/runtime.h"
#include "collectives/backends/mpi/texts.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <cstdlib>
#include <initializer_list>

namespace dtrun::collectives {
namespace {

std::string library_text() {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    return {text, static_cast<std::size_t>(length)};
}

Availability probe() {
    const std::string version = mpi_version(library_text());
    if (MpiRuntime::ended()) return {false, version + ": MPI_Finalize has been called"};
    for (const LoadedMpi& loaded : loaded_mpi())
        if (loaded.library != kMpiLibrary)
            return {false,
                    fmt::format("{}: this process has loaded {} as well", version, loaded.path)};
    // dtrun's agent offers PMIx or PMI to every rank, unless it was told not to.
    const bool offered = std::getenv("PMIX_NAMESPACE") || std::getenv("PMI_FD");
    if (std::getenv("DTRUN_SOCKET") != nullptr && !offered)
        return {false, version + ": dtrun offers no MPI here (--mpi none, or --contract none)"};
    return {true, version};
}

/// "yes", "no", or that the library does not say.
std::string cuda_aware() {
    using Query = int (*)();
    Dl_info library{};
    Query query = nullptr;
    if (::dladdr(reinterpret_cast<const void*>(&MPI_Get_library_version), &library) != 0)
        if (void* const handle = ::dlopen(library.dli_fname, RTLD_LAZY | RTLD_NOLOAD)) {
            query = reinterpret_cast<Query>(::dlsym(handle, "MPIX_Query_cuda_support"));
            ::dlclose(handle);
        }
    if (query == nullptr) return "unknown: this library does not tell";
    return query() != 0 ? "yes, but arrays are to be in host memory" : "no: built without it";
}

/// MPI does not tell what it has chosen; what is known is what it was made to choose from.
std::string transport(const std::string& text) {
    const std::string device = mpich_device(text);
    std::string told;
    for (const char* name : {"OMPI_MCA_pml", "OMPI_MCA_btl", "OMPI_MCA_mtl", "UCX_TLS",
                             "FI_PROVIDER", "MPIR_CVAR_NOLOCAL"})
        if (const char* const value = std::getenv(name))
            told += fmt::format("{}{}={}", told.empty() ? " with " : " ", name, value);
    return fmt::format("chosen by {}{}{}", title_of(kMpiLibrary),
                       device.empty() ? "" : " from " + device, told);
}

GroupFacts gather_facts(const MpiRuntime& runtime) {
    const std::string text = library_text();
    GroupFacts facts{mpi_version(text), transport(text), {}};
    facts.details = {{"threads", runtime.threads()},
                     {"begun by", runtime.begun_by()},
                     {"CUDA-aware", cuda_aware()}};
    if (!runtime.settings().empty()) facts.details.emplace_back("interfaces", runtime.settings());
    return facts;
}

/// Compares the statuses of all members; alone or without a store, checks only this one.
Result<void> agree(const GroupSpec& spec, std::string_view step, const RankStatus& mine) {
    if (spec.store != nullptr && spec.size > 1) return meet(spec, step, mine);
    if (!mine.problem.empty()) return fail(Errc::invalid_input, "{}", mine.problem);
    return {};
}

/// Begins MPI in all members, and checks that its ranks are the job's.
Result<void> begin(MpiRuntime& runtime, const GroupSpec& spec) {
    RankStatus mine = runtime.status(spec);
    std::vector<std::string> interfaces;
    if (!spec.interfaces.empty() && !mine.begun) {
        auto here = interfaces_here(spec.interfaces);
        if (here)
            interfaces = std::move(*here);
        else if (mine.problem.empty())
            mine.problem = here.error().message;
    }
    if (auto agreed = agree(spec, "before", mine); !agreed) return agreed;
    if (auto begun = runtime.begin(interfaces); !begun) return begun;
    if (mine.begun) return {};
    return agree(spec, "begun", runtime.status(spec));
}

/// A tag by which groups that are made at the same time are told apart.
int tag_of(std::string_view prefix) {
    std::uint32_t hash = 2166136261;  // FNV-1a
    for (const char c : prefix) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619;
    constexpr std::uint32_t kTags = 32'768;  // that every MPI has
    return static_cast<int>(hash % kTags);
}

Result<MPI_Comm> make_communicator(MpiRuntime& runtime, const GroupSpec& spec) {
    const std::vector<int> ranks(spec.members.begin(), spec.members.end());
    const auto turn = runtime.turn();
    MPI_Group world = MPI_GROUP_NULL;
    MPI_Group members = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    int code = MPI_Comm_group(MPI_COMM_WORLD, &world);
    if (code != MPI_SUCCESS) return mpi_failed(code, "MPI_Comm_group");
    code = MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &members);
    MPI_Group_free(&world);
    if (code != MPI_SUCCESS) return mpi_failed(code, "MPI_Group_incl");
    code = MPI_Comm_create_group(MPI_COMM_WORLD, members, tag_of(spec.prefix), &comm);
    MPI_Group_free(&members);
    if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (code != MPI_SUCCESS) return mpi_failed(code, "MPI_Comm_create_group");
    return comm;
}

Result<std::unique_ptr<Group>> connect(const GroupSpec& spec) {
    if (spec.members.size() != spec.size || spec.rank >= spec.size)
        return fail(Errc::invalid_input, "rank {} of {}, with {} members", spec.rank, spec.size,
                    spec.members.size());
    MpiRuntime& runtime = MpiRuntime::of_process();
    if (auto begun = begin(runtime, spec); !begun) return std::unexpected(begun.error());
    const auto comm = make_communicator(runtime, spec);
    if (!comm) return std::unexpected(comm.error());
    return std::make_unique<MpiGroup>(runtime, *comm, spec.rank, spec.size, gather_facts(runtime));
}

}  // namespace
}  // namespace dtrun::collectives

DTRUN_BACKEND_PLUGIN("mpi", dtrun::collectives::probe, dtrun::collectives::connect)
