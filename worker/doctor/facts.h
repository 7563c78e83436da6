#pragma once

#include "base/result.h"
#include "rendezvous/wire/doctor_messages.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::doctor {

/// What this host has that jobs depend on, and what differs between hosts at their cost: limits, /dev/shm,
/// versions of programs as our environment finds them, GPUs. Names are those of docs/DOCTOR.md.
/// Blocks while programs tell their versions, for 4 s at most, unless a broken driver holds one for longer; a
/// signal that would end this process ends that. A value in parentheses says why it is not known.
/// \param directory  in which ranks would run
std::vector<HostFact> gather_facts(const std::string& directory);

/// The addresses of interfaces that are up, without the loopback's and link-local ones.
std::vector<HostAddress> addresses_here();

/// The time of day in nanoseconds since 1970, as `date` says: programs that are no part of us go by that.
std::int64_t time_of_date();

/// "Open MPI 4.1.4", "MPICH 4.0.2", or the first line of what `mpirun --version` says. Pure.
std::string mpi_version(std::string_view said);
/// Whether it is dtrun that has said its version, under whatever name. Pure.
bool is_dtrun(std::string_view said);
/// The version in /proc/driver/nvidia/version; empty: there is none. Pure.
std::string driver_version(std::string_view text);

}  // namespace dtrun::doctor
