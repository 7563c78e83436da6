#pragma once
// What every parser of hostfiles/ promises, whatever the input.

#include "base/result.h"
#include "base/utf8.h"
#include "hostfiles/host.h"

#include <fmt/format.h>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <unordered_set>

namespace dtrun {

inline void require(bool promise, std::string_view what) {
    if (promise) return;
    fmt::print(stderr, "broken promise: {}\n", what);
    std::abort();
}

/// In one line and without orders to a terminal. A sign that looks like one of the keyboard is shown as it is.
inline void require_printable(std::string_view message) {
    require(message.find('\n') == std::string_view::npos && printable(message) == message,
            "messages are printable");
}

/// "<prefix>:<line>:<column>: ...", printable.
inline void require_message(const Error& error, std::string_view prefix) {
    require(error.code == Errc::invalid_input, "errors are invalid_input");
    require(error.message.starts_with(prefix), error.message);
    unsigned line = 0;
    unsigned column = 0;
    const char* place = error.message.c_str() + prefix.size();
    require(std::sscanf(place, ":%u:%u: ", &line, &column) == 2, error.message);
    require(line > 0 && column > 0, error.message);
    require_printable(error.message);
}

inline void require_name(std::string_view name) {
    require(!name.empty() && name[0] != '-' && name.size() <= 255, name);
    const bool is_ipv6 = name.find(':') != std::string_view::npos;
    for (const char c : name) {
        const bool common = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                            (c >= 'A' && c <= 'Z') || c == '.' || c == '-' || c == '_';
        require(common || (is_ipv6 && (c == ':' || c == '%')), name);
    }
}

inline void require_hosts(const HostList& hosts) {
    require(!hosts.empty() && hosts.size() <= kHostsMax, "1..kHostsMax hosts");
    std::unordered_set<std::string_view> seen;
    for (const Host& host : hosts) {
        require_name(host.name);
        require(seen.insert(host.name).second, "no host twice");
        require(host.slots >= 0 && host.slots <= kSlotsMax, "0..kSlotsMax slots");
        require(host.slots_max.value_or(host.slots) >= host.slots, "slots_max >= slots");
        require(host.slots_max.value_or(0) <= kSlotsMax, "slots_max <= kSlotsMax");
        require(!host.user.starts_with('-'), "no user is an option");
        require(host.user.find_first_of(" \t\n'\"") == std::string::npos, "user is one word");
        require(host.port >= 0 && host.port <= 65'535, "port");
    }
}

}  // namespace dtrun
