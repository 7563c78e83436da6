#pragma once

#include "collectives/group.h"
#include "collectives/nccl/library.h"

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::collectives::nccl {

struct Settings {
    /// One unique id, whose root everybody talks to, is enough for so many ranks.
    std::uint32_t ranks_per_id = 256;
    /// Whether operations are to run on a communicator that returns once they are in the stream: the
    /// one that can be given up while it is made starts a thread for each operation.
    bool blocking_operations = true;
    /// How long ranks wait for each other at a group's end before they go without.
    std::chrono::milliseconds close_within{5'000};
    /// The file with the codecs for the GPU; "": beside the plug-in.
    std::string codecs;
    /// Values of a compressed allreduce that are in the works at a time, of all ranks' pieces.
    std::size_t compressed_values = 16 << 20;
};

/// Communicators that were made together and are given up together.
struct Communicators {
    NcclComm* work = nullptr;    ///< on which operations run
    NcclComm* parent = nullptr;  ///< of which `work` was split, or nullptr
};

std::uint32_t ids_for(std::uint32_t size, const Settings& settings, bool scalable);
/// The id that `rank` makes, if it makes one: the first of those that share it does
/// (ncclCommInitRankScalable's rule).
std::optional<std::uint32_t> id_made_by(std::uint32_t rank, std::uint32_t size, std::uint32_t ids);

/// Where this process is, with this GPU: "host 0000:3b:00.0".
std::string place_of(const NcclLibrary& library, int device);
/// Where each rank of `ranks` is, as it has told the store.
Result<std::vector<std::string>> places(KeyStore& store, const std::string& prefix,
                                        std::span<const std::uint32_t> ranks,
                                        std::chrono::milliseconds timeout);

/// An id as it lies in the store: with the version of the library, which must be the same everywhere.
std::string encode_id(const UniqueId& id, int version);
/// Errc: invalid_input
Result<UniqueId> decode_id(std::string_view text, const NcclLibrary& library);

/// Makes the communicator of a group on the current device: rank 0 publishes a unique id in the
/// store, all join. A single rank needs no store.
/// Errc: timed_out (names who has not come), closed (another one has failed), invalid_input (two
/// ranks on one GPU, different versions), internal
Result<Communicators> bootstrap(const NcclLibrary& library, const GroupSpec& spec,
                                const Settings& settings, int device);

/// Tells the other ranks, who look while they wait for this one. What they have said themselves
/// (closed) is no news to them.
void report_failure(const GroupSpec& spec, const Error& error);

/// Gives both up, with whatever runs on them.
void abort_all(const NcclLibrary& library, Communicators& communicators);

}  // namespace dtrun::collectives::nccl
