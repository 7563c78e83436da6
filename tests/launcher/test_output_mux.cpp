#include "rendezvous/wire/output_messages.h"
#include "tests/launcher/output_support.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <thread>

using namespace dtrun;

namespace {

OutputOptions on(const MemoryFile& out, const MemoryFile& err, Tag tag = Tag::horovod) {
    OutputOptions options;
    options.stdout_fd = out.fd();
    options.stderr_fd = err.fd();
    options.tag = tag;
    return options;
}

/// Reads slowly at first, so that everything before it has to wait.
std::string read_late(int fd) {
    std::string text;
    std::string part(256u << 10, '\0');
    for (ssize_t n; (n = ::read(fd, part.data(), text.empty() ? 1 : part.size())) > 0;) {
        if (text.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
        text.append(part, 0, static_cast<std::size_t>(n));
    }
    return text;
}

}  // namespace

TEST_CASE("Streams of many ranks keep their lines whole and their order", "[output]") {
    constexpr int kRanks = 5;
    Dice dice;
    INFO("DTRUN_SEED=" << dice.seed());
    const MemoryFile file;
    MuxUser mux(on(file, file), std::vector<std::string>(kRanks, "s1"));
    std::array<std::string, kRanks * 2> sent;
    std::vector<std::vector<std::string_view>> pieces;
    for (std::string& each : sent) {
        each = dice.bytes(20'000);
        pieces.push_back(dice.split(each, 400));
    }
    for (std::size_t i = 0; i < 20'000; i++) {
        for (std::size_t stream = 0; stream < sent.size(); stream++)
            if (i < pieces[stream].size())
                mux->add(rank_of(stream), stream_of(stream), 0, pieces[stream][i]);
    }
    for (std::size_t stream = 0; stream < sent.size(); stream++)
        mux->finish(rank_of(stream), stream_of(stream));
    REQUIRE(mux.drain());
    CHECK(mux.failures.empty());

    std::map<std::string, std::string> shown_of;  // by prefix
    for (const std::string& line : lines_of(file.text()))
        shown_of[line.substr(0, line.find(':') + 1)] += line;
    REQUIRE(shown_of.size() == sent.size());
    for (std::size_t stream = 0; stream < sent.size(); stream++) {
        const std::string prefix =
            fmt::format("[{}]<{}>:", stream / 2, stream % 2 == 0 ? "stdout" : "stderr");
        REQUIRE(shown_of[prefix] == shown(prefix, sent[stream], 1u << 20));
        REQUIRE(mux.credited(rank_of(stream), stream_of(stream)) == sent[stream].size());
        REQUIRE(mux->bytes(rank_of(stream), stream_of(stream)) == sent[stream].size());
    }
}

TEST_CASE("Standard output and standard error are kept apart", "[output]") {
    const MemoryFile out;
    const MemoryFile err;
    MuxUser mux(on(out, err, Tag::rank_host), {"s1", "s2"});
    mux->add(r1, Stream::out, 0, "to out\n");
    mux->add(r0, Stream::err, 0, "to err\n");
    mux->message("dtrun: a message\n");
    REQUIRE(mux.drain());
    CHECK(out.text() == "[1@s2] to out\n");
    CHECK(err.text() == "[0@s1] to err\ndtrun: a message\n");
}

TEST_CASE("One rank without a tag passes as it comes", "[output]") {
    const MemoryFile out;
    MuxUser mux(on(out, out, Tag::none), {"s1"});
    mux->add(r0, Stream::out, 0, "Your name? ");
    REQUIRE(mux.drain());
    CHECK(out.text() == "Your name? ");
    mux->finish(r0, Stream::out);
    mux->stop(soon());
    CHECK(out.text() == "Your name? ");
}

TEST_CASE("Several ranks without a tag have whole lines and nothing added", "[output]") {
    const MemoryFile out;
    MuxUser mux(on(out, out, Tag::none), {"s1", "s1"});
    mux->add(r0, Stream::out, 0, "one");
    mux->add(r1, Stream::out, 0, "other\n");
    mux->add(r0, Stream::out, 0, " line\nno end");
    REQUIRE(mux.drain());
    CHECK(out.text() == "other\none line\n");
    mux->finish(r0, Stream::out);
    mux->stop(soon());
    CHECK(out.text() == "other\none line\nno end");
}

TEST_CASE("A quiet rank is silent on the console, but keeps its last words", "[output]") {
    const MemoryFile out;
    auto options = on(out, out);
    options.console = {true, false};
    MuxUser mux(options, {"s1", "s1", "s1"});
    for (const int rank : {0, 1, 2}) mux->add(planned(rank), Stream::err, 0, "text");
    for (const int rank : {0, 1, 2}) mux->finish(planned(rank), Stream::err);
    REQUIRE(mux.drain());
    CHECK(out.text() == "[0]<stderr>:text\n[2]<stderr>:text\n");
    CHECK(mux->tail(r1) == std::vector<std::string>{"text"});
    CHECK(mux.credited(r1, Stream::err) == 4);
}

TEST_CASE("Timestamps stand before the tag, also with one rank and no tag", "[output]") {
    const MemoryFile out;
    auto options = on(out, out, GENERATE(Tag::none, Tag::rank));
    options.timestamps = true;
    MuxUser mux(options, {"s1"});
    mux->add(r0, Stream::out, 1'000'000'000, "text\n");
    REQUIRE(mux.drain());
    const std::string rest = options.tag == Tag::none ? " text\n" : " [0] text\n";
    CHECK(out.text() ==
          std::string("1970-01-01T00:00:01.000").replace(0, 19, out.text(), 0, 19) + rest);
}

TEST_CASE("Bytes are credited when they have left, each once", "[output]") {
    auto pipe = make_pipe();
    REQUIRE(pipe.has_value());
    const MemoryFile err;
    auto options = on(err, err);
    options.stdout_fd = pipe->write.get();
    options.pending_bytes_max = 1u << 20;
    MuxUser mux(options, {"s1", "s1"});
    const std::string chunk = std::string(99, 'x') + '\n';
    constexpr std::size_t kChunks = 200'000;
    for (std::size_t i = 0; i < kChunks; i++) mux->add(i % 2 == 0 ? r0 : r1, Stream::out, 0, chunk);
    mux->add(r1, Stream::out, 0, "end");
    mux->finish(r1, Stream::out);
    CHECK_FALSE(mux.drain(after(std::chrono::milliseconds(50))));
    CHECK(mux.credited(r0, Stream::out) < kChunks * 50);

    std::string received;
    std::thread reader([&] { received = read_late(pipe->read.get()); });
    CHECK(mux.drain());
    mux->stop(soon());
    mux.collect();
    pipe->write.reset();
    reader.join();
    CHECK(mux.credited(r0, Stream::out) == kChunks * 50);
    CHECK(mux.credited(r1, Stream::out) == kChunks * 50 + 3);
    CHECK(received.size() == kChunks * (100 + 12) + 12 + 4);
    CHECK(received.ends_with("x\n[1]<stdout>:end\n"));
    CHECK(mux.failures.empty());
}

TEST_CASE("Prefixes that outweigh the lines stay within the limit of memory", "[output]") {
    auto pipe = make_pipe();
    REQUIRE(pipe.has_value());
    const MemoryFile err;
    auto options = on(err, err);
    options.stdout_fd = pipe->write.get();
    options.pending_bytes_max = 64u << 10;
    MuxUser mux(options, {"s1"});
    constexpr std::size_t kLines = 1'000'000;
    mux->add(r0, Stream::out, 0, std::string(kLines, '\n'));
    std::string received;
    std::thread reader([&] { received = read_late(pipe->read.get()); });
    mux->stop(soon());  // also shows what had to wait
    mux.collect();
    pipe->write.reset();
    reader.join();
    CHECK(received.size() == kLines * 13);
    CHECK(mux.credited(r0, Stream::out) == kLines);
}

TEST_CASE("A console without reader neither hangs stop() nor keeps credit", "[output]") {
    auto pipe = make_pipe();
    REQUIRE(pipe.has_value());
    const MemoryFile err;
    auto options = on(err, err);
    options.stdout_fd = pipe->write.get();
    options.pending_bytes_max = 64u << 10;
    MuxUser mux(options, {"s1"});
    const std::string bytes(8u << 20, '\n');
    mux->add(r0, Stream::out, 0, bytes);
    mux->add(r0, Stream::err, 0, "the reason\n");
    const auto begin = Clock::now();
    mux->stop(after(std::chrono::milliseconds(50)));
    CHECK(Clock::now() - begin < std::chrono::seconds(10));
    mux.collect();
    CHECK(mux.credited(r0, Stream::out) == bytes.size());
    REQUIRE(mux.failures.size() == 1);
    CHECK(mux.failures[0].code == Errc::timed_out);
    CHECK(err.text() == "[0]<stderr>:the reason\n");
}

TEST_CASE("A closed console is reported once and the job's bytes flow on", "[output]") {
    auto pipe = make_pipe();
    REQUIRE(pipe.has_value());
    pipe->read.reset();
    const MemoryFile err;
    auto options = on(err, err);
    options.stdout_fd = pipe->write.get();
    MuxUser mux(options, {"s1", "s1"});
    for (int i = 0; i < 3; i++) {
        mux->add(r0, Stream::out, 0, "text\n");
        mux->add(r1, Stream::err, 0, "text\n");
        REQUIRE(mux.drain());
    }
    REQUIRE(mux.failures.size() == 1);
    CHECK(mux.failures[0].code == Errc::closed);
    CHECK(mux.credited(r0, Stream::out) == 15);
    CHECK(lines_of(err.text()).size() == 3);
}

TEST_CASE("Messages from any thread stay whole among the ranks' lines", "[output]") {
    const MemoryFile file;
    MuxUser mux(on(file, file, Tag::rank), {"s1", "s1"});
    std::thread other([&] {
        for (int i = 0; i < 500; i++) mux->message("dtrun: message\n");
    });
    for (int i = 0; i < 500; i++) mux->add(i % 2 == 0 ? r0 : r1, Stream::out, 0, "text\nte");
    other.join();
    REQUIRE(mux.drain());
    const auto lines = lines_of(file.text());
    CHECK(std::ranges::count(lines, "dtrun: message\n") == 500);
    CHECK(std::ranges::count_if(lines, [](const std::string& line) {
              return line == "[0] text\n" || line == "[0] tetext\n" || line == "[1] text\n" ||
                     line == "[1] tetext\n";
          }) == 500);
    CHECK(lines.size() == 1000);
}

TEST_CASE("A prefix of a stream's own stands in place of the tag's", "[output]") {
    const MemoryFile out, err;
    OutputOptions options = on(out, err, Tag::none);
    options.shows.resize(4);
    options.shows[stream_index(r0, Stream::out)].prefix = "[default0]:";
    options.shows[stream_index(r1, Stream::err)].prefix = "<${rank}|${rank}> ";
    MuxUser mux(options, {"s1", "s2"});
    mux->set_numbers(plan::RankNumbers({Rank{7}, Rank{8}}));
    for (int rank = 0; rank < 2; rank++)
        for (const Stream stream : {Stream::out, Stream::err})
            mux->add(planned(rank), stream, 0, "a\nb\n");
    REQUIRE(mux.drain());
    CHECK(out.text() == "[default0]:a\n[default0]:b\na\nb\n");
    CHECK(err.text() == "a\nb\n<8|8> a\n<8|8> b\n");
}

TEST_CASE("One rank with a prefix of its own has whole lines", "[output]") {
    const MemoryFile out, err;
    OutputOptions options = on(out, err, Tag::none);
    options.shows.resize(2);
    options.shows[0].prefix = "> ";
    MuxUser mux(options, {"s1"});
    mux->add(r0, Stream::out, 0, "half");
    REQUIRE(mux.drain());
    mux->finish(r0, Stream::out);
    REQUIRE(mux.drain());
    CHECK(out.text() == "> half\n");
}

TEST_CASE("A report begins a line of its own, also where a rank has not ended its last",
          "[output][report]") {
    const auto ranks = GENERATE(as<std::size_t>(), 1, 2);  // as they come, and line by line
    const MemoryFile out;
    MuxUser mux(on(out, out, Tag::none), std::vector<std::string>(ranks, "s1"));
    mux->add(r0, Stream::out, 0, "line\nno end");
    mux->finish(r0, Stream::out);
    mux->report({"on a terminal\n", "dtrun: rank 0 failed\n"});
    mux->report({"on a terminal\n", "dtrun: once more\n"});
    REQUIRE(mux.drain());
    CHECK(out.text() == "line\nno end\ndtrun: rank 0 failed\ndtrun: once more\n");
    CHECK_FALSE(mux->is_on_screen(r0, 1));
}

TEST_CASE("Folded, a traceback of several ranks is shown once, and each keeps its last lines",
          "[output][fold]") {
    const std::string frames =
        "Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\n";
    const MemoryFile out;
    auto options = on(out, out, Tag::rank);
    options.fold = true;
    MuxUser mux(options, {"s1", "s1", "s1", "s1"});
    for (const int rank : {2, 0, 3}) {
        mux->add(planned(rank), Stream::err, 0, "epoch 1\n" + frames);
        mux->add(planned(rank), Stream::err, 0, "ValueError: boom\nbye");
    }
    for (const int rank : {0, 1, 2, 3}) mux->finish(planned(rank), Stream::err);
    REQUIRE(mux.drain());
    CHECK(out.text() ==
          "[0, 2-3] epoch 1\n"
          "[2] Traceback (most recent call last):\n"
          "[2]   File \"t.py\", line 1, in <module>\n"
          "[2] ValueError: boom\n"
          "[0, 3] Traceback as of rank 2 above: ValueError: boom\n"
          "[0, 2-3] bye\n");
    CHECK(mux->tail(r0).size() == 5);
    CHECK(mux.credited(r0, Stream::err) == frames.size() + 28);
}
