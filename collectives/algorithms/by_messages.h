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

/// A group with a function for each operation that its library has. What it has none for is made of messages.
class GroupOfOperations : public Group {
public:
    GroupOfOperations(std::uint32_t rank, std::uint32_t size) : rank_(rank), size_(size) {}

    /// Calls the function of what.kind.
    Result<void> run(const Operation& what) override;

protected:
#define DTRUN_OPERATION(kind, ...)                     \
    virtual Result<void> kind(const Operation& what) { \
        return by_messages(what);                      \
    }
#include "collectives/operations.def"
#undef DTRUN_OPERATION
    Result<void> by_messages(const Operation& what) {
        return run_by_messages(*this, rank_, size_, what);
    }
    /// Errc: invalid_input (one is to this rank, or to none)
    Result<void> check_peers(std::span<const Send> sends, std::span<const Receive> receives) const;

    const std::uint32_t rank_;
    const std::uint32_t size_;
};

}  // namespace dtrun::collectives
