#pragma once

#include "rendezvous/wire/control_messages.h"

#include <termios.h>
#include <atomic>
#include <string>
#include <string_view>

namespace dtrun::output {

/// The terminal that is our standard input, as long as a rank has it: raw, so that every key goes to the
/// rank. Nothing happens where standard input is none, or where we are in its background.
///
/// Thread: one, except is_raw().
class UserTerminal {
public:
    UserTerminal() = default;
    ~UserTerminal() { restore(); }
    UserTerminal(const UserTerminal&) = delete;
    UserTerminal& operator=(const UserTerminal&) = delete;

    static bool is_there();
    static TerminalSize size();  ///< zeros where there is none

    void make_raw();
    void restore() noexcept;  ///< as it was before make_raw(); idempotent
    bool is_raw() const { return raw_; }

private:
    std::atomic<bool> raw_ = false;
    termios before_{};
};

/// Looks in what the user types for "~." at the begin of a line, as with ssh, by which he leaves.
class EscapeWatch {
public:
    /// \return what is to be passed on of these bytes: all before the escape
    std::string pass(std::string_view typed);
    bool escaped() const { return escaped_; }

private:
    bool at_begin_ = true;  ///< of a line
    bool tilde_ = false;    ///< that was typed there, and is kept until it is known what follows
    bool escaped_ = false;
};

}  // namespace dtrun::output
