#include "hostfiles/filter.h"
#include "hostfiles/host_spec.h"
#include "tests/fuzz/hostfiles/promises.h"

#include <algorithm>

using namespace dtrun;

namespace {

void check(const Result<HostList>& left, std::string_view flag) {
    if (!left) {
        require_message(left.error(), flag);
        return;
    }
    require_hosts(*left);
    for (const Host& host : *left) {
        require(host.slots > 0, "hosts without slots are dropped");
        if (host.slot_ids.empty()) continue;
        require(host.slot_ids.size() == static_cast<std::size_t>(host.slots), "one id for a slot");
        require(std::is_sorted(host.slot_ids.begin(), host.slot_ids.end()), "sorted slots");
        require(host.slot_ids.front() >= 0 && host.slot_ids.back() < 4, "slots of the host");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const HostList hosts = parse_hosts("w[0-3]:4,node-a.example.com:2,[::1]:4").value();
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    check(filter_hosts(hosts, text, ""), "--include");
    check(filter_hosts(hosts, "", text), "--exclude");
    return 0;
}
