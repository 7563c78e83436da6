#pragma once

#include "base/result.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::plan {

/// How an agent gets onto a host.
enum class Transport : std::uint8_t { ssh, ssh_command, slurm, local };

/// What is said of a transport. Besides its row a new one takes choose_transport(), which says for which hosts it
/// is right (host_access.cpp), and PlannedChannels::open(), which opens a channel by it (head/channel_opener.cpp).
struct TransportRow {
    Transport transport{};
    std::string_view word;      ///< of --transport; empty: the user does not choose it
    std::string_view launcher;  ///< words of -launcher, which MPI's launchers have for the same
    std::string_view shown;     ///< in a plan
    std::string_view help;
};

inline constexpr TransportRow kTransports[] = {
    {Transport::ssh, "ssh", "ssh", "ssh", "one ssh each"},
    {Transport::ssh_command, "", "", "ssh command", ""},
    {Transport::slurm, "slurm", "slurm srun", "srun", "one srun for all"},
    {Transport::local, "local", "fork", "local", "only this machine"},
};

std::string_view name_of(Transport transport);  ///< as plans have it

/// Of those that the user chooses.
/// \param words  &TransportRow::word or &TransportRow::launcher
std::vector<std::string> transport_words(std::string_view TransportRow::*words);
/// Errc: invalid_input
Result<Transport> find_transport(std::string_view word, std::string_view TransportRow::*words);

}  // namespace dtrun::plan
