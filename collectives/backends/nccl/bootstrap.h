#pragma once

#include "collectives/backends/nccl/library.h"
#include "collectives/backends/nccl/settings.h"
#include "collectives/group.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::collectives::nccl {

/// Communicators that were made together and are given up together.
struct Communicators {
    NcclComm* work = nullptr;    ///< on which operations run
    NcclComm* parent = nullptr;  ///< of which `work` was split, or nullptr
    /// Where NCCL writes the one that is split off, at some time or never: it may outlive whoever waits for that.
    std::shared_ptr<NcclComm*> splitting{};
};

std::uint32_t ids_for(std::uint32_t size, const Settings& settings, bool scalable);
/// The number of the unique id that `rank` makes, if any: the first of the ranks that share an id
/// makes it (ncclCommInitRankScalable's rule).
std::optional<std::uint32_t> id_made_by(std::uint32_t rank, std::uint32_t size, std::uint32_t ids);

/// Where this process is, with this GPU: "host 0000:3b:00.0".
std::string place_of(const NcclLibrary& library, int device);
/// Where each rank of `ranks` is, as it has told the store.
Result<std::vector<std::string>> places(KeyStore& store, const std::string& prefix,
                                        std::span<const std::uint32_t> ranks,
                                        std::chrono::milliseconds timeout);

/// The text of an id in the store, with the library's version, which must be the same on all ranks.
std::string encode_id(const UniqueId& id, int version);
/// Errc: invalid_input
Result<UniqueId> decode_id(std::string_view text, const NcclLibrary& library);

/// Makes the communicator of a group on the current device: rank 0 publishes a unique id in the
/// store, all join. A single rank needs no store.
/// Errc: timed_out (names who has not come), closed (another one has failed), invalid_input (two
/// ranks on one GPU, different versions), internal; the others are told the reason
Result<Communicators> bootstrap(const NcclLibrary& library, const GroupSpec& spec,
                                const Settings& settings, int device);

/// Tells the other ranks, which look for failures while they wait for this one. Failures that they
/// have reported themselves (closed) are not repeated.
void report_failure(const GroupSpec& spec, const Error& error);

/// Aborts both communicators, with whatever runs on them.
/// \return whether that has ended in time; else it goes on in a thread, and their memory is lost
bool abort_all(const NcclLibrary& library, Communicators& communicators,
               std::chrono::milliseconds within);

}  // namespace dtrun::collectives::nccl
