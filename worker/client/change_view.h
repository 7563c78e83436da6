#pragma once

#include "base/fd.h"
#include "rendezvous/wire/change.h"

#include <atomic>
#include <cstdint>

namespace dtrun::embedded {

/// What a process knows of the change that is coming: the board of its agent, or what frames have told it.
///
/// Thread: map() and note() by one at a time; the rest by any, at any time, and in forked children.
class ChangeView {
public:
    ChangeView() = default;
    ChangeView(const ChangeView&) = delete;
    ChangeView& operator=(const ChangeView&) = delete;
    ~ChangeView();

    /// Takes the agent's board, once. \param bell  becomes readable when the board was written
    void map(const Fd& board, Fd bell);
    /// A frame has told it: counts as long as there is no board.
    void note(const Change& change);

    bool has_board() const { return board_.load(std::memory_order_acquire) != &own_; }
    int bell() const { return bell_.get(); }  ///< requires has_board()
    /// Whether a later generation than this one is coming.
    bool is_pending(std::uint64_t generation) const {
        return board_.load(std::memory_order_acquire)->next() > generation;
    }
    Change read() const { return board_.load(std::memory_order_acquire)->read(); }
    /// Whether nobody can finish that generation.
    bool is_over(std::uint64_t generation) const;

private:
    ChangeBoard own_;
    std::atomic<const ChangeBoard*> board_{&own_};
    Fd bell_;
};

}  // namespace dtrun::embedded
