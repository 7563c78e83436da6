#pragma once

#include "base/result.h"
#include "collectives/group.h"

#include <cstddef>
#include <cstdint>

namespace dtrun::collectives {

/// Memory that the ranks of a host share. It has no name: it is gone with the last process that has it.
class SharedMemory {
public:
    /// Called by all ranks of a host: the first one makes the memory, filled with zeros, and the others open
    /// it through /proc. It is mapped once this returns, on all of them or on none.
    /// \param spec  says who shares the host, and has the store in which the ranks meet
    /// Errc: not_found (they cannot share memory, as in containers of their own: why), timed_out, closed
    static Result<SharedMemory> meet(const GroupSpec& spec, std::size_t bytes);

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
