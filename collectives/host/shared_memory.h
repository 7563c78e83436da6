#pragma once

#include "base/result.h"
#include "collectives/group.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace dtrun::collectives {

/// Ranks of a host that share memory: all of them, or some.
struct Sharers {
    std::uint32_t place = 0;  ///< of this rank among them
    std::uint32_t places = 1;
    std::string name;  ///< by which they meet in the store; of no others of the group
};

/// Memory that the ranks of a host share. It has no name: it is gone with the last process that has it.
class SharedMemory {
public:
    /// Called by all sharers: the first one makes the memory, filled with zeros, and the others open
    /// it through /proc. It is mapped once this returns, on all of them or on none.
    /// \param spec  has the store in which the ranks meet
    /// Errc: not_found (they cannot share memory, as in containers of their own: why), timed_out, closed
    static Result<SharedMemory> meet(const GroupSpec& spec, const Sharers& sharers,
                                     std::size_t bytes);

    SharedMemory(SharedMemory&& other) noexcept;
    SharedMemory& operator=(SharedMemory&& other) noexcept;
    ~SharedMemory();

    std::byte* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }

private:
    SharedMemory(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
    static Result<SharedMemory> map(int fd, std::size_t bytes);
    static Result<SharedMemory> open(const std::string& where, std::size_t bytes);

    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace dtrun::collectives
