#include "hostfiles/nodelist.h"

#include "hostfiles/host.h"
#include "hostfiles/name_pattern.h"

namespace dtrun {

Result<std::vector<std::string>> expand_nodelist(std::string_view text) {
    const Place place{"nodelist"};
    std::vector<std::string> names;
    for (const Piece& piece : split_outside_brackets(text, ", \t\r\n\v\f")) {
        if (piece.text.empty()) continue;
        const auto pattern = NamePattern::parse(piece.text, place.after(piece.offset));
        if (!pattern) return std::unexpected(pattern.error());
        if (names.size() + pattern->count() > kHostsMax)
            return fail_at(place.after(piece.offset), "more than {} hosts; split the list",
                           kHostsMax);
        pattern->expand_into(names);
    }
    if (names.empty()) return fail_at(place, "no hosts; write a list such as n[01-16],login1");
    return names;
}

}  // namespace dtrun
