#pragma once

#include "base/numbered.h"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

namespace dtrun {

/// An item for each host of a job, as in PerHost, and the sum of what these count. It is kept up to date, so that
/// questions about all hosts may be asked at each event of a job of thousands.
///
/// An item that is asked for may be changed until the next call of sums(), and is to be asked for anew after that.
/// \tparam Item  its `sums() const` gives what it counts, as a type with +=, -= and ==
template <class Item>
class SummedPerHost {
public:
    using Sums = decltype(std::declval<const Item&>().sums());

    bool has(HostId host) const { return items_.has(host); }
    auto hosts() const { return items_.hosts(); }
    const Item& operator[](HostId host) const { return items_[host].item; }
    Item& operator[](HostId host) {
        note(host);
        return items_[host].item;
    }
    Item& emplace_back() {
        items_.emplace_back();
        return (*this)[HostId{static_cast<std::uint32_t>(items_.size() - 1)}];
    }

    const Sums& sums() const {
        for (const HostId host : changed_) {
            const Entry& entry = items_[host];
            entry.is_changed = false;
            sums_ -= std::exchange(entry.counted, entry.item.sums());
            sums_ += entry.counted;
        }
        changed_.clear();
        assert(sums_ == counted_anew() && "an item was changed after it was counted");
        return sums_;
    }

private:
    struct Entry {
        Item item{};
        mutable Sums counted{};
        mutable bool is_changed = false;
    };

    void note(HostId host) {
        if (!std::exchange(items_[host].is_changed, true)) changed_.push_back(host);
    }
    Sums counted_anew() const {
        Sums all;
        for (const Entry& entry : items_) all += entry.item.sums();
        return all;
    }

    PerHost<Entry> items_;
    mutable std::vector<HostId> changed_;  ///< since they were counted
    mutable Sums sums_{};
};

}  // namespace dtrun
