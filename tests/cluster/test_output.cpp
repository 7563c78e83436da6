// What ranks print arrives whole, and slow or absent readers do no harm.
#include "tests/cluster/support/ranks.h"
#include "tests/support/catch.h"

#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>

using namespace dtrun;
using namespace dtrun::cluster;
using Catch::Contains;
namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

namespace test_output {

constexpr int kHosts = 4;

/// Says what differs without printing megabytes.
std::string difference(const std::string& got, const std::string& expected) {
    if (got == expected) return "";
    const auto [at, other] = std::ranges::mismatch(got, expected);
    const auto offset = static_cast<std::size_t>(at - got.begin());
    return fmt::format("{} bytes instead of {}; at {} comes '{}' instead of '{}'", got.size(),
                       expected.size(), offset, got.substr(offset, 60),
                       expected.substr(offset, 60));
}

/// The numbers that both sides of a test make lines from: the "minimal standard" generator.
class Numbers {
public:
    explicit Numbers(unsigned seed) : state_(seed) {}
    unsigned below(unsigned limit) {
        state_ = static_cast<unsigned>(state_ * 48271ull % 2147483647ull);
        return state_ % limit;
    }

private:
    unsigned state_;
};

constexpr int kLinesPerRank = 1500;

/// Writes lines of random lengths in pieces of random sizes to both streams.
constexpr const char* kScribble = R"(#!/usr/bin/python3 -S
import os
rank = int(os.environ["RANK"])
state = rank + 1
def below(limit):
    global state
    state = state * 48271 % 2147483647
    return state % limit
texts = {1: [], 2: []}
for number in range(1500):
    length = below(8) == 0 and below(20000) or below(100)
    texts[1 + (below(3) == 0)].append(b"%d/%d %s\n" % (rank, number, b"abcdefghij"[rank % 10:][:1] * length))
texts = {stream: b"".join(lines) for stream, lines in texts.items()}
while any(texts.values()):
    for stream in texts:
        size = below(4) == 0 and below(60000) or 1 + below(700)
        while texts[stream] and size:
            done = os.write(stream, texts[stream][:size])
            texts[stream] = texts[stream][done:]
            size -= done
)";

/// What kScribble writes to standard output and to standard error.
std::pair<std::string, std::string> scribbled(unsigned rank) {
    Numbers numbers(rank + 1);
    std::string texts[2];
    for (int number = 0; number < kLinesPerRank; ++number) {
        unsigned length = 0;
        if (numbers.below(8) == 0) length = numbers.below(20'000);
        if (length == 0) length = numbers.below(100);
        const int stream = numbers.below(3) == 0;
        texts[stream] += fmt::format("{}/{} {}\n", rank, number,
                                     std::string(length, static_cast<char>('a' + rank % 10)));
    }
    return {texts[0], texts[1]};
}

/// The text of each rank without prefixes; a line that does not begin with one is a failure.
std::map<unsigned, std::string> untagged(const std::string& text, const std::string& stream) {
    std::map<unsigned, std::string> ranks;
    std::size_t broken = 0;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = text.find('\n', at);
        const std::string line = text.substr(at, end - at);
        const std::size_t colon = line.find(':');
        const unsigned rank = static_cast<unsigned>(std::atoi(line.c_str() + 1));
        if (line.substr(0, colon + 1) == fmt::format("[{}]<{}>:", rank, stream))
            ranks[rank] += line.substr(colon + 1) + "\n";
        else
            ++broken;
        at = end == std::string::npos ? text.size() : end + 1;
    }
    CHECK(broken == 0);
    return ranks;
}

TEST_CASE("lines of sixteen ranks, of any length and written in any pieces, arrive whole",
          "[cluster][output]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const fs::path directory = fresh_directory(cluster, "scribble-logs");
    const std::string program = write_program(cluster, "scribble.py", kScribble);
    const Finished done =
        cluster.dtrun({"-H", cluster.host_list(4, 4), "--output-dir", directory, program});
    CHECK(done.exit_code == 0);
    const auto out = untagged(done.out, "stdout");
    const auto err = untagged(without_news(done.err), "stderr");
    REQUIRE(out.size() == 16);
    REQUIRE(err.size() == 16);
    for (unsigned rank = 0; rank < 16; ++rank) {
        const auto [expected_out, expected_err] = scribbled(rank);
        const fs::path files = directory / fmt::format("rank.{:02}", rank);
        CHECK(difference(out.at(rank), expected_out) == "");
        CHECK(difference(err.at(rank), expected_err) == "");
        CHECK(difference(file_text(files / "stdout"), expected_out) == "");
        CHECK(difference(file_text(files / "stderr"), expected_err) == "");
    }
}

