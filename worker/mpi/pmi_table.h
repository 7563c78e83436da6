#pragma once

#include "base/result.h"
#include "rendezvous/wire/msgpack.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace dtrun::mpi {

/// Keys and values that ranks put: those of this host as soon as they are put, those of other hosts
/// when a barrier brings them. Pure.
class PmiTable {
public:
    static constexpr std::size_t kKeyBytesMax = 64;      ///< "keylen_max"
    static constexpr std::size_t kValueBytesMax = 1024;  ///< "vallen_max"
    /// Limit of the keys and values that one host brings to one barrier.
    static constexpr std::size_t kNewBytesMax = 8u << 20;
    /// Limit of the whole table.
    static constexpr std::size_t kBytesMax = 1u << 30;

    /// \param node_rank  of this host
    explicit PmiTable(std::uint32_t node_rank) : node_rank_(node_rank) {}

    /// A key that is there gets the new value. Errc: invalid_input (too long, too many)
    Result<void> put(std::string_view key, std::string_view value);
    /// nullptr: no such key.
    const std::string* get(std::string_view key) const;

    struct Entry {
        std::string key;
        std::string value;
    };
    /// In the order in which the keys came; nullptr: there are not so many.
    const Entry* at(std::size_t index) const;
    std::size_t size() const { return entries_.size(); }

    /// What was put here since the last call, for other hosts' merge().
    Bytes take_new();
    /// Errc: invalid_input
    Result<void> merge(std::string_view bytes);

private:
    Result<void> set(std::string_view key, std::string_view value, std::size_t& index);

    struct Hash : std::hash<std::string_view> {
        using is_transparent = void;
    };

    std::uint32_t node_rank_;
    std::vector<Entry> entries_;
    std::unordered_map<std::string, std::size_t, Hash, std::equal_to<>> index_;
    std::size_t bytes_ = 0;
    std::vector<std::size_t> new_;  ///< indices
    std::size_t new_bytes_ = 0;
};

}  // namespace dtrun::mpi
