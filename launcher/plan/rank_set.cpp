#include "launcher/plan/rank_set.h"

#include "base/strings.h"

#include <algorithm>

namespace dtrun::plan {

namespace {

std::optional<int> rank_number(std::string_view text) {
    if (text.starts_with('-')) return {};
    return to_int(text, 0, kRanksMax - 1);
}

bool follows(Rank rank, Rank other) {
    return std::to_underlying(rank) == std::to_underlying(other) + 1;
}

}  // namespace

Result<RankSet> RankSet::parse(std::string_view text) {
    RankSet set;
    for (const std::string_view item : split(text, ',')) {
        const std::string_view trimmed = trim(item);
        const std::size_t dash = trimmed.find('-');
        const auto first = rank_number(trimmed.substr(0, dash));
        const auto last =
            dash == std::string_view::npos ? first : rank_number(trimmed.substr(dash + 1));
        if (!first || !last)
            return fail(Errc::invalid_input,
                        "'{}' is not a rank from 0 to {} or a range of them such as 3-5", trimmed,
                        kRanksMax - 1);
        if (*first > *last) return fail(Errc::invalid_input, "range {} runs backwards", trimmed);
        set.ranges_.push_back({*first, *last});
    }
    return set;
}

void RankSet::add(const RankSet& other) {
    ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
}

bool RankSet::contains(int rank) const {
    return std::ranges::any_of(
        ranges_, [rank](const Range& range) { return range.first <= rank && rank <= range.last; });
}

std::string rank_ranges(const std::vector<Rank>& ranks, std::size_t ranges_max) {
    std::string text;
    std::size_t shown = 0;
    for (std::size_t i = 0; i < ranks.size();) {
        if (++shown > ranges_max) return text + fmt::format(", … ({} ranks)", ranks.size());
        std::size_t end = i + 1;
        while (end < ranks.size() && follows(ranks[end], ranks[end - 1])) ++end;
        text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks[i]);
        if (end - i > 1) text += fmt::format("-{}", ranks[end - 1]);
        i = end;
    }
    return text;
}

int RankSet::largest() const {
    int largest = -1;
    for (const Range& range : ranges_) largest = std::max(largest, range.last);
    return largest;
}

}  // namespace dtrun::plan
