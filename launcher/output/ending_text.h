#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dtrun::output {

/// What dtrun says at the end of a job, whose first line says it in short.
struct Ending {
    std::string on_terminal;  ///< whole lines
    std::string
        elsewhere;  ///< for files, the log and who reads along, which may know nothing of the screen
    bool is_failure = true;  ///< and not what the user has asked for
};

/// Where it is to be shown.
struct EndingPlace {
    std::size_t columns = 0;  ///< of a terminal that tells its width; 0: lines stay as they are
    bool is_terminal = false;
    bool is_colored = false;
    bool is_used = false;         ///< ranks have printed there
    bool is_within_line = false;  ///< and have not ended their last line
};

/// It begins a line of its own; on a terminal it stands apart from what ranks have printed, and its first line is
/// bold, and red for a failure, where colours are wanted. Files get no empty line, for those who parse them.
std::string ending_text(const Ending& ending, const EndingPlace& place);

}  // namespace dtrun::output
