#pragma once

#include "collectives/group.h"

namespace dtrun::collectives {

/// Sends and receives messages, and waits until they are over.
Result<void> exchange(Group& group, std::span<const Send> sends, std::span<const Receive> receives);

/// An operation that a backend has not got, or not for arrays of this length, made of messages between pairs of ranks;
/// bytes in host memory.
/// Errc: as those of messages; not_found (there is no such way for it)
Result<void> run_by_messages(Group& group, std::uint32_t rank, std::uint32_t size,
                             const Operation& what);

}  // namespace dtrun::collectives
