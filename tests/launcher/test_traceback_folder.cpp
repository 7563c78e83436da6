#include "launcher/output/ending_text.h"
#include "launcher/output/screen_lines.h"
#include "launcher/output/traceback_folder.h"
#include "tests/launcher/output_support.h"

#include <fmt/format.h>

namespace dtrun::test_tracebacks {

using namespace output;
using namespace std::chrono_literals;
namespace {

const std::string kFrames =
    "Traceback (most recent call last):\n"
    "  File \"t.py\", line 1, in <module>\n"
    "    import nosuch\n";
const std::string kTraceback = kFrames + "ModuleNotFoundError: No module named 'nosuch'\n";

/// What a console would show, each line behind its rank.
class Screen {
public:
    void add(std::size_t rank, std::string_view bytes) {
        folder_.add(rank, Rank{static_cast<std::uint32_t>(rank)}, bytes, now, emit_);
    }
    void finish(std::size_t rank) { folder_.finish(rank, emit_); }
    void wait(Clock::duration time) {
        now += time;
        folder_.show_due(now, emit_);
    }
    /// All that was shown since the last call, in order.
    std::string shown() { return std::exchange(shown_, {}); }
    std::string of(std::size_t rank) const { return of_.contains(rank) ? of_.at(rank) : ""; }
    TracebackFolder& folder() { return folder_; }

