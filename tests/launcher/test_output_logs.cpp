// Forms of tags, colours, equal lines, the log of everything, and files that are set aside.
#include "launcher/output/line_deduplicator.h"
#include "launcher/output/line_prefix.h"
#include "rendezvous/wire/output_messages.h"
#include "tests/launcher/output_support.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <set>

using namespace dtrun;
using namespace dtrun::output;
namespace fs = std::filesystem;

namespace {

std::string text_of(const Tag& tag) {
    return tag.start("3", "s2", Stream::err).text;
}

std::string error_of(std::string_view form) {
    const auto tag = Tag::parse(form);
    REQUIRE_FALSE(tag.has_value());
    return tag.error().message;
}

/// What a folder shows, each line behind the streams that have printed it: "0,2,4 text".
std::string shown_by(LineDeduplicator& folder, Clock::time_point now) {
    std::string text;
    while (const auto line = folder.take(now))
        text += fmt::format("{} {}", fmt::join(line->streams, ","), line->text);
    return text;
}

constexpr std::size_t out_of(std::size_t rank) {
    return rank * 2;
}

OutputOptions on(const MemoryFile& file) {
    OutputOptions options;
    options.stdout_fd = options.stderr_fd = file.fd();
    options.tag = Tag::rank;
    return options;
}

std::string content(const std::string& path) {
    return read_file(path).value_or("");
}

std::string without_times(const std::string& log) {
    std::string text;
    for (const std::string& line : lines_of(log))
        text += line.starts_with("20") || line.starts_with("19") ? line.substr(24) : line;
    return text;
}

}  // namespace

TEST_CASE("Each tag has its form", "[output]") {
    CHECK(text_of(Tag::none).empty());
    CHECK(text_of(Tag::rank) == "[3] ");
    CHECK(text_of(Tag::host) == "[s2] ");
    CHECK(text_of(Tag::rank_host) == "[3@s2] ");
    CHECK(text_of(Tag::horovod) == "[3]<stderr>:");
    CHECK(*Tag::parse("rank-host") == Tag::rank_host);
    CHECK(text_of(*Tag::parse("{host}:{rank}")) == "s2:3 ");
    CHECK(text_of(*Tag::parse("{{{stream}}} ")) == "{stderr} ");
    const LineStart timed = Tag::parse("{host} {time}|")->start("3", "s2", Stream::out);
    CHECK(timed.text == "s2 " + std::string(23, ' ') + "| ");
    CHECK(timed.times == std::vector<std::size_t>{3});
    CHECK(Tag::parse("{time} x{rank}")->timed() == *Tag::parse("{time} x{rank}"));
    CHECK(Tag::rank.timed().start("3", "", Stream::out).times == std::vector<std::size_t>{0});
}

TEST_CASE("A form that cannot be read is an error that says why", "[output]") {
    CHECK(error_of("ranks").find("is not one of none, rank, host, rank-host and horovod") !=
          std::string::npos);
    CHECK(error_of("{job}") ==
          "'{job}': there is no {job}; there are {rank}, {host}, {stream} and {time}");
    CHECK(error_of("{rank").ends_with("has a { without a }"));
    CHECK(error_of("{rank}}").ends_with("has a } without a {"));
    CHECK(error_of("{rank}\n").ends_with("has a control character"));
}

TEST_CASE("A tag in the colour of its rank keeps its time", "[output]") {
    LineStart start = Tag::rank.timed().start("3", "s2", Stream::out);
    const std::size_t plain = start.text.size();
    color(start, Rank{0});
    REQUIRE(start.times.size() == 1);
    CHECK(start.text.substr(0, start.times[0]) == "\x1b[36m");
    CHECK(start.text.size() == plain + 9);
    LineStart nothing;
    color(nothing, Rank{0});
    CHECK(nothing.text.empty());
    const MemoryFile file;
    auto options = on(file);
    options.color = GENERATE(Color::always, Color::on_terminals, Color::never);
    MuxUser mux(options, {"s1", "s1"});
    mux->add(r1, Stream::out, 0, "text\n");
    REQUIRE(mux.drain());
    CHECK(file.text() ==
          (options.color == Color::always ? "\x1b[33m[1] \x1b[0mtext\n" : "[1] text\n"));
}

TEST_CASE("Equal lines of several ranks are one, and none waits longer than it may", "[output]") {
    LineDeduplicator folder({.wait = std::chrono::milliseconds(100)});
    for (std::size_t rank = 0; rank < 3; ++rank) folder.add_stream(out_of(rank));
    const Clock::time_point start = Clock::now();
    CHECK_FALSE(folder.due());
    folder.add(out_of(0), 7, "loaded\n", start);
    folder.add(out_of(1), 8, "loaded\n", start + std::chrono::milliseconds(50));
    CHECK(folder.due() == start + std::chrono::milliseconds(100));
    CHECK(shown_by(folder, start + std::chrono::milliseconds(99)).empty());
    CHECK(shown_by(folder, start + std::chrono::milliseconds(100)) == "0,2 loaded\n");
    CHECK(folder.empty());
    for (std::size_t rank = 0; rank < 3; ++rank) folder.add(out_of(rank), 9, "all\n", start);
    CHECK(shown_by(folder, start) == "0,2,4 all\n");  // who has it all waits for nobody
}

