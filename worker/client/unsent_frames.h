#pragma once

#include "rendezvous/wire/frame.h"

#include <cstddef>
#include <deque>
#include <memory>
#include <string_view>

namespace dtrun::embedded {

/// Frames that the other side of a connection has not taken yet, in their order. Small ones are put
/// together, so that they go by one send().
///
/// Thread: guarded by its owner's lock, but for a piece that was taken.
class UnsentFrames {
public:
    /// What is sent without the lock.
    struct Piece {
        std::shared_ptr<Bytes> bytes;
        std::size_t sent = 0;
        std::string_view rest() const { return std::string_view(*bytes).substr(sent); }
    };

    bool empty() const { return pieces_.empty(); }
    std::size_t bytes() const { return bytes_; }
    void add(std::string_view frames);
    /// The same, but a large one is not copied: it is not to be changed any more.
    void add(const std::shared_ptr<Bytes>& frame);
    Piece take();                 ///< the first; requires !empty()
    void give_back(Piece piece);  ///< it was not sent to its end
    void clear();

private:
    std::deque<Piece> pieces_;
    bool may_grow_ = false;  ///< the last one is ours, and nobody has it
    std::size_t bytes_ = 0;
};

}  // namespace dtrun::embedded
