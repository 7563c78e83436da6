#include "rendezvous/job/tree.h"
#include "rendezvous/wire/relayed.h"
#include "tests/support/catch.h"

#include <cmath>
#include <map>

namespace dtrun {

TEST_CASE("up to the threshold every host connects to the head, above it few do", "[tree]") {
    const Tree flat(256, 256);
    for (const HostId host : all_hosts(256)) CHECK_FALSE(flat.parent(host));
    for (const std::uint32_t hosts : {3u, 5u, 6u, 100u, 257u, 1'000u, 4'097u, 65'536u}) {
        CAPTURE(hosts);
        const Tree tree(hosts, 2);
        std::map<HostId, std::uint32_t> behind;
        std::uint32_t direct = 0;
        for (const HostId host : all_hosts(hosts)) {
            const auto parent = tree.parent(host);
            CHECK(parent.has_value() != tree.is_relay(host));
            if (!parent) {
                ++direct;
                continue;
            }
            REQUIRE(*parent < host);  // relays are started first
            CHECK(tree.is_relay(*parent));
            ++behind[*parent];
        }
        const auto limit = static_cast<std::uint32_t>(std::ceil(std::sqrt(hosts)));
        CHECK(direct <= limit);
        for (const auto& [relay, count] : behind) CHECK(count <= limit);
    }
}

TEST_CASE("a relayed frame is whole, and not relayed twice", "[tree]") {
    const Bytes payload = encode_relayed(HostId{7}, FrameType::done, "abc");
    const auto view = decode_relayed(payload);
    REQUIRE(view.has_value());
    CHECK(view->host == HostId{7});
    CHECK(view->frame.type == FrameType::done);
    CHECK(view->frame.payload == "abc");
    CHECK_FALSE(decode_relayed(payload.substr(0, payload.size() - 1)).has_value());
    CHECK_FALSE(decode_relayed(payload + "x").has_value());
    CHECK_FALSE(decode_relayed("abc").has_value());
    CHECK_FALSE(decode_relayed(encode_relayed(HostId{7}, FrameType::relayed, payload)).has_value());
}

}  // namespace dtrun
