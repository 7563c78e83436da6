#include "hostfiles/name_pattern.h"

#include "hostfiles/host.h"

#include <fmt/format.h>
#include <algorithm>

namespace dtrun {

namespace {

bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '.' ||
           c == '-' || c == '_';
}

Result<void> check_literal(std::string_view text, const Position& position) {
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == ']') return fail_at(position.after(i), "']' without '[' before it");
        if (static_cast<unsigned char>(text[i]) >= 0x80) {
            if (auto plain = check_characters(text, position); !plain) return plain;
            return fail_at(
                position.after(i),
                "only ASCII can stand in a host name: DNS has xn--... for other letters");
        }
        if (!is_name_char(text[i]))
            return fail_at(position.after(i),
                           "{} cannot stand in a host name; use letters, digits, '.', '-' and '_'",
                           in_quotes(text.substr(i, 1)));
    }
    return {};
}

Result<long long> parse_number(std::string_view digits, const Position& position) {
    if (digits.size() > kRangeDigitsMax)
        return fail_at(position, "number {} is too large; at most {} digits", in_quotes(digits),
                       kRangeDigitsMax);
    return *to_int(digits, 0, std::numeric_limits<long long>::max());
}

}  // namespace

Result<NamePattern::Range> NamePattern::parse_range(std::string_view text,
                                                    const Position& position) {
    const std::size_t dash = text.find('-');
    const std::string_view low = text.substr(0, dash);
    const std::string_view high = dash == std::string_view::npos ? low : text.substr(dash + 1);
    for (const std::string_view number : {low, high}) {
        if (number.empty() || !std::all_of(number.begin(), number.end(), is_digit))
            return fail_at(position, "{} is not a number or a range; write [1-3] or [01-16,20]",
                           in_quotes(text));
    }
    const auto first = parse_number(low, position);
    if (!first) return std::unexpected(first.error());
    const auto last = parse_number(high, position.after(text.size() - high.size()));
    if (!last) return std::unexpected(last.error());
    if (*first > *last)
        return fail_at(position, "range {}-{} runs backwards; write {}-{}", low, high, high, low);
    return Range{*first, *last, low.size()};
}

Result<std::vector<NamePattern::Range>> NamePattern::parse_ranges(std::string_view text,
                                                                  const Position& position) {
    std::vector<Range> ranges;
    std::size_t count = 0;
    std::size_t bytes = 0;
    std::size_t offset = 0;
    for (const std::string_view piece : split(text, ',')) {
        const Position piece_position = position.after(offset);
        const auto range = parse_range(piece, piece_position);
        if (!range) return std::unexpected(range.error());
        const auto size = static_cast<std::size_t>(range->high - range->low) + 1;
        if (size > kHostsMax / count_ - std::min(count, kHostsMax / count_))
            return fail_at(piece_position, "range {} goes past the {} hosts that one list can hold",
                           piece, kHostsMax);
        count += size;
        bytes = std::max(bytes, std::max(range->width, fmt::formatted_size("{}", range->high)));
        ranges.push_back(*range);
        offset += piece.size() + 1;
    }
    count_ *= count;
    bytes_ += bytes;
    return ranges;
}

Result<NamePattern> NamePattern::parse(std::string_view text, const Position& position) {
    if (text.empty()) return fail_at(position, "the host name is missing");
    if (text[0] == '-')
        return fail_at(position, "host name {} starts with '-': ssh would read it as an option",
                       in_quotes(text));
    NamePattern pattern;
    std::size_t begin = 0;
    while (begin < text.size()) {
        const std::size_t open = text.find('[', begin);
        const std::string_view literal = text.substr(begin, open - begin);
        const auto checked = check_literal(literal, position.after(begin));
        if (!checked) return std::unexpected(checked.error());
        pattern.bytes_ += literal.size();
        pattern.segments_.push_back({literal, {}});
        if (open == std::string_view::npos) break;
        const std::size_t close = text.find(']', open);
        if (close == std::string_view::npos)
            return fail_at(position.after(open),
                           "'[' is not closed; write ']' after the last number");
        auto ranges =
            pattern.parse_ranges(text.substr(open + 1, close - open - 1), position.after(open + 1));
        if (!ranges) return std::unexpected(ranges.error());
        pattern.segments_.back().ranges = std::move(*ranges);
        begin = close + 1;
    }
    if (pattern.bytes_ > kNameBytesMax)
        return fail_at(position, "host name {} is longer than {} bytes", in_quotes(text),
                       kNameBytesMax);
    return pattern;
}

NamePattern NamePattern::verbatim(std::string_view name) {
    NamePattern pattern;
    pattern.segments_.push_back({name, {}});
    return pattern;
}

/// One segment of a name while the pattern is expanded, like a wheel of an odometer.
class NamePattern::Wheel {
public:
    explicit Wheel(const Segment& segment) : segment_(segment) { rewind(); }

    void append_to(std::string& name) const {
        name += segment_.literal;
        if (segment_.ranges.empty()) return;
        const fmt::format_int digits(number_);
        const std::size_t width = segment_.ranges[range_].width;
        if (digits.size() < width) name.append(width - digits.size(), '0');
        name.append(digits.data(), digits.size());
    }

    /// Goes to the next number; false if that is the first one again.
    bool turn() {
        if (segment_.ranges.empty()) return false;
        if (number_ < segment_.ranges[range_].high) {
            ++number_;
            return true;
        }
        if (++range_ < segment_.ranges.size()) {
            number_ = segment_.ranges[range_].low;
            return true;
        }
        rewind();
        return false;
    }

private:
    void rewind() {
        range_ = 0;
        number_ = segment_.ranges.empty() ? 0 : segment_.ranges[0].low;
    }

    const Segment& segment_;
    std::size_t range_ = 0;
    long long number_ = 0;
};

void NamePattern::expand_into(std::vector<std::string>& names) const {
    std::vector<Wheel> wheels;
    for (const Segment& segment : segments_) wheels.emplace_back(segment);
    // The last bracket turns first; a literal at the end of the name is a wheel that never turns.
    std::vector<Wheel*> order;
    for (Wheel& wheel : wheels) order.push_back(&wheel);
    const bool ends_in_literal = segments_.size() > 1 && segments_.back().ranges.empty();
    std::rotate(order.begin(), order.end() - (ends_in_literal ? 2 : 1), order.end());
    for (std::size_t i = 0; i < count_; ++i) {
        std::string& name = names.emplace_back();
        for (const Wheel& wheel : wheels) wheel.append_to(name);
        for (Wheel* wheel : order)
            if (wheel->turn()) break;
    }
}

}  // namespace dtrun
