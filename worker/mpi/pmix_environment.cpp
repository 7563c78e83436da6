#include "worker/mpi/pmix_environment.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <cstdlib>

namespace dtrun::mpi {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

/// Each for clients that know formats up to that version; a client takes the newest that it knows.
/// Servers understand all older ones.
void add_uris(Variables& variables, const std::string& version, const std::string& uri) {
    for (const std::string_view format : {"41", "4", "3", "21", "2"})
        if (format != "41" || !version.starts_with("4.0."))
            variables.emplace_back(fmt::format("PMIX_SERVER_URI{}", format), uri);
}

/// Where data of the job are found by clients of the same version.
void add_stores(Variables& variables, const PmixEnvironment& environment) {
    const int major = environment.shared_memory ? std::atoi(environment.version.c_str()) : 0;
    std::string stores = "hash";  // over the socket; every version has it
    const auto path = [&environment](const char* store) {
        return fmt::format("{}/pmix_dstor_{}_{}", environment.directory, store,
                           environment.server_pid);
    };
    if (major == 4) {
        stores = "ds21,ds12,hash";
        variables.emplace_back("PMIX_DSTORE_21_BASE_PATH", path("ds21"));
        variables.emplace_back("PMIX_DSTORE_ESH_BASE_PATH", path("ds12"));
    } else if (major == 5 || major == 6) {
        stores = "shmem2,hash";
    }
    variables.emplace_back("PMIX_GDS_MODULE", stores);
}

}  // namespace

Variables PmixEnvironment::variables(std::uint32_t rank) const {
    Variables variables{{"PMIX_NAMESPACE", nspace},
                        {"PMIX_RANK", fmt::format("{}", rank)},
                        {"PMIX_SECURITY_MODE", "native"},
                        // What the user has set for another launcher's server may forbid it.
                        {"PMIX_MCA_psec", "native"},
                        {"PMIX_BFROP_BUFFER_TYPE", "PMIX_BFROP_BUFFER_NON_DESC"},
                        {"PMIX_HOSTNAME", host_name},
                        {"PMIX_SERVER_TMPDIR", directory},
                        {"PMIX_SYSTEM_TMPDIR", directory},
                        // Open MPI 4 would else run each rank alone.
                        {"OMPI_MCA_schizo", "ompi"}};
    add_uris(variables, version, fmt::format("{}.0;tcp4://127.0.0.1:{}", kPmixServerNspace, port));
    add_stores(variables, *this);
    if (!version.empty()) variables.emplace_back("PMIX_VERSION", version);
    return variables;
}

std::optional<std::uint32_t> PmixEnvironment::client_in(std::string_view message) const {
    const std::string name(nspace.c_str(), nspace.size() + 1);  // with its end
    const std::size_t at = message.find(name);
    std::uint32_t rank = 0;
    if (at == message.npos || message.size() < at + name.size() + sizeof rank) return std::nullopt;
    message.copy(reinterpret_cast<char*>(&rank), sizeof rank, at + name.size());
    return ntohl(rank);
}

}  // namespace dtrun::mpi
