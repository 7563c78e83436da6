#pragma once

#include <cstddef>
#include <iterator>
#include <string_view>

namespace dtrun::collectives {

/// A row of backends.def, where the members are explained.
struct BackendRow {
    enum class Memory { host, device };
    enum class Chosen { automatic, on_request };
    enum class Membership { fixed, changing };

    std::string_view name;
    std::string_view title;
    Memory memory;
    Chosen chosen;
    Membership membership;

    constexpr bool on_device() const { return memory == Memory::device; }
};

inline constexpr BackendRow kBackends[] = {
#define DTRUN_BACKEND(name, title, memory, chosen, membership)             \
    {#name, title, BackendRow::Memory::memory, BackendRow::Chosen::chosen, \
     BackendRow::Membership::membership},
#include "collectives/backends/backends.def"
#undef DTRUN_BACKEND
};
inline constexpr std::size_t kBackendCount = std::size(kBackends);

/// \return nullptr: a plug-in that dtrun does not know, or none
constexpr const BackendRow* find_backend(std::string_view name) {
    for (const BackendRow& row : kBackends)
        if (row.name == name) return &row;
    return nullptr;
}

}  // namespace dtrun::collectives
