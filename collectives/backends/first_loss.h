#pragma once

#include "collectives/key_store.h"

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>

namespace dtrun::collectives {

/// Who was lost first, as far as the ranks that have noticed something know. A rank that fails ends its own
/// connections after this, so the first one here has seen the cause, and others may only have seen that one end.
/// \param key     of the group in the store
/// \param broken  whose connection has broken here
inline std::uint32_t first_loss(KeyStore& store, const std::string& key, std::uint32_t own,
                                std::uint32_t size, std::uint32_t broken) {
    const auto known = store.find(key);
    std::uint32_t first = own;
    if (known && *known) {
        std::from_chars((*known)->data(), (*known)->data() + (*known)->size(), first);
    } else if (known) {
        const KeyStore::Pair pair(key, std::to_string(broken));
        static_cast<void>(store.set({&pair, 1}));
    }
    return first == own || first >= size ? broken : first;
}

}  // namespace dtrun::collectives
