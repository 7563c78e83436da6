#pragma once

#include <fmt/core.h>
#include <string_view>
#include <utility>

namespace dtrun::log {

/// quiet: errors only; normal: warnings too; verbose: what dtrun does; debug: every event.
enum class Level { quiet, normal, verbose, debug };

/// Sets the name and level of log lines, "<name>: <text>" on standard error. A line waits at most a
/// moment for the reader of standard error; then it is dropped, and counted.
/// \param name  the program's name in lines, e.g. "dtrun" or "dtrun-agent s3"
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
