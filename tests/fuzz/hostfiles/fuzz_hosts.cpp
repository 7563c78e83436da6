#include "hostfiles/host_spec.h"
#include "hostfiles/placement.h"
#include "tests/fuzz/hostfiles/promises.h"

using namespace dtrun;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto hosts = parse_hosts({reinterpret_cast<const char*>(data), size});
    if (!hosts) {
        require_message(hosts.error(), "-H");
        return 0;
    }
    require_hosts(*hosts);
    PlacementRequest request;
    request.world_size = 1000;
    request.map_by = size % 2 == 0 ? MapBy::slot : MapBy::node;
    request.oversubscribe = size % 3 == 0;
    const auto placement = place_ranks(*hosts, request);
    require(!placement || placement->world_size() == 1000, "as many ranks as asked for");
    return 0;
}
