#include "base/loop/net.h"

namespace dtrun {

std::string numeric(const asio::ip::address& address) {
    if (address.is_v6() && address.to_v6().is_v4_mapped())
        return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string();
    return address.to_string();
}

std::string remote_address(const tcp::socket& socket) {
    boost::system::error_code closed;
    return numeric(socket.remote_endpoint(closed).address());
}

std::string local_address(const tcp::socket& socket) {
    boost::system::error_code closed;
    return numeric(socket.local_endpoint(closed).address());
}

}  // namespace dtrun
