#include "base/suggest.h"

#include "base/strings.h"

namespace dtrun {

std::string did_you_mean(std::string_view wrong, const std::vector<std::string>& names) {
    const std::size_t near = wrong.size() / 3;  // most edits of a misspelled name
    std::size_t best = near + 1;
    std::string_view found;
    for (const std::string& name : names) {
        if (name.size() > wrong.size() + near || wrong.size() > name.size() + near) continue;
        const std::size_t distance = edit_distance(wrong, name);
        if (distance >= best) continue;
        best = distance;
        found = name;
    }
    return found.empty() ? "" : "; did you mean " + std::string(found) + "?";
}

}  // namespace dtrun
