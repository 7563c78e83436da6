#include "worker/client/change_view.h"

#include <sys/mman.h>
#include <utility>

namespace dtrun::embedded {

ChangeView::~ChangeView() {
    if (has_board())
        ::munmap(const_cast<ChangeBoard*>(board_.load(std::memory_order_relaxed)),
                 ChangeBoard::kBytes);
}

void ChangeView::map(const Fd& board, Fd bell) {
    if (has_board()) return;
    void* const memory =
        ::mmap(nullptr, ChangeBoard::kBytes, PROT_READ, MAP_SHARED, board.get(), 0);
    if (memory == MAP_FAILED) return;
    bell_ = std::move(bell);
    board_.store(static_cast<const ChangeBoard*>(memory), std::memory_order_release);
}

void ChangeView::note(const Change& change) {
    if (!has_board()) own_.write(change);
}

bool ChangeView::is_over(std::uint64_t generation) const {
    if (!is_pending(generation)) return false;
    const Change change = read();
    return change.next > generation && change.reason == ChangeReason::lost;
}

}  // namespace dtrun::embedded
