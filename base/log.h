#pragma once

#include <fmt/core.h>
#include <string_view>
#include <utility>

namespace dtrun::log {

/// quiet: errors only; normal: warnings too; verbose: what dtrun does; debug: every event.
enum class Level { quiet, normal, verbose, debug };

/// Where lines go and how many. Lines are "<name>: <text>" on standard error until then. They wait for
/// a reader of it for a moment only: those that nobody reads are dropped, and counted.
/// \param name  who speaks, e.g. "dtrun" or "dtrun-agent s3"
void init(std::string_view name, Level level);

/// Sends lines to `sink(context, line)` instead of standard error; nullptr restores it.
/// The line ends with '\n'. Called on the thread that logs.
void set_sink(void (*sink)(void* context, std::string_view line), void* context);

bool enabled(Level level);
void write(Level level, std::string_view text);

template <class... A>
void error(fmt::format_string<A...> text, A&&... args) {
    write(Level::quiet, fmt::format(text, std::forward<A>(args)...));
}
template <class... A>
void warn(fmt::format_string<A...> text, A&&... args) {
    if (enabled(Level::normal)) write(Level::normal, fmt::format(text, std::forward<A>(args)...));
}
template <class... A>
void info(fmt::format_string<A...> text, A&&... args) {
    if (enabled(Level::verbose)) write(Level::verbose, fmt::format(text, std::forward<A>(args)...));
}
template <class... A>
void debug(fmt::format_string<A...> text, A&&... args) {
    if (enabled(Level::debug)) write(Level::debug, fmt::format(text, std::forward<A>(args)...));
}

}  // namespace dtrun::log
