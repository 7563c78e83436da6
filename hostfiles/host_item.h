#pragma once
// Private to this folder: "user@name[1-3]:4", the form that -H, hostfiles and YAML share.

#include "base/result.h"
#include "hostfiles/name_pattern.h"
#include "hostfiles/scan.h"

#include <optional>
#include <string>
#include <string_view>

namespace dtrun {

/// Lifetime: refers to the text it was parsed from.
struct HostItem {
    std::string user;          ///< empty if not written
    NamePattern names;         ///< an IPv6 address is without its brackets
    std::optional<int> slots;  ///< if written
};

/// Reads `[user@]name[:slots]`.
Result<HostItem> parse_host_item(std::string_view text, const Position& position);

/// Reads `name` or `[ipv6]`, and where `rest` (what follows it) begins: at a ':' or at the end.
Result<NamePattern> parse_host_name(std::string_view text, const Position& position,
                                    std::string_view& rest);

Result<void> check_user(std::string_view user, const Position& position);

/// Whether `text` is an IPv6 address (RFC 4291, with a zone such as %eth0 allowed), no brackets.
bool is_ipv6(std::string_view text);

/// The same, or an IPv4 address.
bool is_address(const std::string& text);

}  // namespace dtrun
