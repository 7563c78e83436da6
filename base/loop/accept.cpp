#include "base/loop/accept.h"

#include "base/log.h"

namespace dtrun {

void AcceptTrouble::tell(const boost::system::error_code& error) {
    const auto times = throttle_.count();
    if (!times) return;
    const std::string more = *times > 1 ? fmt::format(" ({} times)", *times) : std::string();
    log::warn("{}: cannot accept connections: {}{}", what_, error.message(), more);
}

}  // namespace dtrun
