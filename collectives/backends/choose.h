#pragma once

#include "base/result.h"
#include "collectives/group.h"

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace dtrun::collectives {

/// Of what ranks send each other, and of all on which they have to agree without a word: headers, hashes
/// of calls, codecs, and the sizes from which on an operation goes another way. Goes up with each change
/// of those, so that two installations that do not fit together say so.
inline constexpr std::uint32_t kProtocol = 5;

/// kProtocol and the order of bytes in numbers: "2, little endian".
std::string own_protocol();

/// What a rank tells the others before they have a communicator.
struct Member {
    std::string protocol = own_protocol();
    std::string host;     ///< name by which ranks of one host know that they are
    std::string address;  ///< of the host, as others reach it; "" if unknown
    std::string wish;     ///< a backend, or "auto"
    bool device = false;  ///< its arrays are in memory of the GPU
    bool fabric = false;  ///< the host has a network that libraries reach without the kernel
    /// Backends with their availability here: the wished one alone, or all for "auto".
    std::vector<std::pair<std::string, Availability>> backends;
};

std::string encode(const Member& member);
/// \return of another protocol: that and the host alone. Errc: invalid_input
Result<Member> decode_member(std::string_view bytes);

struct Choice {
    std::string backend;
    std::string why;  ///< "mpi, which every rank has; not nccl: ..."
};

/// The backend of a communicator of these ranks: the one that is asked for, else the first of
/// `order` that every rank has.
/// \param order  for "auto"
/// Errc: not_found (a rank has not got it; names it), denied (ranks ask for different ones, or are of
/// installations of dtrun that do not go together)
Result<Choice> choose_backend(std::span<const Member> members, std::span<const std::string> order);

/// What "auto" may choose from, the best first.
/// \param device   for arrays in memory of the GPU
/// \param lasting  the process may see several memberships, which MPI does not survive
/// \param encrypt  between hosts, which of those for the host's memory only our own does
std::vector<std::string> backend_order(bool device, bool lasting, bool encrypt = false);

}  // namespace dtrun::collectives
