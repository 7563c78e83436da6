#pragma once

#include "launcher/plan/slot_id.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace dtrun::watch {

/// The last bytes of what each rank has printed, both streams in one, as a terminal would have got them.
class RankTails {
public:
    /// \param bytes  of each rank that are kept, or up to twice as many
    explicit RankTails(std::size_t bytes = 16u << 10) : bytes_(bytes) {}

    void add(plan::SlotId rank, std::string_view bytes) {
        std::string& tail = tails_[std::to_underlying(rank)];
        if (bytes.size() > bytes_) bytes.remove_prefix(bytes.size() - bytes_);
        tail += bytes;
        if (tail.size() <= 2 * bytes_) return;
        tail.erase(0, tail.size() - bytes_);
        tail.erase(0, tail.find('\n') + 1);
    }
    std::string_view of(plan::SlotId rank) const {
        const auto found = tails_.find(std::to_underlying(rank));
        return found == tails_.end() ? std::string_view() : found->second;
    }

private:
    std::size_t bytes_;
    std::unordered_map<std::uint32_t, std::string> tails_;
};

}  // namespace dtrun::watch
