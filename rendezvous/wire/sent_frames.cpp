#include "rendezvous/wire/sent_frames.h"

#include "rendezvous/wire/member_messages.h"

#include <utility>

namespace dtrun {

Bytes SentFrames::add(const Bytes& frame) {
    kept_.emplace_back(frame);
    return encode(NumberedFrame{++last_, kept_.back()});
}

Result<void> SentFrames::heard(std::uint64_t number) {
    if (number > last_)
        return fail(Errc::invalid_input, "frame {} was heard, of {}", number, last_);
    const std::uint64_t before = last_ - kept_.size();
    if (number > before)
        kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(number - before));
    return {};
}

std::vector<Bytes> SentFrames::unheard() const {
    std::vector<Bytes> frames;
    std::uint64_t number = last_ - kept_.size();
    for (const std::string& frame : kept_) frames.push_back(encode(NumberedFrame{++number, frame}));
    return frames;
}

Result<void> HeardFrames::take(std::string_view numbered,
                               const std::function<Result<void>(const FrameView&)>& handle) {
    const auto message = decode<NumberedFrame>(numbered);
    if (!message) return std::unexpected(message.error());
    if (message->number <= last_) return {};
    std::string_view bytes = message->frame;
    const auto frame = next_frame(bytes);
    if (!frame) return std::unexpected(frame.error());
    if (message->number != last_ + 1)
        return fail(Errc::invalid_input,
                    "frame {} came after {}: what was heard before is forgotten, as by a state "
                    "that is older than it was",
                    message->number, last_);
    if (!*frame || !bytes.empty()) return fail(Errc::invalid_input, "malformed numbered frame");
    last_ = message->number;
    return handle(**frame);
}

}  // namespace dtrun