TEST_CASE("stdout and stderr of dtrun in one pipe still have whole lines", "[cluster][output]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string program = write_program(cluster, "scribble.py", kScribble);
    const Finished done =
        cluster.run("head", {"sh", "-c", "exec \"$@\" 2>&1", "sh", cluster.program(), "-H",
                             cluster.host_list(2, 2), program});
    CHECK(done.exit_code == 0);
    std::map<std::string, std::string> streams;
    std::size_t broken = 0;
    for (const std::string& line : lines_of(done.out)) {
        const std::size_t colon = line.find(':');
        if (line.starts_with('[') && colon != std::string::npos)
            streams[line.substr(0, colon)] += line.substr(colon + 1) + "\n";
        else
            ++broken;
    }
    CHECK(broken == 0);
    for (unsigned rank = 0; rank < 4; ++rank) {
        const auto [out, err] = scribbled(rank);
        CHECK(difference(streams[fmt::format("[{}]<stdout>", rank)], out) == "");
        CHECK(difference(streams[fmt::format("[{}]<stderr>", rank)], err) == "");
    }
}

TEST_CASE("a rank that is killed right after printing loses nothing", "[cluster][output]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string program = write_program(cluster, "last-words.py", R"(#!/usr/bin/python3 -S
import os, signal
if os.environ["RANK"] == "1":
    os.write(1, b"o" * 60000 + b"\nlast line without end")
    os.write(2, b"e" * 60000 + b"\nlast words")
    os.kill(os.getpid(), signal.SIGKILL)
signal.pause()
)");
    for (int round = 0; round < 3; ++round) {
        const Finished done = cluster.dtrun({"-H", "s1,s2", program});
        CHECK(done.exit_code == 137);
        CHECK(difference(done.out, "[1]<stdout>:" + std::string(60'000, 'o') +
                                       "\n[1]<stdout>:last line without end\n") == "");
        CHECK_THAT(without_news(done.err),
                   Catch::StartsWith("[1]<stderr>:" + std::string(60'000, 'e') +
                                     "\n[1]<stderr>:last words\ndtrun: rank 1 on s2"));
        CHECK_THAT(done.err, Contains("  | last words\n"));
    }
}

TEST_CASE("what the others print until they are ended is shown too", "[cluster][output]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const fs::path directory = fresh_directory(cluster, "goodbye");
    const std::string program = write_program(cluster, "goodbye.py",
                                              fmt::format(R"(#!/usr/bin/python3 -S
import os, signal, sys, time
if os.environ["RANK"] == "0":
    while len(os.listdir("{0}")) < 3:
        time.sleep(0.02)
    sys.exit(1)
def leave(*_):
    os.write(1, b"goodbye" * 100000 + b"\n")
    os._exit(0)
signal.signal(signal.SIGTERM, leave)
os.mkdir("{0}/" + os.environ["RANK"])
while True:
    signal.pause()
)",
                                                          directory.native()));
    const Finished done = cluster.dtrun({"-H", "s1:2,s2:2", program});
    INFO(done.err);
    CHECK(done.exit_code == 1);
    CHECK(count_of(done.out, "goodbye") == 300'000);
    CHECK(lines_of(done.out).size() == 3);
}

TEST_CASE("two hundred megabytes without a line end pass, raw for one rank", "[cluster][output]") {
    Cluster& cluster = Cluster::shared(kHosts);
    constexpr std::size_t kBytes = 200'000'000;
    const Finished done =
        cluster.dtrun({"-H", "s1", "sh", "-c", "head -c 200000000 /dev/zero | tr '\\0' z"});
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK(done.out.size() == kBytes);
    CHECK(done.out.find_first_not_of('z') == std::string::npos);
}

TEST_CASE("with several ranks an endless line is cut into long pieces and others get through",
          "[cluster][output]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Finished done = cluster.dtrun(
        {"-H", "s1,s2", "sh", "-c",
         "[ $RANK = 0 ] && exec sh -c 'head -c 20000000 /dev/zero | tr \"\\0\" z'; echo short"});
    INFO(done.err);
    CHECK(done.exit_code == 0);
    const auto ranks = untagged(done.out, "stdout");
    CHECK(ranks.at(1) == "short\n");
    CHECK(count_of(ranks.at(0), "z") == 20'000'000);
    const Lines pieces = lines_of(ranks.at(0));
    CHECK(pieces.size() < 40);
    CHECK(pieces.size() > 10);
}

TEST_CASE("when the reader of its output goes, dtrun ends the job as SIGPIPE would end a program",
          "[cluster][output]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const fs::path directory = fresh_directory(cluster, "early");
    const Finished done = cluster.run(
        "head", {"bash", "-c", "\"$@\" | head -1; echo \"code ${PIPESTATUS[0]}\"", "bash",
                 cluster.program(), "-H", "s1,s2", "--output-dir", directory, "yes"});
    INFO(done.err);
    CHECK(sorted_lines(done.out).size() == 2);
    // The other rank may be ended before it writes.
    const std::string shown = done.out.starts_with("[0]") ? "rank.0" : "rank.1";
    CHECK_THAT(done.out, Catch::Matches("\\[[01]\\]<stdout>:y\ncode 141\n"));
    CHECK(count_of(done.err, "standard output") <= 1);
    CHECK(done.wall < milliseconds(Cluster::sanitized() ? 10'000 : 5'000));
    CHECK(cluster.wait_all_gone());
    CHECK_THAT(file_text(directory / shown / "stdout"), Catch::StartsWith("y\n"));
}

TEST_CASE("closed standard streams of dtrun do no harm", "[cluster][output]") {
    Cluster& cluster = Cluster::shared(kHosts);
    RunOptions options;
    options.timeout = milliseconds(20'000);
    const Finished done = cluster.run("head",
                                      {"sh", "-c", "exec \"$@\" <&- 2>&-", "sh", cluster.program(),
                                       "-H", "s1,s2", "sh", "-c", "cat; echo out; echo err >&2"},
                                      options);
    CHECK(done.exit_code == 0);
    CHECK(sorted_lines(done.out) == Lines{"[0]<stdout>:out", "[1]<stdout>:out"});
}

TEST_CASE("a slow reader makes the ranks wait, not the memory of dtrun or its agents grow",
          "[cluster][output]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const fs::path directory = fresh_directory(cluster, "slow");
    // Each rank writes 500 MB and tells in a file how many it has written.
    const std::string program = write_program(cluster, "pour.py",
                                              fmt::format(R"(#!/usr/bin/python3 -S
import os
line = (b"x" * 99 + b"\n") * 10000
for megabytes in range(1, 501):
    rest = line
    while rest:
        rest = rest[os.write(1, rest):]
    with open("{}/" + os.environ["RANK"], "w") as file:
        file.write(str(megabytes))
)",
                                                          directory.native()));
    const fs::path go = directory / "go";
    Running job =
        cluster.start("head", {"bash", "-c",
                               "\"$@\" | { while [ ! -e " + go.native() +
                                   " ]; do sleep 0.05; done; wc -c; }; "
                                   "echo \"code ${PIPESTATUS[0]}\"",
                               "bash", cluster.program(), "-H", "s1,s2", "--tag", "rank", program});
    const auto progress = [&] {
        return file_text(directory / "0") + "," + file_text(directory / "1");
    };
    REQUIRE(wait_until([&] { return fs::exists(directory / "0") && fs::exists(directory / "1"); },
                       milliseconds(20'000)));
    // They stand still once every buffer is full.
    std::string before;
    REQUIRE(wait_until(
        [&] {
            before = progress();
            usleep(700'000);
            return progress() == before;
        },
        milliseconds(20'000)));
    INFO("MB written: " << before);
    CHECK_FALSE(job.finished());
    for (const char* rank : {"0", "1"}) CHECK(std::stoi(file_text(directory / rank)) < 200);
    const auto is_head = [](const Process& process) { return process.name == "dtrun"; };
    const long head_kib = memory_kib(find_process(cluster, "head", is_head).pid_outside);
    const long agent_kib = memory_kib(find_process(cluster, "s1", is_agent).pid_outside);
    CHECK(head_kib > 0);
    CHECK(head_kib < (Cluster::sanitized() ? 600'000 : 160'000));
    CHECK(agent_kib > 0);
    CHECK(agent_kib < (Cluster::sanitized() ? 100'000 : 12'000));
    std::ofstream(go) << "";
    const Finished done = job.wait(milliseconds(60'000));
    INFO(done.err);
    // 5 million lines of 100 bytes, with "[0] " before each, of both.
    CHECK(done.out == "1040000000\ncode 0\n");
}

TEST_CASE("Ctrl-C ends a job whose output nobody reads", "[cluster][output]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const fs::path directory = fresh_directory(cluster, "unread");
    Running job = cluster.start(
        "head", {"bash", "-c", "\"$@\" | sleep 40", "bash", cluster.program(), "-H", "s1,s2", "sh",
                 "-c", ": >" + directory.native() + "/$RANK; exec yes"});
    REQUIRE(wait_until([&] { return fs::exists(directory / "0") && fs::exists(directory / "1"); },
                       milliseconds(20'000)));
    usleep(500'000);
    const auto is_head = [](const Process& process) { return process.name == "dtrun"; };
    const pid_t head = find_process(cluster, "head", is_head).pid_outside;
    ::kill(head, SIGINT);
    usleep(500'000);
    ::kill(head, SIGINT);
    CHECK(cluster.wait_gone("head", is_head, milliseconds(6000)));
    for (const char* host : {"s1", "s2"}) CHECK(cluster.wait_gone(host, {}, milliseconds(6000)));
}

TEST_CASE("ten megabytes of standard input reach rank 0, or all ranks, whole",
          "[cluster][output]") {
    Cluster& cluster = Cluster::shared(kHosts);
    RunOptions options;
    Numbers numbers(7);
    options.stdin_text.resize(10'000'000);
    for (char& byte : options.stdin_text) byte = static_cast<char>(numbers.below(256));
    const fs::path input = cluster.scratch() / "input";
    std::ofstream(input, std::ios::binary) << options.stdin_text;
    const std::string sum = cluster.run("head", {"sha256sum", input}).out.substr(0, 64);

    const Lines words{"-H", "s1:2,s2:2", "sh", "-c", "sha256sum | cut -c-64"};
    const Finished first = cluster.dtrun(words, options);
    CHECK(first.exit_code == 0);
    CHECK(by_rank(first.out).at(0) == sum + "\n");
    CHECK(by_rank(first.out).at(1) != sum + "\n");
    Lines to_all{"--stdin", "all"};
    to_all.insert(to_all.end(), words.begin(), words.end());
    const Finished all = cluster.dtrun(to_all, options);
    CHECK(all.exit_code == 0);
    CHECK(count_of(all.out, sum) == 4);
    // A file, which epoll does not take.
    const Finished from_file =
        cluster.run("head", {"sh", "-c", "exec \"$@\" <" + input.native(), "sh", cluster.program(),
                             "-H", "s1", "sh", "-c", "sha256sum | cut -c-64"});
    CHECK(from_file.out == sum + "\n");
}

TEST_CASE("a rank that does not read its input, or closes it, does not disturb the job",
          "[cluster][output]") {
    Cluster& cluster = Cluster::shared(kHosts);
    RunOptions options;
    options.stdin_text = std::string(10'000'000, 'i');
    const Finished unread =
        cluster.dtrun({"-H", "s1,s2", "sh", "-c", "sleep 0.5; echo done"}, options);
    CHECK(unread.exit_code == 0);
    CHECK(count_of(unread.out, "done") == 2);
    const Finished closed = cluster.dtrun(
        {"-H", "s1,s2", "--stdin", "all", "sh", "-c", "exec <&-; sleep 0.5; echo done"}, options);
    CHECK(closed.exit_code == 0);
    // One that reads nothing holds up only itself, as long as it runs.
    const Finished mixed = cluster.dtrun(
        {"-H", "s1,s2", "--stdin", "all", "sh", "-c", "[ $RANK = 0 ] && exec sleep 1; wc -c"},
        options);
    CHECK(by_rank(mixed.out).at(1) == "10000000\n");
}

TEST_CASE("on a terminal one live line of at most its width tells which hosts are missing and why",
          "[cluster][output]") {
    Cluster& cluster = Cluster::shared(kHosts);
    cluster.kill_link("s2", Cluster::Cut::silent);
    cluster.kill_link("s3", Cluster::Cut::silent);
    RunOptions options;
    options.terminal = true;
    options.columns = 80;
    const Finished done =
        cluster.dtrun({"-H", "s1,s2,s3,s4,nosuch", "--connect-timeout", "5", "true"}, options);
    INFO(done.out);
    CHECK(done.exit_code == 201);
    CHECK_THAT(done.out, Contains("dtrun: 2/5 hosts ready") && Contains("1 failed") &&
                             Contains("connecting: s2 and s3"));
    // Before the report, everything is drawn over one line, which is erased at the end.
    const std::size_t report =
        done.out.find("\x1b[1;31mdtrun: cannot start: 3 of 5 hosts failed\x1b[0m\r\n");
    REQUIRE(report != std::string::npos);
    const std::string live = done.out.substr(0, report);
    CHECK(live.find('\n') == std::string::npos);
    CHECK(live.ends_with("\r\x1b[K"));
    std::size_t drawn = 0;
    for (std::size_t at = 0; at < live.size(); ++drawn) {
        const std::size_t end = std::min(live.find("\r\x1b[K", at), live.size());
        CHECK(end - at < 80);
        at = end + 4;
    }
    CHECK(drawn > 5);
}

TEST_CASE("the live line does not get in the way of what ranks print", "[cluster][output]") {
    Cluster& cluster = Cluster::shared(kHosts);
    RunOptions options;
    options.terminal = true;
    const Finished done = cluster.dtrun({"-H", "s1,s2", "--tag", "rank", "echo", "hello"}, options);
    CHECK(done.exit_code == 0);
    std::string text = done.out;
    for (std::size_t at; (at = text.find("\x1b[K")) != std::string::npos;)
        text.erase(0, at + 3);   // nothing but the live line was shown before
    CHECK(sorted_lines(text) ==  // each rank in its colour, since this is a terminal
          Lines{"\x1b[33m[1] \x1b[0mhello\r", "\x1b[36m[0] \x1b[0mhello\r"});
}

TEST_CASE("without a terminal the news of slow hosts are plain lines, and few",
          "[cluster][output]") {
    Cluster& cluster = Cluster::shared(kHosts);
    cluster.kill_link("s2", Cluster::Cut::silent);
    const Finished done = cluster.dtrun({"-H", "s1,s2", "--connect-timeout", "6", "true"});
    INFO(done.err);
    CHECK(done.exit_code == 201);
    CHECK(done.err.find_first_of("\r\x1b") == std::string::npos);
    const Lines lines = lines_of(done.err);
    REQUIRE(lines.size() == 3);
    // On a busy machine s1 may not be there yet.
    CHECK_THAT(lines[0], Catch::Matches("dtrun: [01]/2 hosts ready after [2-5][.][0-9] s; "
                                        ".*connecting: .*s2.*"));
    CHECK(lines[1] == "dtrun: cannot start: 1 of 2 hosts failed");
    CHECK(done.out.empty());
    const Finished quiet =
        cluster.dtrun({"-H", "s1,s2", "--quiet", "--connect-timeout", "6", "true"});
    CHECK(lines_of(quiet.err).size() == 2);
}

TEST_CASE("an agent is small", "[cluster][output]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Running job = cluster.start_dtrun({"-H", "s1:4", "sh", "-c", "echo up; sleep 60"});
    REQUIRE(wait_for_count(job, "up", 4));
    const long kib = memory_kib(find_process(cluster, "s1", is_agent).pid_outside);
    CHECK(kib > 0);
    CHECK(kib <= (Cluster::sanitized() ? 60 : 8) * 1024);
}

}  // namespace test_output