    Clock::time_point now{1h};

private:
    TracebackFolder folder_{{}};
    std::string shown_;
    std::map<std::size_t, std::string> of_;
    TracebackFolder::Emit emit_ = [this](const TracebackFolder::Piece& piece) {
        of_[piece.stream] += piece.bytes;
        for (const std::string& line : lines_of(piece.bytes))
            shown_ += fmt::format("[{}]{}{}", piece.stream, piece.is_repeated ? "= " : " ", line);
    };
};

}  // namespace

TEST_CASE("a traceback of many ranks is shown once, and each rank has a line", "[output][fold]") {
    Screen screen;
    screen.add(0, kTraceback);
    CHECK(screen.of(0) == kTraceback);
    screen.shown();
    screen.wait(3s);
    screen.add(1, kTraceback);
    screen.add(2, kFrames + "ModuleNotFoundError: No module named 'other'\n");
    CHECK(screen.shown() ==
          "[1]= Traceback as of rank 0 above: ModuleNotFoundError: No module named 'nosuch'\n"
          "[2]= Traceback as of rank 0 above: ModuleNotFoundError: No module named 'other'\n");
    CHECK(screen.folder().empty());
}

TEST_CASE("the first traceback and what else is printed are never held back", "[output][fold]") {
    Screen screen;
    std::string so_far;
    for (const std::string& line : lines_of(kTraceback)) {
        screen.add(0, line);
        CHECK(screen.of(0) == (so_far += line));
    }
    screen.add(1, "loss 0.5\nenter a number: ");
    CHECK(screen.of(1) == "loss 0.5\nenter a number: ");
    screen.add(1, "3\n");
    CHECK(screen.of(1) == "loss 0.5\nenter a number: 3\n");
    CHECK(screen.folder().empty());
    CHECK_FALSE(screen.folder().due().has_value());
}

TEST_CASE("a traceback that turns out to be another one is shown whole", "[output][fold]") {
    Screen screen;
    screen.add(0, kTraceback);
    const std::string other = kFrames + "  File \"u.py\", line 2, in f\nValueError: boom\n";
    for (const std::string& line : lines_of(other)) screen.add(1, line);
    CHECK(screen.of(1) == other);
    screen.shown();
    screen.add(2, other);  // and is known from then on
    CHECK(screen.shown() == "[2]= Traceback as of rank 1 above: ValueError: boom\n");
}

TEST_CASE("tracebacks that come at the same time are one", "[output][fold]") {
    Screen screen;
    for (const std::string& line : lines_of(kTraceback))
        for (std::size_t rank = 0; rank < 4; ++rank) screen.add(rank, line);
    CHECK(screen.of(0) == kTraceback);
    for (std::size_t rank = 1; rank < 4; ++rank)
        CHECK(screen.of(rank) ==
              "Traceback as of rank 0 above: ModuleNotFoundError: No module named 'nosuch'\n");
}

TEST_CASE("lines of a traceback are kept for a moment only", "[output][fold]") {
    Screen screen;
    screen.add(0, kTraceback);
    screen.add(1, kFrames);
    CHECK(screen.of(1).empty());
    REQUIRE(screen.folder().due().has_value());
    CHECK(*screen.folder().due() == screen.now + 100ms);
    screen.wait(100ms);
    CHECK(screen.of(1) == kFrames);
    CHECK(screen.folder().empty());
    screen.add(1, "KeyError: 1\nmore\n");
    CHECK(screen.of(1) == kFrames + "KeyError: 1\nmore\n");
    screen.add(2, kFrames + "  Fil");
    CHECK(screen.of(2).empty());
    screen.finish(2);
    CHECK(screen.of(2) == kFrames + "  Fil");
}

TEST_CASE("a traceback of long ago is not above any more, and a rank's own is news",
          "[output][fold]") {
    Screen screen;
    screen.add(0, kTraceback);
    screen.add(0, kTraceback);
    CHECK(screen.of(0) == kTraceback + kTraceback);
    screen.wait(11s);
    screen.add(1, kTraceback);
    CHECK(screen.of(1) == kTraceback);
}

TEST_CASE("a traceback without end takes no more memory than it may", "[output][fold]") {
    Screen screen;
    screen.add(0, kFrames);
    for (int i = 0; i < 10'000; ++i) screen.add(0, "    again()\n");
    screen.add(1, kFrames + std::string(100'000, 'x'));
    CHECK(screen.of(1).size() == kFrames.size() + 100'000);
    CHECK(screen.folder().empty());
}

TEST_CASE("no byte is lost or changes its place, whatever the chunks are", "[output][fold]") {
    Dice dice;
    INFO("DTRUN_SEED=" << dice.seed());
    for (int round = 0; round < 200; ++round) {
        std::string bytes;
        for (int i = 0; i < 20; ++i) {
            const std::string text = dice.upto(1) == 0 ? kTraceback : kFrames;
            bytes += dice.upto(2) == 0 ? text : text.substr(0, dice.upto(text.size()));
            if (dice.upto(1) == 0) bytes += dice.bytes(dice.upto(20));
        }
        Screen screen;
        for (const auto piece : dice.split(bytes, 1 + dice.upto(60))) {
            screen.add(0, piece);
            if (dice.upto(3) == 0) screen.wait(50ms);
        }
        screen.finish(0);
        REQUIRE(screen.of(0) == bytes);  // one stream alone: nothing is folded
        REQUIRE(screen.folder().empty());
    }
}

TEST_CASE("a report stands apart from what ranks have printed", "[output][report]") {
    const Ending ending{"dtrun: rank 1 failed\n  | boom\n", "dtrun: rank 1 failed\n  | long\n"};
    EndingPlace place;
    CHECK(ending_text(ending, place) == ending.elsewhere);  // a file, that may be parsed
    place.is_used = true;
    CHECK(ending_text(ending, place) == ending.elsewhere);
    place.is_within_line = true;
    CHECK(ending_text(ending, place) == "\n" + ending.elsewhere);
    place = {.columns = 80, .is_terminal = true};
    CHECK(ending_text(ending, place) == ending.on_terminal);  // nothing was printed
    place.is_used = true;
    CHECK(ending_text(ending, place) == "\n" + ending.on_terminal);
    place.is_colored = true;
    CHECK(ending_text(ending, place) == "\n\x1b[1;31mdtrun: rank 1 failed\x1b[0m\n  | boom\n");
    place.columns = 16;
    CHECK(ending_text(ending, place) == "\n\x1b[1;31mdtrun: rank 1\n  failed\x1b[0m\n  | boom\n");
    CHECK(ending_text({"dtrun: ended\n", "", false}, {.is_terminal = true, .is_colored = true}) ==
          "\x1b[1mdtrun: ended\x1b[0m\n");
    CHECK(ending_text({}, place).empty());
}

TEST_CASE("whose lines a screen shows last is known", "[output][report]") {
    using Streams = std::vector<std::size_t>;
    ScreenLines lines;
    lines.add(Streams{3}, "a\nb\nc\n", "");
    CHECK(lines.of(3, 80) == 3);
    lines.add(Streams{1}, "x\n", "");
    CHECK(lines.of(3, 80) == 3);
    lines.add(Streams{1}, std::string(ScreenLines::kRows - 3, '\n'), "");
    CHECK(lines.of(3, 80) == 2);
    CHECK(lines.of(1, 80) == ScreenLines::kRows - 2);
    lines.add(Streams{7}, std::string(1000, '\n') + "no end", "");
    CHECK(lines.of(7, 80) == ScreenLines::kRows);
    // What several have printed is shown once.
    lines.add(Streams{1, 2, 3}, "same\nsame\n", "");
    CHECK(lines.of(3, 80) == 2);
    CHECK(lines.of(7, 80) == ScreenLines::kRows - 2);
}

TEST_CASE("a line that the terminal has wrapped takes all of its rows", "[output][report]") {
    using Streams = std::vector<std::size_t>;
    ScreenLines lines;
    for (int i = 0; i < 4; ++i) lines.add(Streams{3}, std::string(79, 'x') + "\n", "");
    CHECK(lines.of(3, 80) == 4);
    CHECK(lines.of(3, 20) == 4);
    CHECK(lines.of(3, 10) == 2);
    CHECK(lines.of(3, 0) == 4);
    lines.add(Streams{5}, std::string(8 * 80, 'x'),
              "[0]<err>:");  // 9 rows with what stands before it
    lines.add(Streams{5}, std::string(7 * 80, 'x') + "\nlast\n", "[0]<err>:");
    CHECK(lines.of(5, 80) == 1);
    CHECK(lines.of(3, 80) == 0);
    CHECK(lines.of(5, 160) == 2);
    CHECK(lines.of(3, 160) == 4);

    CHECK(screen_columns("") == 0);
    CHECK(screen_columns("\x1b[31mred\x1b[0m") == 3);
    CHECK(screen_columns("10%\r100%\r") == 4);
    CHECK(screen_columns("a\tb") == 9);
    CHECK(screen_columns("\u00e9\u4e2d") == 3);
}

}  // namespace dtrun::test_tracebacks
