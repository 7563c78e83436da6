#include "tests/support/catch.h"
#include "tests/worker/stores/tcp_store_bytes.h"
#include "worker/stores/tcp_store_input.h"

#include <algorithm>

namespace dtrun {

using namespace stores;
namespace {

using namespace torch;

/// "op field field", as far as they are there.
std::string describe(const TcpStoreInput& input) {
    std::string made = std::to_string(static_cast<int>(input.request().op));
    for (std::size_t i = 0; i < input.request().fields.size(); ++i)
        made += " " + std::string(input.field(i));
    return made;
}

struct Parsed {
    std::vector<std::string> requests;
    std::string error;
    TorchDialect dialect{};
    std::size_t left = 0;
};

/// \param step  so many bytes come at a time
Parsed parse(std::string_view bytes, std::size_t step, std::function<bool()> idle_sibling = {}) {
    TcpStoreInput input(std::move(idle_sibling));
    Parsed parsed;
    parsed.left = bytes.size();
    while (!bytes.empty() && parsed.error.empty()) {
        const auto room = input.room();
        const std::size_t taken = std::min({bytes.size(), room.size(), step});
        std::ranges::copy(bytes.substr(0, taken), room.begin());
        bytes.remove_prefix(taken);
        input.received(taken);
        for (auto found = input.find();; found = input.find()) {
            if (!found) parsed.error = found.error().message;
            if (!found || !*found) break;
            parsed.requests.push_back(describe(input));
            parsed.left -= input.request_bytes();
            input.consume();
        }
    }
    parsed.dialect = input.dialect();
    return parsed;
}

std::string name(TorchOp op, const std::string& rest = "") {
    return std::to_string(static_cast<int>(op)) + rest;
}

TEST_CASE("requests are found however the stream is cut", "[torch]") {
    const std::string stream = kValidate + op(13) + number<std::uint32_t>(4711) +
                               op(1, {"k", "v"}) + op(2, {"k", "", "new"}) + op(3, {"k"}) +
                               op(4, "n", -3) + list(5, 2, {"a", "b"}) + list(6, 0, {}) + op(7) +
                               op(8, {"k"}) + op(9, {"k", "more"}) + list(10, 1, {"k"}) +
                               list(11, 2, {"a", "1", "b", "2"}) + op(12) + op(14, {"q", "i"}) +
                               op(15, {"q"}) + op(16, {"q"}) + op(17) + op(18, "b", 2);
    const std::vector<std::string> wanted{name(TorchOp::ping),
                                          name(TorchOp::set, " k v"),
                                          name(TorchOp::compare_set, " k  new"),
                                          name(TorchOp::get, " k"),
                                          name(TorchOp::add, " n"),
                                          name(TorchOp::check, " a b"),
                                          name(TorchOp::wait),
                                          name(TorchOp::count),
                                          name(TorchOp::erase, " k"),
                                          name(TorchOp::append, " k more"),
                                          name(TorchOp::multi_get, " k"),
                                          name(TorchOp::multi_set, " a 1 b 2"),
                                          name(TorchOp::cancel_wait),
                                          name(TorchOp::push, " q i"),
                                          name(TorchOp::pop, " q"),
                                          name(TorchOp::length, " q"),
                                          name(TorchOp::list),
                                          name(TorchOp::barrier, " b")};
    for (std::size_t step = 1; step <= stream.size(); ++step) {
        const Parsed parsed = parse(stream, step);
        CAPTURE(step, parsed.error);
        CHECK(parsed.requests == wanted);
        CHECK(parsed.left == 0);
        CHECK(parsed.dialect == TorchDialect::modern);
    }
}

TEST_CASE("what a client says first tells its dialect", "[torch]") {
    const auto dialect = [](const std::string& stream) { return parse(stream, 1).dialect; };
    CHECK(dialect(kValidate + op(4, "init/", 1)) == TorchDialect::modern);
    CHECK(dialect(kMagic + op(3, "init/", 1)) == TorchDialect::magic);
    CHECK(dialect(op(3, "init/", 1)) == TorchDialect::legacy);
    CHECK(dialect(op(0, {"k", "v"})) == TorchDialect::legacy);
    CHECK(dialect(op(7, {"k"})) == TorchDialect::legacy_a);
    CHECK(dialect(op(3, "init/", 1) + op(7, {"k"})) == TorchDialect::legacy_b);
    CHECK(dialect(list(9, 1, {"k"})) == TorchDialect::legacy_b);
    CHECK(dialect(op(3, "init/", 1) + op(8, {"k", "v"})) == TorchDialect::legacy_b);
}

TEST_CASE("legacy's operation 8 is DELETE_KEY where each client has an idle connection",
          "[torch]") {
    const std::string stream = op(3, "init/", 1) + op(8, {"k"});
    bool idle = true;
    const Parsed a = parse(stream, stream.size(), [&] { return idle; });
    CHECK(a.requests ==
          std::vector<std::string>{name(TorchOp::add, " init/"), name(TorchOp::erase, " k")});
    CHECK(a.dialect == TorchDialect::legacy_a);
    idle = false;
    const Parsed undecided = parse(stream, stream.size(), [&] { return idle; });
    CHECK(undecided.requests.size() == 1);
    CHECK(undecided.error.empty());
    // What follows can only be a value.
    const Parsed b = parse(stream + text("v"), 1'000, [] { return true; });
    CHECK(b.requests.back() == name(TorchOp::append, " k v"));
}

TEST_CASE("each length and count is refused as soon as it is known to be too large", "[torch]") {
    const auto error = [](const std::string& stream) { return parse(stream, 3).error; };
    const std::uint64_t huge = 1ull << 62;
    CHECK(error(kValidate + op(1) + number(huge)) ==
          "a key of 4611686018427387904 bytes, more than 65520");
    CHECK(error(kValidate + op(1, {"k"}) + number<std::uint64_t>(kValueBytesMax + 1)) ==
          "a value of 16515073 bytes, more than 16515072");
    CHECK(error(kValidate + op(6) + number(huge)) ==
          "a request with 4611686018427387904 keys, more than 1048576");
    CHECK(error(op(5) + number(huge)) != "");
    const std::string half(9u << 20, 'x');
    CHECK(error(kValidate + op(2, {"k", half}) + number<std::uint64_t>(half.size())) ==
          "a request of more than 16646144 bytes");
    CHECK(error(kValidate + op(1, {"k"}) + number<std::uint64_t>(kValueBytesMax)).empty());
}

TEST_CASE("bytes of somebody else are refused at once", "[torch]") {
    for (const std::string& stream :
         {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("\x16\x03\x01", 3), op(12),
          kValidate + kValidate, kValidate + op(19), kMagic + op(3, "init/", 1) + op(3, "init/", 1),
          kMagic + op(12), op(7, {"k"}) + op(9)}) {
        CAPTURE(stream);
        CHECK_FALSE(parse(stream, 1).error.empty());
    }
}

TEST_CASE("a large MULTI_SET comes in pieces of whole pairs", "[torch]") {
    const std::string large(5u << 20, 'x');
    const std::string stream =
        kValidate + list(11, 4, {"a", large, "b", "small", "c", large, "d", large}) + op(7);
    for (const std::size_t step : {std::size_t{100'000}, stream.size()}) {
        const Parsed parsed = parse(stream, step);
        REQUIRE(parsed.requests.size() == 4);
        CHECK(parsed.requests[0] == name(TorchOp::multi_set, " a " + large + " b small"));
        CHECK(parsed.requests[1] == name(TorchOp::multi_set, " c " + large));
        CHECK(parsed.requests[2] == name(TorchOp::multi_set, " d " + large));
        CHECK(parsed.requests[3] == name(TorchOp::count));
    }
}

}  // namespace
}  // namespace dtrun
