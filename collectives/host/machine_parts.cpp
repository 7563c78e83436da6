#include "collectives/host/machine_parts.h"

#include <algorithm>
#include <map>

namespace dtrun::collectives {
namespace {

/// With P ranks on two parts, P times an array crosses between them without levels and twice an array with
/// them, for some more passes in each part's own memory, which get shorter with the number of its ranks. On a
/// machine with one part, where nothing is saved, these passes cost 30 % with four ranks in a part and 8 to 25 %
/// with eight. No machine with two could be had to find out where levels begin to pay.
constexpr std::size_t kRanksOfPartMin = 8;

}  // namespace

MachineParts::MachineParts(std::span<const std::int32_t> numbers) {
    std::map<std::int32_t, std::uint32_t> parts;
    for (std::uint32_t place = 0; place < numbers.size(); ++place) {
        const auto next = static_cast<std::uint32_t>(parts.size());
        const std::uint32_t part = parts.emplace(numbers[place], next).first->second;
        if (part == places_.size()) places_.emplace_back();
        part_of_.push_back(part);
        index_of_.push_back(static_cast<std::uint32_t>(places_[part].size()));
        places_[part].push_back(place);
    }
}

bool MachineParts::pay() const {
    return parts() > 1 && std::ranges::all_of(places_, [&](const auto& places) {
               return places.size() >= kRanksOfPartMin && places.size() == places_[0].size();
           });
}

std::optional<MachineParts> MachineParts::of(std::span<const Locality> ranks) {
    for (const auto number : {&Locality::node, &Locality::socket}) {
        std::vector<std::int32_t> numbers;
        for (const Locality& rank : ranks) numbers.push_back(rank.*number);
        if (std::ranges::find(numbers, -1) != numbers.end()) continue;
        MachineParts made(numbers);
        if (made.pay()) return made;
    }
    return std::nullopt;
}

}  // namespace dtrun::collectives
