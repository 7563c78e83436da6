#include "launcher/output/line_prefix.h"
#include "rendezvous/wire/output_messages.h"
#include "tests/launcher/output_support.h"

#include <cstdlib>
#include <ctime>

using namespace dtrun;
using namespace dtrun::output;

namespace {

/// What a prefixer writes, read back from the queue's buffers.
class Drained {
public:
    Drained() : queue_(BufferQueue::Options{.buffer_bytes = 64}) {}
    void add(LinePrefixer& lines, std::string_view bytes, std::string_view stamp = "") {
        BufferQueue::Filler out(queue_);
        lines.add(bytes, stamp, out);
    }
    void finish(LinePrefixer& lines) {
        BufferQueue::Filler out(queue_);
        lines.finish(out);
    }
    std::string text() {
        std::vector<BufferQueue::Buffer> batch;
        queue_.poke();
        CHECK(queue_.take(batch));
        for (BufferQueue::Buffer& buffer : batch) {
            text_.append(buffer.data.get(), buffer.size);
            queue_.release(buffer);
            queue_.recycle(std::move(buffer));
        }
        return text_;
    }

private:
    BufferQueue queue_;
    std::string text_;
};

void set_zone(const char* zone) {
    ::setenv("TZ", zone, 1);
    ::tzset();
}

}  // namespace

TEST_CASE("Lines come out the same whatever the chunks are", "[output]") {
    Dice dice;
    INFO("DTRUN_SEED=" << dice.seed());
    for (int round = 0; round < 300; round++) {
        const std::string prefix = round % 2 == 0 ? fmt::format("[{}]: ", dice.upto(2000)) : "";
        PartBudget budget{1 + dice.upto(round % 3 == 0 ? 300 : 10), 1u << 20};
        LinePrefixer lines({prefix}, budget);
        const std::string bytes = dice.bytes(dice.upto(2000));
        Drained written;
        for (const auto piece : dice.split(bytes, 1 + dice.upto(round % 5 == 0 ? 3 : 500)))
            written.add(lines, piece);
        written.finish(lines);
        REQUIRE(written.text() == shown(prefix, bytes, budget.line_max));
        REQUIRE(budget.used == 0);
    }
}

TEST_CASE("A carriage return ends a line, together with the newline after it", "[output]") {
    PartBudget budget{1000, 1000};
    LinePrefixer lines({"> "}, budget);
    Drained written;
    written.add(lines, "10%\r20%\rdone\r");
    CHECK(written.text() == "> 10%\r> 20%\r");  // the newline may follow in the next chunk
    written.add(lines, "\n");
    CHECK(written.text() == "> 10%\r> 20%\r> done\r\n");
    written.add(lines, "a\r");
    written.add(lines, "b\n");
    written.add(lines, "c\r");
    written.finish(lines);
    CHECK(written.text() == "> 10%\r> 20%\r> done\r\n> a\r> b\n> c\r");
}

TEST_CASE("An unfinished line waits, and gets an end of its own only with a prefix", "[output]") {
    PartBudget budget{1000, 1000};
    for (const std::string prefix : {"> ", ""}) {
        LinePrefixer lines({prefix}, budget);
        Drained written;
        written.add(lines, "one\ntw");
        CHECK(written.text() == prefix + "one\n");
        written.add(lines, "o");
        written.finish(lines);
        CHECK(written.text() == prefix + "one\n" + prefix + "two" + (prefix.empty() ? "" : "\n"));
        written.finish(lines);
        CHECK(written.text() == prefix + "one\n" + prefix + "two" + (prefix.empty() ? "" : "\n"));
    }
}

TEST_CASE("A line without end takes no more memory than a line may", "[output]") {
    PartBudget budget{1000, 1u << 20};
    LinePrefixer lines({"> "}, budget);
    Drained written;
    std::size_t most = 0;
    for (int i = 0; i < 10'000; i++) {
        written.add(lines, "0123456789012345678901234567890123456789");
        most = std::max(most, budget.used);
    }
    CHECK(most == 1002);
    written.finish(lines);
    const std::string text = written.text();
    CHECK(std::ranges::count(text, '\n') == 400);
    CHECK(text.size() == 400 * 1003);
}

TEST_CASE("All unfinished lines together keep to their limit", "[output]") {
    PartBudget budget{1000, 2000};
    std::vector<LinePrefixer> lines;
    for (int rank = 0; rank < 50; rank++) lines.emplace_back(LineStart{"> "}, budget);
    Drained written;
    for (int i = 0; i < 8; i++) {
        for (LinePrefixer& each : lines) {
            written.add(each, std::string(100, 'x'));
            REQUIRE(budget.used <= 2000);
        }
    }
    for (LinePrefixer& each : lines) written.finish(each);
    const std::string text = written.text();
    CHECK(std::ranges::count(text, 'x') == 50 * 800);
    for (const std::string& line : lines_of(text)) {
        REQUIRE(line.starts_with("> x"));
        REQUIRE(line.ends_with("x\n"));
    }
}

TEST_CASE("A line has the time at which its first bytes came", "[output]") {
    set_zone("UTC");
    Timestamp timestamp;
    PartBudget budget{1000, 1000};
    LinePrefixer lines(Tag::rank.timed().start("3", "s2", Stream::out), budget);
    Drained written;
    constexpr std::int64_t kTime = 1'795'255'872'345'999'999;
    written.add(lines, "a\nb", timestamp.text(kTime));
    written.add(lines, "c\nd\n", timestamp.text(kTime + 1'000'000));
    CHECK(written.text() ==
          "2026-11-21T10:11:12.345 [3] a\n"
          "2026-11-21T10:11:12.345 [3] bc\n"
          "2026-11-21T10:11:12.346 [3] d\n");
}

TEST_CASE("Timestamps are local, whatever order they come in", "[output]") {
    set_zone("XYZ-05:30");
    Timestamp timestamp;
    CHECK(timestamp.text(0) == "1970-01-01T05:30:00.000");
    CHECK(timestamp.text(1'999'000'000) == "1970-01-01T05:30:01.999");
    CHECK(timestamp.text(1'000'000'000) == "1970-01-01T05:30:01.000");
    CHECK(timestamp.text(-1) == "1970-01-01T05:29:59.999");
    set_zone("UTC");
}
