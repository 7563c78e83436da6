#include "rendezvous/wire/msgpack.h"

#include "tests/support/catch.h"
#include "tests/support/seed.h"

#include <limits>
#include <random>

namespace dtrun {
namespace {

std::string packed(auto write) {
    Bytes bytes;
    PackWriter writer(bytes);
    write(writer);
    return bytes;
}

/// Bytes from text such as "c0 7f".
std::string from_hex(std::string_view text) {
    std::string bytes;
    for (std::size_t i = 0; i + 1 < text.size(); i += 3)
        bytes += static_cast<char>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16));
    return bytes;
}

}  // namespace

TEST_CASE("integers are written in the shortest form that the MessagePack spec has", "[msgpack]") {
    struct Case {
        std::uint64_t value;
        const char* bytes;
    };
    for (const auto& [value, bytes] :
         {Case{0, "00"}, Case{127, "7f"}, Case{128, "cc 80"}, Case{255, "cc ff"},
          Case{256, "cd 01 00"}, Case{65'536, "ce 00 01 00 00"},
          Case{1ull << 32, "cf 00 00 00 01 00 00 00 00"}}) {
        CHECK(packed([v = value](PackWriter& w) { w.uint(v); }) == from_hex(bytes));
    }
    CHECK(packed([](PackWriter& w) { w.integer(-1); }) == from_hex("ff"));
    CHECK(packed([](PackWriter& w) { w.integer(-33); }) == from_hex("d0 df"));
    CHECK(packed([](PackWriter& w) { w.integer(-129); }) == from_hex("d1 ff 7f"));
}

TEST_CASE("every integer that was written is read back", "[msgpack]") {
    const std::uint32_t seed = test_seed();
    INFO("DTRUN_SEED=" << seed);
    std::mt19937_64 random(seed);
    for (int i = 0; i < 2'000; ++i) {
        const auto value =
            static_cast<std::int64_t>(random() >> (random() % 64)) * (random() % 2 == 0 ? 1 : -1);
        const std::string bytes = packed([value](PackWriter& w) { w.integer(value); });
        PackReader reader(bytes);
        CHECK(reader.integer() == value);
        CHECK(reader.at_end());
    }
}

TEST_CASE("text and bytes of every length class are read back as views", "[msgpack]") {
    for (const std::size_t size : {0u, 1u, 31u, 32u, 255u, 256u, 65'535u, 65'536u}) {
        const std::string text(size, 'x');
        const std::string bytes = packed([&](PackWriter& w) {
            w.str(text);
            w.bin(std::string_view(text));
        });
        PackReader reader(bytes);
        CHECK(reader.str() == text);
        CHECK(reader.bin() == text);
        CHECK(reader.at_end());
    }
}

TEST_CASE("a count that cannot fit into the rest of the input is refused before any loop",
          "[msgpack]") {
    const std::string huge_array = from_hex("dd ff ff ff ff");
    PackReader array(huge_array);
    CHECK(array.array() == 0);
    CHECK_FALSE(array.ok());
    const std::string huge_map = from_hex("df 7f ff ff ff c0 c0");
    PackReader map(huge_map);
    CHECK(map.map() == 0);
    CHECK_FALSE(map.ok());
    const std::string huge_text = from_hex("db ff ff ff ff 61");
    PackReader text(huge_text);
    CHECK(text.str().empty());
    CHECK_FALSE(text.ok());
}

TEST_CASE("skip passes over any value, and refuses nesting without end", "[msgpack]") {
    const std::string values = from_hex(
        "c0 c2 c3 ca 00 00 00 00 cb 00 00 00 00 00 00 00 00 d4 01 02 c7 01 05 aa a1 61 c4 01 62 "
        "82 a1 6b 92 01 02 a1 6c c0 2a");
    PackReader reader(values);
    for (int i = 0; i < 10; ++i) reader.skip();
    CHECK(reader.uint() == 42);
    CHECK(reader.at_end());

    const std::string nested(100, static_cast<char>(0x91));
    PackReader deep(nested);
    deep.skip();
    CHECK_FALSE(deep.ok());
}

TEST_CASE("a reader that failed once stays failed and answers with nothing", "[msgpack]") {
    const std::string bytes = from_hex("c3 05");
    PackReader reader(bytes);
    CHECK(reader.uint() == 0);
    CHECK(reader.uint() == 0);
    CHECK_FALSE(reader.ok());
    CHECK_FALSE(reader.at_end());
}

TEST_CASE("an integer above int64 is refused where a signed one is wanted", "[msgpack]") {
    const std::string bytes =
        packed([](PackWriter& w) { w.uint(std::numeric_limits<std::uint64_t>::max()); });
    PackReader reader(bytes);
    reader.integer();
    CHECK_FALSE(reader.ok());
}

}  // namespace dtrun
