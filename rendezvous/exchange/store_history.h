#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace dtrun {

/// The last changes of a store, in order, for those who want all of a prefix. What is kept is limited.
class StoreHistory {
public:
    enum class Kind : std::uint8_t { value = 0, erased = 1, queue = 2 };
    struct Change {
        std::uint64_t revision = 0;
        Kind kind{};
        std::string key;
        std::string value;  ///< of a value
    };

    /// \param begin  the revision behind which it has all changes
    explicit StoreHistory(std::uint64_t begin) : begin_(begin) {}

    std::uint64_t begin() const { return begin_; }
    void add(Change change) {
        bytes_ += bytes_of(change);
        changes_.push_back(std::move(change));
        while (changes_.size() > kChangesMax || bytes_ > kBytesMax) {
            begin_ = changes_.front().revision;
            bytes_ -= bytes_of(changes_.front());
            changes_.pop_front();
        }
    }
    /// The first change behind that revision.
    auto behind(std::uint64_t revision) const {
        return std::ranges::upper_bound(changes_, revision, {}, &Change::revision);
    }
    auto end() const { return changes_.end(); }
    std::size_t bytes() const { return bytes_; }

    static constexpr std::size_t kChangesMax = 65'536;
    static constexpr std::size_t kBytesMax = 16u << 20;

private:
    static std::size_t bytes_of(const Change& change) {
        return sizeof change + change.key.size() + change.value.size();
    }

    std::uint64_t begin_;
    std::deque<Change> changes_;
    std::size_t bytes_ = 0;
};

}  // namespace dtrun