TEST_CASE("A line that a rank prints twice is shown twice, and what comes after it stays there",
          "[output]") {
    LineDeduplicator folder({});
    const Clock::time_point now = Clock::now();
    for (const char* const line : {"a\n", "a\n", "b\n"}) folder.add(out_of(0), 0, line, now);
    for (const char* const line : {"a\n", "b\n", "a\n"}) folder.add(out_of(1), 0, line, now);
    folder.add(out_of(1) + 1, 0, "b\n", now);  // of standard error
    CHECK(shown_by(folder, now + std::chrono::seconds(1)) == "0,2 a\n0 a\n0,2 b\n2 a\n3 b\n");
}

TEST_CASE("Folded lines keep the order of each rank and lose none, whatever comes when",
          "[output]") {
    Dice dice;
    INFO("DTRUN_SEED=" << dice.seed());
    for (int round = 0; round < 200; ++round) {
        const std::size_t ranks = 1 + dice.upto(6);
        LineDeduplicator folder(
            {.wait = std::chrono::milliseconds(100), .bytes_max = dice.upto(40)});
        std::vector<std::string> sent(ranks), shown(ranks);
        for (std::size_t rank = 0; rank < ranks; ++rank) folder.add_stream(out_of(rank));
        Clock::time_point now{};
        const auto take = [&](std::optional<RepeatedLine> line) {
            std::set<std::size_t> streams(line->streams.begin(), line->streams.end());
            REQUIRE(streams.size() == line->streams.size());
            for (const std::size_t stream : streams) shown[stream / 2] += line->text;
        };
        for (int i = 0; i < 200; ++i) {
            const std::size_t rank = dice.upto(ranks - 1);
            const std::string line = fmt::format("{}\n", dice.upto(3));
            sent[rank] += line;
            folder.add(out_of(rank), 0, line, now);
            now += std::chrono::milliseconds(dice.upto(30));
            while (auto due = folder.take(now)) take(std::move(due));
            if (const auto due = folder.due()) REQUIRE(*due > now);
        }
        while (auto rest = folder.take()) take(std::move(rest));
        REQUIRE(shown == sent);
    }
}

TEST_CASE("A cutter gives the lines of a stream, whatever its chunks are", "[output]") {
    Dice dice;
    INFO("DTRUN_SEED=" << dice.seed());
    for (int round = 0; round < 300; ++round) {
        const std::size_t line_max = 1 + dice.upto(300);
        const std::string bytes = dice.bytes(dice.upto(2000));
        PartBudget budget{line_max, 1u << 20};
        LineCutter cutter(budget);
        std::vector<std::string> lines;
        const auto keep = [&](std::string line) { lines.push_back(std::move(line)); };
        for (const auto piece : dice.split(bytes, 1 + dice.upto(500))) cutter.add(piece, keep);
        cutter.finish(keep);
        std::string text;
        for (const std::string& line : lines) {
            REQUIRE(lines_of(line).size() == 1);
            text += "> " + line;
        }
        REQUIRE(text == shown("> ", bytes, line_max));
        REQUIRE(budget.used == 0);
    }
}

TEST_CASE("The tag of a folded line names all its ranks and hosts", "[output]") {
    const MemoryFile file;
    auto options = on(file);
    options.fold = true;
    options.tag = Tag::rank_host;
    MuxUser mux(options, {"n1", "n1", "n2", "n3"});
    for (const int rank : {3, 0, 1, 2}) mux->add(planned(rank), Stream::out, 0, "loaded\n");
    for (const int rank : {3, 0, 1}) mux->add(planned(rank), Stream::out, 0, "some\nhal");
    CHECK(mux->due());
    CHECK_FALSE(mux->idle());
    mux->finish(r0, Stream::out);
    mux->stop(soon());
    CHECK(file.text() == "[0-3@n[1-3]] loaded\n[0-1, 3@n[1,3]] some\n[0@n1] hal\n");
    mux.collect();
    CHECK(mux.credited(r0, Stream::out) == 15);
    CHECK(mux->idle());
}

