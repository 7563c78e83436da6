#pragma once

#include "base/fd.h"
#include "rendezvous/wire/change.h"

#include <atomic>
#include <cstdint>

namespace dtrun::embedded {

/// What a process knows of the change that is coming: the page of its agent, or what frames have told it.
///
/// Thread: map() and note() by one at a time; the rest by any, at any time, and in forked children.
class ChangeView {
public:
    ChangeView() = default;
    ChangeView(const ChangeView&) = delete;
    ChangeView& operator=(const ChangeView&) = delete;
    ~ChangeView();

    /// Takes the agent's page, once. \param bell  becomes readable when the page was written
    void map(const Fd& page, Fd bell);
    /// A frame has told it: counts as long as there is no page.
    void note(const Change& change);

    bool has_page() const { return page_.load(std::memory_order_acquire) != &own_; }
    int bell() const { return bell_.get(); }  ///< requires has_page()
    /// Whether a later generation than this one is coming.
    bool is_pending(std::uint64_t generation) const {
        return page_.load(std::memory_order_acquire)->next() > generation;
    }
    Change read() const { return page_.load(std::memory_order_acquire)->read(); }
    /// Whether nobody can finish that generation.
    bool is_over(std::uint64_t generation) const;

private:
    ChangePage own_;
    std::atomic<const ChangePage*> page_{&own_};
    Fd bell_;
};

}  // namespace dtrun::embedded
