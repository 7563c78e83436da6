#include "rendezvous/wire/control_messages.h"
#include "rendezvous/wire/doctor_messages.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/heartbeat.h"
#include "rendezvous/wire/login_messages.h"
#include "rendezvous/wire/look_messages.h"
#include "rendezvous/wire/member_messages.h"
#include "rendezvous/wire/modes.h"
#include "rendezvous/wire/msgpack.h"
#include "rendezvous/wire/output_messages.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/request.h"
#include "rendezvous/wire/start_messages.h"
#include "rendezvous/wire/warm_messages.h"
#include "tests/support/catch.h"

#include <malloc.h>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <new>
#include <sstream>
#include <string>

namespace {

/// While it is not empty: bytes that no freed memory may hold.
std::string_view watched;
int found_in_freed_memory = 0;

}  // namespace

void* operator new(std::size_t bytes) {
    void* memory = std::calloc(1, bytes);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    return std::calloc(1, bytes);
}

void operator delete(void* memory) noexcept {
    if (memory != nullptr && !watched.empty()) {
        const std::string_view block(static_cast<const char*>(memory),
                                     ::malloc_usable_size(memory));
        if (block.find(watched) != block.npos) ++found_in_freed_memory;
    }
    std::free(memory);
}

void operator delete(void* memory, std::size_t) noexcept {
    operator delete(memory);
}

namespace dtrun {
namespace {

/// The rows of a table that docs/PROTOCOL.md has.
/// \param heads  how its heads begin
std::vector<std::string> documented(std::string_view heads) {
    std::ifstream file(DTRUN_SOURCE_DIR "/docs/PROTOCOL.md");
    std::vector<std::string> rows;
    bool in_table = false;
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("|---")) continue;
        if (in_table && line.starts_with("| ")) rows.push_back(line);
        in_table = line.starts_with(heads) || (in_table && line.starts_with("|"));
    }
    return rows;
}

std::string_view type_of(std::uint8_t first) {
    if (first == 0xc0) return "nil";
    if (first == 0xc2 || first == 0xc3) return "bool";
    if ((first & 0xf0) == 0x80 || first == 0xde || first == 0xdf) return "map";
    if ((first & 0xf0) == 0x90 || first == 0xdc || first == 0xdd) return "array";
    if ((first & 0xe0) == 0xa0 || (first >= 0xc4 && first <= 0xc6) ||
        (first >= 0xd9 && first <= 0xdb))
        return "bytes";
    return "number";
}

/// The fields of a message, each with the type of its value.
template <class M>
std::map<std::string, std::string_view> fields_of(const M& message) {
    const Bytes frame = encode(message);
    std::map<std::string, std::string_view> fields;
    PackReader in(payload_of(frame));
    for (std::uint32_t left = in.map(); left > 0; --left) {
        const std::string_view name = in.str();
        fields.emplace(name, type_of(static_cast<std::uint8_t>(*name.end())));
        in.skip();
    }
    return fields;
}

template <class M>
Result<M> through_wire(const M& message) {
    const Bytes frame = encode(message);
    return decode<M>(std::string_view(frame).substr(FrameHeader::kBytes));
}

}  // namespace

