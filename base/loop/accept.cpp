#include "base/loop/accept.h"

#include "base/ids.h"
#include "base/log.h"

#include <sys/socket.h>
#include <array>

namespace dtrun {

Result<std::string> listen_at_own_name(Unix::acceptor& acceptor, std::string_view what) {
    std::array<std::uint8_t, 12> random{};
    random_bytes(random);
    const std::string name = "dtrun-" + hex(random);
    boost::system::error_code error;
    acceptor.open(Unix(), error);
    if (!error) close_on_exec(acceptor.native_handle());
    if (!error) acceptor.bind(Unix::endpoint(std::string(1, '\0') + name), error);
    if (!error) acceptor.listen(SOMAXCONN, error);
    if (error) return fail(Errc::internal, "socket for {}: {}", what, error.message());
    return "@" + name;
}

void AcceptTrouble::tell(const boost::system::error_code& error) {
    const auto times = throttle_.count();
    if (!times) return;
    const std::string more = *times > 1 ? fmt::format(" ({} times)", *times) : std::string();
    log::warn("{}: cannot accept connections: {}{}", what_, error.message(), more);
}

}  // namespace dtrun
