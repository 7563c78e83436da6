#include "worker/client/member_session.h"

#include <utility>

namespace dtrun::embedded {

void MemberSession::say(const Bytes& frame) {
    const Bytes numbered = sent_.add(frame);
    if (is_open_) unsent_ += numbered;
}

void MemberSession::opened() {
    is_open_ = false;
    owes_heard_ = false;
    unsent_.clear();
}

Result<void> MemberSession::on_heard(const Heard& heard) {
    if (auto done = sent_.heard(heard.number); !done) return done;
    was_let_in_ = true;
    if (std::exchange(is_open_, true)) return {};
    for (const Bytes& frame : sent_.unheard()) unsent_ += frame;
    return {};
}

Result<void> MemberSession::on_numbered(
    std::string_view payload, const std::function<Result<void>(const FrameView&)>& handle) {
    owes_heard_ = true;
    return heard_.take(payload, handle);
}

Bytes MemberSession::take_unsent() {
    Bytes frames = std::exchange(unsent_, {});
    if (std::exchange(owes_heard_, false)) frames += encode(Heard{heard_.last()});
    return frames;
}

}  // namespace dtrun::embedded
