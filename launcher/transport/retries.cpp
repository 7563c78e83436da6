#include "launcher/transport/retries.h"

#include <fmt/format.h>
#include <algorithm>

namespace dtrun::transport {
namespace {

constexpr std::chrono::milliseconds kFirstPause{100};

}  // namespace

bool may_come(Errc code) {
    return code == Errc::not_found || code == Errc::unreachable || code == Errc::timed_out ||
           code == Errc::closed;
}

const char* awaited(Errc code) {
    if (code == Errc::not_found) return "waiting for its name to be known";
    if (code == Errc::unreachable) return "waiting for its ssh port";
    if (code == Errc::timed_out) return "waiting for an answer";
    return "waiting for an sshd that hangs up";
}

Error given_up(Error why, const Patience& patience, bool was_awaited) {
    const bool in_vain = was_awaited && may_come(why.code);
    if (!in_vain && why.code != Errc::closed) return why;
    const auto limit = in_vain ? patience.wait_for_hosts : patience.connect_timeout;
    why.message +=
        fmt::format("; tried for {:.3g} s ({})", std::chrono::duration<double>(limit).count(),
                    in_vain ? "--wait-for-hosts" : "--connect-timeout");
    why.code = Errc::unreachable;
    return why;
}

std::chrono::milliseconds pause_before(unsigned attempt, std::uint32_t host,
                                       std::chrono::milliseconds last) {
    const auto whole = std::min(kFirstPause * (1u << std::min(attempt, 8u)), last);
    const unsigned share = (host * 37 + attempt * 11) % 64;
    return whole / 2 + whole * share / 128;
}

}  // namespace dtrun::transport
