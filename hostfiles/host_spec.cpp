#include "hostfiles/host_spec.h"

#include "hostfiles/host_item.h"
#include "hostfiles/host_merger.h"

namespace dtrun {

Result<HostList> parse_hosts(std::string_view text) {
    const Position position{"-H"};
    if (trim(text).empty()) return fail_at(position, "no hosts; write -H host:slots,host:slots");
    const auto pieces = split_outside_brackets(text, ",");
    HostMerger hosts(pieces.size());
    for (const Piece& piece : pieces) {
        const Position at = position.after(piece.offset);
        if (piece.text.empty())
            return fail_at(at, "no host stands next to this comma; remove the comma");
        const auto blank = std::find_if(piece.text.begin(), piece.text.end(), is_blank);
        if (blank != piece.text.end())
            return fail_at(at.after(static_cast<std::size_t>(blank - piece.text.begin())),
                           "hosts are separated by commas; write a:1,b:1 without blanks");
        const auto item = parse_host_item(piece.text, at);
        if (!item) return std::unexpected(item.error());
        Host host;
        host.user = item->user;
        host.slots = item->slots.value_or(host.slots);
        const auto added = hosts.add(item->names, host, at);
        if (!added) return std::unexpected(added.error());
    }
    return hosts.take();
}

}  // namespace dtrun
