#include "rendezvous/messages.h"

#include <catch2/catch.hpp>

namespace dtrun {
namespace {

template <class M>
Result<M> through_wire(const M& message) {
    const Bytes frame = encode(message);
    return decode<M>(std::string_view(frame).substr(FrameHeader::kBytes));
}

}  // namespace

TEST_CASE("a bootstrap keeps its arguments and environment byte for byte", "[messages]") {
    Bootstrap sent;
    sent.job_id = std::string(16, '\x01');
    sent.secret = std::string(32, '\xff');
    sent.host = 3;
    sent.addresses = {"10.0.0.1", "fe80::1"};
    sent.port = 65'535;
    sent.argv = {"prog", "", "a b", std::string("nul\0inside", 10), "\xff\xfe"};
    sent.env = {{"PATH", "/bin"}, {"MULTI", "line 1\nline 2"}};
    sent.input = InputTarget::all;
    const auto got = through_wire(sent);
    REQUIRE(got.has_value());
    CHECK(got->argv == sent.argv);
    CHECK(got->env == sent.env);
    CHECK(got->addresses == sent.addresses);
    CHECK(got->port == 65'535);
    CHECK(got->secret == sent.secret);
    CHECK(got->input == InputTarget::all);
}

TEST_CASE("an assignment keeps every rank's place", "[messages]") {
    Assign sent;
    sent.generation = 1ull << 40;
    sent.world_size = 16;
    sent.ranks = {{4, 0, 1, 4, 0}, {5, 1, 1, 4, 7}};
    const auto got = through_wire(sent);
    REQUIRE(got.has_value());
    CHECK(got->generation == sent.generation);
    CHECK(got->ranks == sent.ranks);
}

TEST_CASE("fields that a message does not know are ignored, missing ones keep their default",
          "[messages]") {
    Bytes payload;
    PackWriter writer(payload);
    writer.map(2);
    writer.str("from_the_future");
    writer.array(2);
    writer.uint(1);
    writer.map(0);
    writer.str("signal");
    writer.integer(15);
    const auto stop = decode<Stop>(payload);
    REQUIRE(stop.has_value());
    CHECK(stop->signal == 15);
    CHECK(stop->grace_ms == 0);
}

TEST_CASE("a value outside its field's range, a wrong type or trailing bytes are refused",
          "[messages]") {
    const auto port = [](auto write) {
        Bytes payload;
        PackWriter writer(payload);
        writer.map(1);
        writer.str("port");
        write(writer);
        return payload;
    };
    CHECK_FALSE(decode<Bootstrap>(port([](PackWriter& w) { w.uint(65'536); })).has_value());
    CHECK_FALSE(decode<Bootstrap>(port([](PackWriter& w) { w.str("22"); })).has_value());
    const Bytes good = port([](PackWriter& w) { w.uint(22); });
    CHECK(decode<Bootstrap>(good).has_value());
    CHECK_FALSE(decode<Bootstrap>(good + "x").has_value());
    CHECK_FALSE(decode<Bootstrap>(good.substr(0, good.size() - 1)).has_value());
}

TEST_CASE("an output header goes through the wire, and one that lies is refused", "[messages]") {
    const OutputHeader sent{70'000, Stream::err, 1'700'000'000'123'456'789};
    const auto head = encode_output_header(sent, 5);
    const std::string frame = std::string(head.data(), head.size()) + "hello";
    const auto got = decode_output(std::string_view(frame).substr(FrameHeader::kBytes));
    REQUIRE(got.has_value());
    CHECK(got->header.rank == sent.rank);
    CHECK(got->header.stream == sent.stream);
    CHECK(got->header.time_ns == sent.time_ns);
    CHECK(got->data == "hello");

    std::string no_stream = frame.substr(FrameHeader::kBytes);
    no_stream[4] = 9;
    CHECK_FALSE(decode_output(no_stream).has_value());
    CHECK_FALSE(decode_output("short").has_value());
    const std::string too_long(OutputHeader::kBytes + OutputHeader::kDataBytesMax + 1, '\0');
    CHECK_FALSE(decode_output(too_long).has_value());
}

}  // namespace dtrun
