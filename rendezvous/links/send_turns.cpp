#include "rendezvous/links/send_turns.h"

namespace dtrun {

bool SendTurns::take() {
    if (writes_ == writes_max_) return false;
    count();
    return true;
}

void SendTurns::count() {
    if (++writes_ > 1) return;
    asio::post(executor_, [self = std::weak_ptr(self_)] {
        if (const auto turns = self.lock()) (*turns)->next();
    });
}

/// What was posted in a turn runs in the next one.
void SendTurns::next() {
    writes_ = 0;
    while (!waiting_.empty() && writes_ < writes_max_) {
        Timer& wake = *waiting_.front();
        waiting_.pop_front();
        count();
        wake.cancel();
    }
}

}  // namespace dtrun
