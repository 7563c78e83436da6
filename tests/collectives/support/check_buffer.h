#pragma once

#include "tests/collectives/support/group_checks.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dtrun::collectives {

using Bytes = std::vector<std::byte>;

/// Data of an operation, with bytes before and behind it that nobody may touch. The options outlive
/// it.
class CheckBuffer {
public:
    CheckBuffer(const CheckOptions& options, const Bytes& content);
    /// Filled with what is no result.
    CheckBuffer(const CheckOptions& options, std::size_t bytes)
        : CheckBuffer(options, Bytes(bytes, std::byte{0x7b})) {}
    ~CheckBuffer();
    CheckBuffer(const CheckBuffer&) = delete;
    CheckBuffer& operator=(const CheckBuffer&) = delete;

    /// nullptr if there are no data, which backends have to cope with.
    std::byte* data() const { return at(0); }
    std::byte* at(std::size_t offset) const {
        return bytes_ == 0 ? nullptr : start_ + front_ + offset;
    }

    Bytes content() const;
    bool guards_untouched() const;

private:
    Bytes all() const;

    const DeviceMemory& memory_;
    std::size_t bytes_;
    std::size_t front_;
    Bytes host_;
    std::byte* start_ = nullptr;
};

/// To compare what ranks have without sending it.
std::uint64_t hash_of(const Bytes& bytes);

}  // namespace dtrun::collectives
