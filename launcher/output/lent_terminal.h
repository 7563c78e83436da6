#pragma once

#include "launcher/output/user_terminal.h"
#include "launcher/plan/slot_id.h"

#include <functional>
#include <string>
#include <string_view>

namespace dtrun::output {

/// Lends the user's terminal to one rank (--pty): it is raw while that rank runs, and what is typed is for the rank.
///
/// Thread: the loop's. Lifetime: the terminal outlives it.
class LentTerminal {
public:
    /// \param rank     to whom it is lent
    /// \param resized  called when the rank is to learn how large the terminal is
    /// \param left     called when the user has typed the escape, by which he leaves
    LentTerminal(UserTerminal& terminal, plan::SlotId rank, std::function<void()> resized,
                 std::function<void()> left);

    bool is_of(plan::SlotId rank) const { return rank == rank_; }
    void generation_begins() { state_ = State::to_come; }
    void rank_started();
    void rank_ended();  ///< maybe before it is known that it has started
    void continued();   ///< after Ctrl-Z, so that we are in the foreground again
    void restore() noexcept { terminal_.restore(); }
    /// \return what of it is for the rank
    std::string typed(std::string_view bytes);

private:
    UserTerminal& terminal_;
    const plan::SlotId rank_;
    const std::function<void()> resized_, left_;
    EscapeWatch escape_;
    /// Of the rank, in this generation.
    enum class State { to_come, runs, ended } state_ = State::to_come;
};

}  // namespace dtrun::output
