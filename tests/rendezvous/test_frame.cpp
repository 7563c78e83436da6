#include "rendezvous/wire/frame.h"

#include "tests/support/catch.h"
#include "tests/support/seed.h"

#include <random>

namespace dtrun {

TEST_CASE("frames come out whole however the bytes arrive", "[frame]") {
    const std::uint32_t seed = test_seed();
    INFO("DTRUN_SEED=" << seed);
    std::mt19937 random(seed);
    Bytes stream;
    std::vector<std::string> payloads;
    for (int i = 0; i < 50; ++i) {
        payloads.emplace_back(random() % 300, static_cast<char>('a' + i % 26));
        stream += encode_frame(FrameType::output, payloads.back());
    }
    std::string received;
    std::size_t seen = 0;
    for (std::size_t at = 0; at < stream.size();) {
        const std::size_t piece = std::min<std::size_t>(1 + random() % 100, stream.size() - at);
        received += stream.substr(at, piece);
        at += piece;
        std::string_view rest = received;
        for (;;) {
            const auto frame = next_frame(rest);
            REQUIRE(frame.has_value());
            if (!*frame) break;
            CHECK((*frame)->payload == payloads[seen]);
            ++seen;
        }
        received = std::string(rest);
    }
    CHECK(seen == payloads.size());
    CHECK(received.empty());
}

TEST_CASE("a frame that announces too much is refused from its header alone", "[frame]") {
    const auto header = encode_header({FrameType::join, FrameHeader::kPayloadBytesMax + 1});
    std::string_view bytes(header.data(), header.size());
    const auto frame = next_frame(bytes);
    REQUIRE_FALSE(frame.has_value());
    CHECK(frame.error().code == Errc::invalid_input);
    CHECK(frame.error().message == "frame of 16777217 bytes, more than 16777216");
}

TEST_CASE("a frame with type 0 or reserved bytes set is refused", "[frame]") {
    auto header = encode_header({static_cast<FrameType>(0), 0});
    CHECK_FALSE(decode_header({header.data(), header.size()}).has_value());
    header = encode_header({FrameType::join, 0});
    CHECK(decode_header({header.data(), header.size()}).has_value());
    header[6] = 1;
    CHECK_FALSE(decode_header({header.data(), header.size()}).has_value());
}

}  // namespace dtrun
