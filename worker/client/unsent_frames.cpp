#include "worker/client/unsent_frames.h"

#include <utility>

namespace dtrun::embedded {
namespace {

constexpr std::size_t kPieceBytes = 64u << 10;

}  // namespace

void UnsentFrames::add(std::string_view frames) {
    if (frames.empty()) return;
    bytes_ += frames.size();
    if (may_grow_ && !pieces_.empty() && pieces_.back().bytes->size() < kPieceBytes) {
        *pieces_.back().bytes += frames;
        return;
    }
    pieces_.push_back({std::make_shared<Bytes>(frames)});
    may_grow_ = true;
}

void UnsentFrames::add(const std::shared_ptr<Bytes>& frame) {
    if (frame->size() < kPieceBytes) return add(*frame);
    bytes_ += frame->size();
    pieces_.push_back({frame});
    may_grow_ = false;
}

UnsentFrames::Piece UnsentFrames::take() {
    Piece piece = std::move(pieces_.front());
    pieces_.pop_front();
    bytes_ -= piece.rest().size();
    return piece;
}

void UnsentFrames::give_back(Piece piece) {
    bytes_ += piece.rest().size();
    if (pieces_.empty()) may_grow_ = false;
    pieces_.push_front(std::move(piece));
}

void UnsentFrames::clear() {
    pieces_.clear();
    bytes_ = 0;
}

}  // namespace dtrun::embedded
