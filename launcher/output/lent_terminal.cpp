#include "launcher/output/lent_terminal.h"

#include <utility>

namespace dtrun::output {

LentTerminal::LentTerminal(UserTerminal& terminal, plan::SlotId rank, std::function<void()> resized,
                           std::function<void()> left)
    : terminal_(terminal), rank_(rank), resized_(std::move(resized)), left_(std::move(left)) {}

void LentTerminal::rank_started() {
    if (state_ == State::ended) return;
    state_ = State::runs;
    terminal_.make_raw();
    resized_();  // since its size was told, before the rank was there
}

void LentTerminal::rank_ended() {
    state_ = State::ended;
    restore();
}

void LentTerminal::continued() {
    if (state_ == State::runs) rank_started();
}

std::string LentTerminal::typed(std::string_view bytes) {
    if (!terminal_.is_raw()) return std::string(bytes);
    std::string passed = escape_.pass(bytes);
    if (escape_.escaped()) {
        restore();
        left_();
    }
    return passed;
}

}  // namespace dtrun::output
