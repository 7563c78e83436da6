#include "hostfiles/nodelist.h"

#include "base/strings.h"
#include "hostfiles/name_pattern.h"

#include <fmt/format.h>
#include <limits>

namespace dtrun {

namespace {

constexpr long long kRangeHostsMax = 65'536;  // scontrol's limit for one range

/// A name that ends in a number.
struct Numbered {
    std::string_view prefix;
    std::string_view digits;  ///< empty: the name does not end in a number that a range can hold
    long long number = 0;
    std::string_view domain{};  ///< with its dot, behind the number
};

Numbered take_apart(std::string_view name) {
    std::size_t begin = name.size();
    while (begin > 0 && is_digit(name[begin - 1])) --begin;
    const std::string_view digits = name.substr(begin);
    const auto number = digits.size() > kRangeDigitsMax
                            ? std::nullopt
                            : to_int(digits, 0, std::numeric_limits<long long>::max());
    if (!number) return {name, {}, 0};
    return {name.substr(0, begin), digits, *number};
}

/// As a person reads it: "n01.cluster" is the first of them there.
Numbered take_apart_label(std::string_view name) {
    const std::size_t dot = name.find('.');
    if (dot == std::string_view::npos || is_digit(name.back())) return take_apart(name);
    Numbered label = take_apart(name.substr(0, dot));
    label.domain = name.substr(dot);
    return label;
}

/// Collects neighbouring names that differ only in the number at their end, as one list item.
class Bracket {
public:
    /// False if the name does not go with the ones before; write() those first.
    bool add(const Numbered& name) {
        if (!first_.empty() &&
            (name.prefix != prefix_ || name.domain != domain_ || name.digits.empty() || !numbered_))
            return false;
        if (first_.empty()) {
            prefix_ = name.prefix;
            domain_ = name.domain;
            numbered_ = !name.digits.empty();
            start(name);
        } else if (!extends_range(name)) {
            end_range();
            start(name);
        }
        last_ = name;
        return true;
    }

    /// Appends the list item and begins a new one.
    void write(std::string& list) {
        const bool single = ranges_.empty() && count_ == 1;
        if (!list.empty()) list += ',';
        list += prefix_;
        if (numbered_) {
            end_range();
            list += single ? ranges_ : "[" + ranges_ + "]";
        }
        list += domain_;
        *this = {};
    }

private:
    void start(const Numbered& name) {
        first_ = name.digits.empty() ? name.prefix : name.digits;
        count_ = 1;
    }

    /// Whether expansion, which pads to the width of the first number, would write this name next.
    bool extends_range(const Numbered& name) {
        const std::size_t width = std::max(first_.size(), fmt::formatted_size("{}", name.number));
        if (name.number != last_.number + 1 || name.digits.size() != width ||
            count_ == kRangeHostsMax)
            return false;
        ++count_;
        return true;
    }

    void end_range() {
        if (!ranges_.empty()) ranges_ += ',';
        ranges_ += first_;
        if (count_ > 1) ranges_.append("-").append(last_.digits);
    }

    std::string_view prefix_, domain_;
    bool numbered_ = false;
    std::string ranges_;      ///< finished ranges, separated by commas
    std::string_view first_;  ///< first number of the open range; empty: there is none
    Numbered last_;
    long long count_ = 0;  ///< names in the open range
};

std::string compressed(std::span<const std::string> names, Numbered (*parts)(std::string_view)) {
    std::string list;
    Bracket bracket;
    for (const std::string& text : names) {
        const Numbered name = parts(text);
        if (bracket.add(name)) continue;
        bracket.write(list);
        bracket.add(name);
    }
    if (!names.empty()) bracket.write(list);
    return list;
}

}  // namespace

Result<std::vector<std::string>> expand_nodelist(std::string_view text, std::string_view what) {
    const Position position{what};
    std::vector<std::string> names;
    for (const Token& token : split_outside_brackets(text, ", \t\r\n\v\f")) {
        if (token.text.empty()) continue;
        const auto pattern = NamePattern::parse(token.text, position.after(token.offset));
        if (!pattern) return std::unexpected(pattern.error());
        if (names.size() + pattern->count() > kHostsMax)
            return fail_at(position.after(token.offset), "more than {} hosts; split the list",
                           kHostsMax);
        pattern->expand_into(names);
    }
    if (names.empty()) return fail_at(position, "no hosts; write a list such as n[01-16],login1");
    return names;
}

std::string compress_nodelist(std::span<const std::string> names) {
    return compressed(names, take_apart);
}

std::string name_hosts(const std::vector<std::string>& names) {
    if (names.size() <= kFewHosts) return join_names(names);
    return fmt::format("{} ({})", compressed(names, take_apart_label), names.size());
}

}  // namespace dtrun
