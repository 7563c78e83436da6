#include "launcher/output/screen_lines.h"

#include <algorithm>

namespace dtrun::output {
namespace {

/// The last lines of `bytes`, as many as there are rows, and what follows them.
std::string_view last_lines(std::string_view bytes) {
    std::size_t begin = bytes.size();
    for (std::size_t ends = 0; ends <= ScreenLines::kRows; ++ends) {
        begin = begin == 0 ? std::string_view::npos : bytes.rfind('\n', begin - 1);
        if (begin == std::string_view::npos) return bytes;
    }
    return bytes.substr(begin + 1);
}

}  // namespace

std::size_t screen_columns(std::string_view line) {
    std::size_t most = 0, columns = 0;
    for (std::size_t at = 0; at < line.size(); ++at) {
        const auto byte = static_cast<unsigned char>(line[at]);
        if (byte == '\r') columns = 0;
        if (byte == '\t') columns += 8 - columns % 8;
        const bool is_escape = byte == 0x1b && at + 1 < line.size() && line[at + 1] == '[';
        if (is_escape)
            for (at += 2; at < line.size() && (line[at] < '@' || line[at] > '~');) ++at;
        // Characters of three bytes and more may be two columns wide.
        if (!is_escape && byte >= ' ' && (byte & 0xc0) != 0x80) columns += byte < 0xe0 ? 1 : 2;
        most = std::max(most, columns);
    }
    return most;
}

void ScreenLines::add(std::span<const std::size_t> streams, std::string_view bytes,
                      std::string_view start) {
    const std::string_view shown = last_lines(bytes);
    std::size_t begun = 0;
    if (const auto found = begun_.extract(streams.front()); !found.empty())
        begun = shown.size() == bytes.size() ? found.mapped() : 0;
    const std::size_t before = screen_columns(start);
    std::string_view rest = shown;
    for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
        Line& line = lines_[count_++ % kRows];
        line.columns = (begun > 0 ? begun : before) + screen_columns(rest.substr(0, end));
        line.streams.assign(streams.begin(), streams.end());
        begun = 0;
        rest.remove_prefix(end + 1);
    }
    if (!rest.empty())
        begun_[streams.front()] = (begun > 0 ? begun : before) + screen_columns(rest);
}

std::size_t ScreenLines::of(std::size_t stream, std::size_t columns) const {
    std::size_t lines = 0, rows = 0;
    for (std::size_t i = 0; i < std::min(count_, kRows); ++i) {
        const Line& line = lines_[(count_ - 1 - i) % kRows];
        rows += columns == 0 ? 1 : std::max<std::size_t>(1, (line.columns + columns - 1) / columns);
        if (rows > kRows) break;
        if (std::ranges::find(line.streams, stream) != line.streams.end()) ++lines;
    }
    return lines;
}

}  // namespace dtrun::output