TEST_CASE("A hundred thousand equal lines fold as fast as any", "[output]") {
    LineDeduplicator folder({.bytes_max = 1u << 30});
    const Clock::time_point now = Clock::now();
    for (const std::size_t rank : {0u, 1u}) folder.add_stream(out_of(rank));
    for (int i = 0; i < 100'000; ++i) folder.add(out_of(0), 0, "\n", now);
    for (int i = 0; i < 100'000; ++i) folder.add(out_of(1), 0, "\n", now);
    std::size_t lines = 0;
    while (const auto line = folder.take(now)) lines += line->streams.size() == 2;
    CHECK(lines == 100'000);
}

TEST_CASE("Lines keep the number that their rank had when they came", "[output]") {
    const MemoryFile file;
    const TempDir directory;
    auto options = on(file);
    options.fold = GENERATE(true, false);
    options.log = directory.at("all.log");
    MuxUser mux(options, {"s1", "s2", "s3"});
    for (const int rank : {0, 1, 2}) mux->add(planned(rank), Stream::out, 0, "old\npart");
    mux->set_numbers(plan::RankNumbers({Rank{1}, kNoRank, Rank{0}}));
    for (const int rank : {0, 2}) mux->add(planned(rank), Stream::out, 0, "ial\nnew\n");
    mux->finish(r1, Stream::out);
    mux->stop(soon());
    CHECK(file.text().find(fmt::format("{}", kNoRank)) == std::string::npos);
    CHECK(file.text().find("[1] part\n") != std::string::npos);
    const std::string log = without_times(content(options.log));
    for (const char* const line : {"[1@s2 stdout] part\n", "[1@s1 stdout] new\n",
                                   "[0@s3 stdout] new\n", "[0@s1 stdout] old\n"}) {
        CAPTURE(line, log);
        CHECK(log.find(line) != std::string::npos);
    }
}

TEST_CASE("A log whose reader is slow loses nothing, and takes a bounded part of the memory",
          "[output]") {
    const MemoryFile file;
    const TempDir directory;
    const std::string fifo = directory.at("log");
    REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
    const Fd reader(::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    auto options = on(file);
    options.console = {false};
    options.log = fifo;
    MuxUser mux(options, {"s1"});
    std::string lines;
    for (int i = 0; i < 2000; ++i) lines += fmt::format("line {}\n", i);
    constexpr int kTimes = 100;
    for (int i = 0; i < kTimes; ++i) mux->add(r0, Stream::out, 0, lines);
    mux.collect();
    CHECK(mux.credited(r0, Stream::out) < lines.size() * kTimes);
    std::string read;
    std::string part(256u << 10, '\0');
    while (!mux->idle()) {
        mux.collect();
        const ssize_t n = ::read(reader.get(), part.data(), part.size());
        if (n > 0) read.append(part, 0, static_cast<std::size_t>(n));
    }
    for (ssize_t n; (n = ::read(reader.get(), part.data(), part.size())) > 0;)
        read.append(part, 0, static_cast<std::size_t>(n));
    CHECK(mux.failures.empty());
    CHECK(mux.credited(r0, Stream::out) == lines.size() * kTimes);
    CHECK(std::ranges::count(read, '\n') == 2000 * kTimes);
}

TEST_CASE("The log has every line with its time, rank and host, and what dtrun says", "[output]") {
    const TempDir directory;
    const MemoryFile file;
    auto options = on(file);
    options.log = directory.at("all.log");
    options.log_begin = "dtrun: job 1\n";
    options.console = {true, false};  // rank 1 is not shown
    std::ofstream(options.log) << "before\n";
    {
        MuxUser mux(options, {"s1", "s2"});
        mux->add(r0, Stream::out, 1'000'000'000, "one\ntw");
        mux->add(r1, Stream::err, 1'000'000'000, "quiet\n");
        mux->message("dtrun: a\n  b\n");
        mux->add(r0, Stream::out, 1'000'000'000, "o\n");
        mux->add(r1, Stream::err, 1'000'000'000, "rest");
        mux->finish(r1, Stream::err);
        REQUIRE(mux.drain());
        mux->stop(soon());
        CHECK(mux.credited(r1, Stream::err) == 10);
        CHECK(mux.failures.empty());
    }
    CHECK(file.text() == "[0] one\ndtrun: a\n  b\n[0] two\n");
    CHECK(without_times(content(options.log)) ==
          "before\ndtrun: job 1\n[0@s1 stdout] one\n[1@s2 stderr] quiet\ndtrun: a\n  b\n"
          "[0@s1 stdout] two\n[1@s2 stderr] rest\n");
}

TEST_CASE("A log that cannot be written is said once, and keeps nobody waiting", "[output]") {
    const MemoryFile file;
    auto options = on(file);
    options.log = "/dev/full";
    options.rotation.bytes_max = 4;  // a device is not renamed
    MuxUser mux(options, {"s1"});
    for (int i = 0; i < 3; ++i) {
        mux->add(r0, Stream::out, 0, "text\n");
        REQUIRE(mux.drain());
    }
    REQUIRE(mux.failures.size() == 1);
    CHECK(mux.failures[0].message == "/dev/full: No space left on device; it is not complete");
    CHECK(mux.credited(r0, Stream::out) == 15);
    options.log = "/nowhere/all.log";
    const auto made = OutputMux::create(options, {"s1"}, [] {});
    REQUIRE_FALSE(made.has_value());
    CHECK(made.error().message == "--log: /nowhere/all.log: No such file or directory");
}

TEST_CASE("Files that are set aside have every byte, cut at ends of lines", "[output]") {
    Dice dice;
    INFO("DTRUN_SEED=" << dice.seed());
    const TempDir directory;
    const MemoryFile file;
    auto options = on(file);
    options.console = {false, false};
    options.directory = directory.at("D");
    options.log = directory.at("all.log");
    options.files_open_max = 2;
    options.rotation = {.bytes_max = 20'000, .keep = 100};
    fs::create_directories(directory.at("D/rank.0"));
    std::ofstream(directory.at("D/rank.0/stdout.1")) << "of a job before";
    std::string sent[2];
    MuxUser mux(options, {"s1", "s1"});
    for (int i = 0; i < 400; ++i) {
        for (const int rank : {0, 1}) {
            std::string text;
            for (std::size_t lines = dice.upto(20); lines > 0; --lines)
                text.append(dice.upto(150), 'x').append("\n");
            sent[rank] += text;
            mux->add(planned(rank), Stream::out, 0, text);
        }
        if (i % 20 == 0) REQUIRE(mux.drain());
    }
    mux->stop(soon());
    CHECK(mux.failures.empty());
    const auto joined = [](const std::string& path) {
        std::string all = content(path);
        for (int number = 1; fs::exists(fmt::format("{}.{}", path, number)); ++number) {
            const std::string part = content(fmt::format("{}.{}", path, number));
            REQUIRE(part.size() <= 20'000);
            REQUIRE(part.ends_with('\n'));
            all = part + all;
        }
        return all;
    };
    for (const int rank : {0, 1})
        CHECK(joined(directory.at(fmt::format("D/rank.{}/stdout", rank))) == sent[rank]);
    const std::string log = joined(options.log);
    CHECK(std::ranges::count(log, '\n') ==
          std::ranges::count(sent[0], '\n') + std::ranges::count(sent[1], '\n'));
}

TEST_CASE("Only so many files are kept as were asked for, the newest", "[output]") {
    const TempDir directory;
    const MemoryFile file;
    auto options = on(file);
    options.directory = directory.at("D");
    options.rotation = {.bytes_max = 10, .keep = GENERATE(0, 2)};
    MuxUser mux(options, {"s1"});
    for (int i = 0; i < 9; ++i) mux->add(r0, Stream::out, 0, fmt::format("line {}\n", i));
    mux->stop(soon());
    const std::string path = directory.at("D/rank.0/stdout");
    CHECK(content(path) == "line 8\n");
    CHECK(content(path + ".1") == (options.rotation.keep == 0 ? "" : "line 7\n"));
    CHECK(content(path + ".2") == (options.rotation.keep == 0 ? "" : "line 6\n"));
    CHECK_FALSE(fs::exists(path + ".3"));
}

TEST_CASE("A line that is longer than a file may be is cut", "[output]") {
    const Fill fresh, full{10, false}, in_line{10, true}, huge{10 + (1u << 20), true};
    CHECK(part_that_fits("abc\ndef\ngh", fresh, 100) == 10);
    CHECK(part_that_fits("abc\ndef\ngh", fresh, 9) == 8);
    CHECK(part_that_fits("abc\ndef\n", full, 13) == 0);
    CHECK(part_that_fits("abc\ndef\n", fresh, 3) == 3);
    CHECK(part_that_fits("abc\ndef\n", in_line, 10) == 4);  // what the file has begun is not cut
    CHECK(part_that_fits("abcd", in_line, 10) == 4);
    CHECK(part_that_fits("abcd", huge, 10) == 0);
}

TEST_CASE("A log is written through a link of one's own, and through nobody else's", "[output]") {
    const TempDir directory;
    const MemoryFile file;
    const std::string target = directory.write("target", "");
    const std::string link = directory.at("log");
    REQUIRE(::symlink(target.c_str(), link.c_str()) == 0);
    auto options = on(file);
    options.log = link;
    {
        MuxUser mux(options, {"s1"});
        mux->message("a line\n");
        mux->stop(soon());
    }
    CHECK(content(target).ends_with(" a line\n"));
    if (::geteuid() != 0) return skip_case("only root can give it away");
    REQUIRE(::lchown(link.c_str(), 12'345, 0) == 0);
    const auto refused = OutputMux::create(options, {"s1"}, [] {});
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().message ==
          fmt::format("--log: {}: it is another user's link, which could lead anywhere", link));
}
