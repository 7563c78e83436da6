#include "base/text_layout.h"

#include "base/strings.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <algorithm>
#include <iterator>

namespace dtrun {

std::string plural(unsigned long long count, std::string_view one) {
    return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

std::string duration_text(double seconds) {
    const auto s = static_cast<long long>(seconds);
    if (seconds < 60) return fmt::format("{:.{}f} s", seconds, seconds < 10 ? 2 : 0);
    if (s < 3'600) return fmt::format("{} min {:02} s", s / 60, s % 60);
    if (s < 86'400) return fmt::format("{} h {:02} min", s / 3'600, s % 3'600 / 60);
    return fmt::format("{} d {} h", s / 86'400, s % 86'400 / 3'600);
}

std::string bytes_text(double bytes) {
    constexpr const char* kUnits[] = {"B", "K", "M", "G", "T", "P"};
    std::size_t unit = 0;
    for (; bytes >= 1000 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
    const int digits = bytes < 10 && unit > 0 ? 1 : 0;
    return fmt::format("{:.{}f}{}", bytes, digits, kUnits[unit]);
}

std::size_t terminal_columns(int fd) {
    winsize size{};
    return ::isatty(fd) == 1 && ::ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::string wrap(std::string_view text, std::size_t indent, std::size_t columns) {
    std::string lines;
    std::size_t used = 0;  // columns of the line that is being filled
    for (const std::string_view word : split(text, ' ')) {
        if (used != 0 && used + 1 + word.size() > columns) {
            lines += '\n';
            used = 0;
        }
        const std::size_t blanks = used == 0 ? indent : 1;
        lines.append(blanks, ' ').append(word);
        used += blanks + word.size();
    }
    return lines + '\n';
}

namespace {

/// How many characters of UTF-8; most are one column wide.
std::size_t columns_of(std::string_view text) {
    return static_cast<std::size_t>(
        std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string fold_message(std::string_view line, std::size_t columns) {
    const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
    std::string folded(line.substr(0, indent));
    std::size_t used = indent;
    bool is_first = true;  // of its line
    for (const std::string_view word : split(line.substr(indent), ' ')) {
        if (!is_first && used + 1 + columns_of(word) > columns) {
            folded.append(1, '\n').append(indent + 2, ' ');
            used = indent + 2;
        } else if (!is_first) {
            folded += ' ';
            ++used;
        }
        folded += word;
        used += columns_of(word);
        is_first = false;
    }
    return folded;
}

}  // namespace

std::string fold_messages(std::string_view whole_lines, std::size_t columns) {
    std::string text;
    while (!whole_lines.empty()) {
        const std::string_view line = whole_lines.substr(0, whole_lines.find('\n'));
        whole_lines.remove_prefix(std::min(line.size() + 1, whole_lines.size()));
        const bool fits = columns_of(line) <= columns || line.starts_with("  | ");
        text.append(fits ? std::string(line) : fold_message(line, columns)).append(1, '\n');
    }
    return text;
}

std::string two_columns(std::string_view left, std::string_view right, std::size_t middle,
                        std::size_t columns) {
    const std::string first = wrap(left, 2, columns);  // whole lines
    const std::string second = wrap(right, middle, columns);
    if (first.size() + 2 > middle) return first + second;
    return first.substr(0, first.size() - 1) + second.substr(first.size() - 1);
}

}  // namespace dtrun
