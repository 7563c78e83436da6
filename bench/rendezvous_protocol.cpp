#include "bench/rendezvous_protocol.h"

namespace dtrun::bench {

std::unique_ptr<Protocol> make_protocol(std::string_view name, std::uint32_t clients) {
    if (name == "dtrun") return make_dtrun();
    if (name == "tcpstore") return make_tcpstore(clients);
    return nullptr;
}

}  // namespace dtrun::bench
