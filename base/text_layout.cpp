#include "base/text_layout.h"

#include "base/strings.h"
#include "base/utf8.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <algorithm>
#include <iterator>
#include <utility>

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

std::string local_time_text(std::time_t moment, const char* form) {
    std::tm parts{};
    ::localtime_r(&moment, &parts);
    char text[64];
    return {text, std::strftime(text, sizeof text, form, &parts)};
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

namespace {

/// The character that `text`, which is not empty, begins with; its bytes are taken from there. What is no UTF-8 is a
/// character of one byte.
char32_t take_character(std::string_view& text) {
    const std::size_t length = std::max<std::size_t>(utf8_length(text), 1);
    auto code = static_cast<char32_t>(static_cast<unsigned char>(text[0]));
    if (length > 1) code &= 0x7Fu >> length;
    for (std::size_t i = 1; i < length; ++i)
        code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3Fu);
    text.remove_prefix(length);
    return code;
}

/// Of two columns: the wide and full-width ranges of Unicode's East Asian Width, without pictures.
bool is_wide(char32_t code) {
    constexpr std::pair<char32_t, char32_t> kWide[] = {
        {0x1100, 0x115F}, {0x2E80, 0x303E}, {0x3041, 0x33FF}, {0x3400, 0x4DBF},
        {0x4E00, 0x9FFF}, {0xA000, 0xA4CF}, {0xAC00, 0xD7A3}, {0xF900, 0xFAFF},
        {0xFE30, 0xFE6F}, {0xFF00, 0xFF60}, {0xFFE0, 0xFFE6}, {0x20000, 0x3FFFD}};
    return std::ranges::any_of(
        kWide, [code](const auto& range) { return code >= range.first && code <= range.second; });
}

/// Closing marks of Chinese, which do not begin a line.
bool is_closing(char32_t code) {
    return std::u32string_view(U"，。、；：？！）》」』】").find(code) != std::u32string_view::npos;
}

/// The part at the begin of a word, which is not empty, behind which a line may end: the whole word, or up to behind a
/// wide character.
std::string_view part_of(std::string_view word) {
    std::string_view rest = word;
    bool may_end = is_wide(take_character(rest));
    while (!rest.empty()) {
        std::string_view next = rest;
        const char32_t code = take_character(next);
        if (!is_closing(code) && (may_end || is_wide(code))) break;
        may_end = is_wide(code);
        rest = next;
    }
    return word.substr(0, word.size() - rest.size());
}

}  // namespace

std::size_t width_in_columns(std::string_view text) {
    std::size_t columns = 0;
    while (!text.empty()) columns += is_wide(take_character(text)) ? 2 : 1;
    return columns;
}

std::string wrap(std::string_view text, std::size_t indent, std::size_t columns) {
    std::string lines;
    std::size_t used = 0;  // columns of the line that is being filled
    for (std::string_view word : split(text, ' ')) {
        std::size_t gap = 1;  // before the word, none between its parts
        do {
            const std::string_view part = word.empty() ? word : part_of(word);
            const std::size_t width = width_in_columns(part);
            if (used != 0 && used + gap + width > columns) {
                lines += '\n';
                used = 0;
            }
            const std::size_t blanks = used == 0 ? indent : gap;
            lines.append(blanks, ' ').append(part);
            used += blanks + width;
            gap = 0;
            word.remove_prefix(part.size());
        } while (!word.empty());
    }
    return lines + '\n';
}

namespace {

std::string fold_message(std::string_view line, std::size_t columns) {
    const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
    std::string folded(line.substr(0, indent));
    std::size_t used = indent;
    bool is_first = true;  // of its line
    for (const std::string_view word : split(line.substr(indent), ' ')) {
        if (!is_first && used + 1 + width_in_columns(word) > columns) {
            folded.append(1, '\n').append(indent + 2, ' ');
            used = indent + 2;
        } else if (!is_first) {
            folded += ' ';
            ++used;
        }
        folded += word;
        used += width_in_columns(word);
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
        const bool fits = width_in_columns(line) <= columns || line.starts_with("  | ");
        text.append(fits ? std::string(line) : fold_message(line, columns)).append(1, '\n');
    }
    return text;
}

std::string two_columns(std::string_view left, std::string_view right, std::size_t middle,
                        std::size_t columns) {
    const std::string first = wrap(left, 2, columns);  // whole lines
    const std::string second = wrap(right, middle, columns);
    const std::string line = first.substr(0, first.size() - 1);
    const std::size_t width = width_in_columns(line);
    if (width + 3 > middle) return first + second;
    return line + second.substr(width);
}

}  // namespace dtrun