TEST_CASE("a configuration keeps its arguments and environment byte for byte", "[messages]") {
    AgentConfig sent;
    sent.job_id = std::string(16, '\x01');
    sent.secret = std::string(32, '\xff');
    sent.host = HostId{3};
    sent.addresses = {"10.0.0.1", "fe80::1"};
    sent.port = 65'535;
    sent.argv = {"prog", "", "a b", std::string("nul\0inside", 10), "\xff\xfe"};
    sent.env = {{"PATH", "/bin"}, {"MULTI", "line 1\nline 2"}};
    sent.stdin_target.kind = StdinTarget::Kind::all;
    const auto got = through_wire(sent);
    REQUIRE(got.has_value());
    CHECK(got->argv == sent.argv);
    CHECK(got->env == sent.env);
    CHECK(got->addresses == sent.addresses);
    CHECK(got->port == 65'535);
    CHECK(got->secret == sent.secret);
    CHECK(got->stdin_target == sent.stdin_target);
}

TEST_CASE("docs/PROTOCOL.md has the frames of messages.def, and no others", "[messages]") {
#define DTRUN_FRAME(name, number, from_to, meaning) \
    "| " #number " | " #name " | " from_to " | " meaning " |",
#define DTRUN_MESSAGE(name, number, Message, secrecy, from_to, meaning) \
    DTRUN_FRAME(name, number, from_to, meaning)
    const std::vector<std::string> listed{
#include "rendezvous/wire/messages.def"
    };
    CHECK(documented("| type | name |") == listed);
}

// Of messages between what may be of different builds: docs/VERSIONS.md.
TEST_CASE("messages have all fields that version 3 of the protocol has", "[messages]") {
    std::map<std::string, std::map<std::string, std::string_view>> today;
#define DTRUN_FRAME(...)
#define DTRUN_MESSAGE(name, number, Message, ...) today[#name] = fields_of(Message{});
#include "rendezvous/wire/messages.def"
    std::ifstream file(DTRUN_SOURCE_DIR "/tests/rendezvous/protocol_3.txt");
    int lines = 0;
    for (std::string line; std::getline(file, line); ++lines) {
        std::istringstream words(line);
        std::string message;
        words >> message;
        for (std::string word; words >> word;) {
            CAPTURE(message, word);
            const std::size_t colon = word.find(':');
            const auto field = today[message].find(word.substr(0, colon));
            REQUIRE(field != today[message].end());
            const std::string was = word.substr(colon + 1);
            CHECK((was == field->second || was == "nil" || field->second == "nil"));
        }
    }
    CHECK(lines > 30);
}

TEST_CASE("docs/PROTOCOL.md has the operations of operations.def, and no others", "[messages]") {
#define DTRUN_OPERATION(name, number, function, effect, arguments) "| " #number " | " #name " |",
    const std::vector<std::string> listed{
#include "rendezvous/wire/operations.def"
    };
    std::vector<std::string> rows = documented("| op | name |");
    REQUIRE(rows.size() == listed.size());
    for (std::size_t i = 0; i < rows.size(); ++i) CHECK(rows[i].starts_with(listed[i]));
}

TEST_CASE("C, C++ and Python have the function of each operation", "[messages]") {
    std::vector<std::string> functions;
#define DTRUN_OPERATION(name, number, function, effect, arguments) \
    if (std::string_view(function) != "store") functions.push_back(function);
#include "rendezvous/wire/operations.def"
    for (const char* const file :
         {"include/dtrun.h", "include/dtrun/worker.h", "python/dtrun/_store.py"}) {
        std::ifstream in(std::string(DTRUN_SOURCE_DIR "/worker/") + file);
        const std::string text(std::istreambuf_iterator<char>(in), {});
        for (const std::string& function : functions) {
            CAPTURE(file, function);
            CHECK(text.find("dtrun_" + function + "(") != text.npos);
        }
    }
}

TEST_CASE("encoding a message leaves its secret in the frame alone", "[messages]") {
    AgentConfig config;
    config.secret = "a secret of thirty-two bytes, ok";
    config.argv.assign(300, "an argument that makes the frame grow");
    config.env.assign(300, {"NAME", "value"});
    STATIC_REQUIRE(MessageTraits<AgentConfig>::kSecrecy == Secrecy::secret);
    found_in_freed_memory = 0;
    watched = config.secret;
    const Bytes frame = encode(config);
    watched = {};
    CHECK(found_in_freed_memory == 0);
    CHECK(frame.find(config.secret) != frame.npos);
}

TEST_CASE("an assignment keeps every rank's place", "[messages]") {
    Assign sent;
    sent.generation = 1ull << 40;
    sent.world_size = 16;
    sent.ranks = {{Rank{4}, 0, 1, 4, 0}, {Rank{5}, 1, 1, 4, 7}};
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
    CHECK_FALSE(decode<AgentConfig>(port([](PackWriter& w) { w.uint(65'536); })).has_value());
    CHECK_FALSE(decode<AgentConfig>(port([](PackWriter& w) { w.str("22"); })).has_value());
    const Bytes good = port([](PackWriter& w) { w.uint(22); });
    CHECK(decode<AgentConfig>(good).has_value());
    CHECK_FALSE(decode<AgentConfig>(good + "x").has_value());
    CHECK_FALSE(decode<AgentConfig>(good.substr(0, good.size() - 1)).has_value());
}

TEST_CASE("an output header goes through the wire, and one that lies is refused", "[messages]") {
    const OutputHeader sent{SlotIndex{70'000}, Stream::err, 1'700'000'000'123'456'789};
    const auto head = encode_output_header(sent, 5);
    const std::string frame = std::string(head.data(), head.size()) + "hello";
    const auto got = decode_output(std::string_view(frame).substr(FrameHeader::kBytes));
    REQUIRE(got.has_value());
    CHECK(got->header.place == sent.place);
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
