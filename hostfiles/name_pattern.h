#pragma once
// Private to this folder: host names with ranges, "rack[1-2]n[01-10].example.com".

#include "base/result.h"
#include "hostfiles/scan.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrun {

inline constexpr std::size_t kNameBytesMax = 255;   ///< of a host or user name; DNS allows 253
inline constexpr std::size_t kRangeDigitsMax = 18;  ///< of a number in a range: fits a long long

/// Host names that are written as one, checked but not yet expanded.
///
/// Lifetime: refers to the text it was parsed from.
class NamePattern {
public:
    /// \return invalid_input at `position` and after, also when there are more than kHostsMax names
    static Result<NamePattern> parse(std::string_view text, const Position& position);

    /// One name that holds no range, such as an IPv6 address.
    static NamePattern verbatim(std::string_view name);

    std::size_t count() const { return count_; }  ///< 1..kHostsMax

    /// Appends count() names in the order of `scontrol show hostnames`: of several ranges the last
    /// varies fastest, after it the first, the second and so on:
    /// r[1-2]c[1-2]n[1-2] is r1c1n1 r1c1n2 r2c1n1 r2c1n2 r1c2n1 ...
    void expand_into(std::vector<std::string>& names) const;

private:
    struct Range {
        long long low = 0;
        long long high = 0;
        std::size_t width = 0;  ///< digits of the low bound; shorter numbers get zeros
    };
    struct Segment {
        std::string_view literal;   ///< stands before the ranges
        std::vector<Range> ranges;  ///< empty in the last segment, unless a bracket ends the name
    };
    class Wheel;

    static Result<Range> parse_range(std::string_view text, const Position& position);
    Result<std::vector<Range>> parse_ranges(std::string_view text, const Position& position);

    std::vector<Segment> segments_;
    std::size_t count_ = 1;
    std::size_t bytes_ = 0;  ///< of the longest name
};

}  // namespace dtrun
