#include "base/terminal.h"

#include <cstdlib>
#include <string_view>

namespace dtrun {
namespace {

std::string_view value_of(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
}

}  // namespace

ColorWish color_wish() {
    const std::string_view force = value_of("FORCE_COLOR"), force_too = value_of("CLICOLOR_FORCE");
    const bool is_refused = force == "0" || force == "false";
    if (!value_of("NO_COLOR").empty() || is_refused) return ColorWish::never;
    if (!force.empty() || (!force_too.empty() && force_too != "0")) return ColorWish::always;
    return value_of("CLICOLOR") == "0" ? ColorWish::never : ColorWish::of_terminal;
}

bool is_terminal_dumb() {
    const std::string_view kind = value_of("TERM");
    return kind.empty() || kind == "dumb";
}

}  // namespace dtrun
