#pragma once
// Short forms of results, so that a test reads as a table.

#include "base/result.h"
#include "hostfiles/host.h"

#include <fmt/format.h>
#include <ctime>
#include <string>

namespace dtrun {

/// What this process has had of processors: a busy machine does not make a parser slow.
inline double processor_seconds() {
    return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

/// The message of an invalid_input error, "no error", or "other code: ..." .
template <class T>
std::string error_of(const Result<T>& result) {
    if (result) return "no error";
    if (result.error().code != Errc::invalid_input) return "other code: " + result.error().message;
    return result.error().message;
}

/// "alice@s1:4", with "/8" for slots_max, "{0,2}" for slot_ids, " port=2222 key=k address=a".
inline std::string show(const Host& host) {
    std::string text = host.user.empty() ? "" : host.user + "@";
    text += fmt::format("{}:{}", host.name, host.slots);
    if (host.slots_max) text += fmt::format("/{}", *host.slots_max);
    if (!host.slot_ids.empty()) text += fmt::format("{{{}}}", fmt::join(host.slot_ids, ","));
    if (host.port != 0) text += fmt::format(" port={}", host.port);
    if (!host.identity_file.empty()) text += " key=" + host.identity_file;
    if (!host.address.empty()) text += " address=" + host.address;
    return text;
}

/// Hosts separated by ", ", or the error's message.
inline std::string show(const Result<HostList>& hosts) {
    if (!hosts) return hosts.error().message;
    std::string text;
    for (const Host& host : *hosts) text += (text.empty() ? "" : ", ") + show(host);
    return text;
}

}  // namespace dtrun
