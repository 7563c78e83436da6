#include "launcher/output/line_tail.h"
#include "tests/launcher/output_support.h"

using namespace dtrun;
using namespace dtrun::output;
using Lines = std::vector<std::string>;

namespace {

/// Line by line as a terminal would, byte by byte.
Lines last_lines(std::string_view bytes) {
    Lines all(1);
    bool after_cr = false;
    for (const char byte : bytes) {
        if (byte == '\n') all.emplace_back();
        if (byte != '\n' && byte != '\r') {
            if (after_cr) all.back().clear();
            all.back() += byte;
        }
        after_cr = byte == '\r' || (after_cr && byte == '\r');
    }
    if (all.back().empty()) all.pop_back();
    if (all.size() > LineTail::kLinesMax) all.erase(all.begin(), all.end() - LineTail::kLinesMax);
    return all;
}

}  // namespace

TEST_CASE("A tail keeps the last lines whatever the chunks are", "[output]") {
    Dice dice;
    INFO("DTRUN_SEED=" << dice.seed());
    for (int round = 0; round < 300; round++) {
        const std::string bytes = dice.bytes(dice.upto(1000));
        LineTail tail;
        for (const auto piece : dice.split(bytes, 1 + dice.upto(round % 2 == 0 ? 5 : 600)))
            tail.add(piece);
        REQUIRE(tail.lines() == last_lines(bytes));
    }
}

TEST_CASE("A tail shows of a progress bar what was left on the screen", "[output]") {
    LineTail tail;
    tail.add("begin\r\n10%\r20%\r");
    CHECK(tail.lines() == Lines{"begin", "20%"});
    tail.add("\nTraceback");
    CHECK(tail.lines() == Lines{"begin", "20%", "Traceback"});
}

TEST_CASE("A tail keeps the beginning of an endless line", "[output]") {
    LineTail tail;
    for (int i = 0; i < 1000; i++) tail.add(std::string(100, static_cast<char>('a' + i % 26)));
    tail.add("\nlast");
    REQUIRE(tail.lines().size() == 2);
    CHECK(tail.lines()[0].size() == LineTail::kLineBytesMax);
    CHECK(tail.lines()[0].starts_with("aaa"));
    CHECK(tail.lines()[1] == "last");
}
