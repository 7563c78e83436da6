#include "rendezvous/job/change_notice.h"

#include "rendezvous/wire/heartbeat.h"

namespace dtrun {

void ChangeNotice::begin() {
    stop_step_.begin();
    last_.reset();
}

void ChangeNotice::forget() {
    last_.reset();
}

Notify ChangeNotice::make(Notify notice) {
    notice.stop_step = stop_step_.agree();
    last_ = notice;
    return notice;
}

bool ChangeNotice::is_due(Deadline now) const {
    return now - looked_ >= kHeartbeatInterval / 4;
}

std::optional<Notify> ChangeNotice::look(const Heartbeat& progress, Deadline now) {
    looked_ = now;
    const auto later = stop_step_.observe(progress, now);
    if (!later || !last_) return std::nullopt;
    last_->stop_step = *later;
    return last_;
}

}  // namespace dtrun
