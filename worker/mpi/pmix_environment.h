#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::mpi {

/// The name of every host's server, for its clients.
inline constexpr std::string_view kPmixServerNspace = "dtrun-pmix";

/// What `env` takes away from an MPI program that a rank starts, so that it does not take itself for
/// that rank.
inline constexpr std::string_view kPmixUnset = "-u PMI_FD -u PMIX_NAMESPACE -u OMPI_MCA_schizo";

/// What ranks learn from their environment of the PMIx server of their host, as libpmix'
/// PMIx_server_setup_fork would write it. Composed here, so that ranks need not wait for libpmix.
struct PmixEnvironment {
    std::string nspace;
    std::uint16_t port = 0;  ///< on 127.0.0.1
    std::string host_name;
    std::string directory;
    std::string version;  ///< of libpmix; empty: not known yet
    int server_pid = 0;   ///< of the process of libpmix, where the version is known
    /// Data of the job are there to be read in shared memory; before that, libpmix' clients fail.
    bool shared_memory = false;

    std::vector<std::pair<std::string, std::string>> variables(std::uint32_t rank) const;

    /// The rank that a client of these names itself in its first message (ptl_base_connection_hdlr.c
    /// of libpmix: the name of the namespace, and in network order the rank).
    /// \param message  the begin of what it has sent. \return nothing where it is not there
    std::optional<std::uint32_t> client_in(std::string_view message) const;
};

}  // namespace dtrun::mpi
