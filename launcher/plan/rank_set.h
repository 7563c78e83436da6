#pragma once

#include "base/numbered.h"
#include "base/result.h"
#include "hostfiles/host.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::plan {

/// Some ranks, as a user lists them: "0,3-5".
class RankSet {
public:
    /// \param text  ranks and ranges "low-high" between commas, each 0..kRanksMax-1; may overlap
    /// \return at least one rank, or invalid_input that quotes the wrong item
    static Result<RankSet> parse(std::string_view text);

    struct Range {
        int first;
        int last;
        bool operator==(const Range&) const = default;
    };

    void add(const RankSet& other);
    bool contains(int rank) const;
    bool empty() const { return ranges_.empty(); }
    int largest() const;                                          ///< -1 if empty
    const std::vector<Range>& ranges() const { return ranges_; }  ///< as given

    bool operator==(const RankSet&) const = default;

private:
    std::vector<Range> ranges_;
};

/// "0-2, 5", for people; of more ranges than `ranges_max` the first ones and how many ranks there are in all.
/// \param ranks  in order, each once
std::string rank_ranges(const std::vector<Rank>& ranks, std::size_t ranges_max = 16);

}  // namespace dtrun::plan
