#include "hostfiles/host_spec.h"

#include "hostfiles/host_item.h"
#include "hostfiles/host_merger.h"

namespace dtrun {

Result<HostList> parse_hosts(std::string_view text) {
    const Position position{"-H"};
    if (trim(text).empty()) return fail_at(position, "no hosts; write -H host:slots,host:slots");
    if (auto plain = check_characters(text, position); !plain)
        return std::unexpected(plain.error());
    const auto tokens = split_outside_brackets(text, ",");
    HostMerger hosts(tokens.size());
    for (const Token& token : tokens) {
        const Position at = position.after(token.offset);
        if (token.text.empty())
            return fail_at(at, "no host stands next to this comma; remove the comma");
        const auto blank = std::find_if(token.text.begin(), token.text.end(), is_blank);
        if (blank != token.text.end())
            return fail_at(at.after(static_cast<std::size_t>(blank - token.text.begin())),
                           "hosts are separated by commas; write a:1,b:1 without blanks");
        const auto item = parse_host_item(token.text, at);
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
