#include "worker/client/change_view.h"

#include <sys/mman.h>
#include <utility>

namespace dtrun::embedded {

ChangeView::~ChangeView() {
    if (has_page())
        ::munmap(const_cast<ChangePage*>(page_.load(std::memory_order_relaxed)),
                 ChangePage::kBytes);
}

void ChangeView::map(const Fd& page, Fd bell) {
    if (has_page()) return;
    void* const memory = ::mmap(nullptr, ChangePage::kBytes, PROT_READ, MAP_SHARED, page.get(), 0);
    if (memory == MAP_FAILED) return;
    bell_ = std::move(bell);
    page_.store(static_cast<const ChangePage*>(memory), std::memory_order_release);
}

void ChangeView::note(const Change& change) {
    if (!has_page()) own_.write(change);
}

bool ChangeView::is_over(std::uint64_t generation) const {
    if (!is_pending(generation)) return false;
    const Change change = read();
    return change.next > generation && change.reason == ChangeReason::lost;
}

}  // namespace dtrun::embedded
