#include "launcher/output/ending_text.h"

#include "base/text_layout.h"

#include <algorithm>

namespace dtrun::output {
namespace {

constexpr std::string_view kBold = "\x1b[1m";
constexpr std::string_view kBoldRed = "\x1b[1;31m";
constexpr std::string_view kPlain = "\x1b[0m";

std::string folded(std::string_view lines, std::size_t columns) {
    return columns > 0 ? fold_messages(lines, columns) : std::string(lines);
}

}  // namespace

std::string ending_text(const Ending& ending, const EndingPlace& place) {
    const std::string_view all = place.is_terminal ? ending.on_terminal : ending.elsewhere;
    if (all.empty()) return {};
    const std::size_t end = std::min(all.find('\n'), all.size() - 1) + 1;
    std::string first = folded(all.substr(0, end), place.columns);
    if (place.is_colored) {
        first.insert(first.size() - 1, kPlain);
        first.insert(0, ending.is_failure ? kBoldRed : kBold);
    }
    std::string text = place.is_within_line ? "\n" : "";
    if (place.is_terminal && place.is_used) text += '\n';
    return text + first + folded(all.substr(end), place.columns);
}

}  // namespace dtrun::output
