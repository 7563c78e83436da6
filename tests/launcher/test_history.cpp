// What is left of jobs when they have ended.

#include "launcher/control/control_place.h"
#include "launcher/history/history_folder.h"
#include "launcher/history/history_text.h"
#include "launcher/history/kept_log.h"
#include "launcher/history/record_writer.h"
#include "launcher/output/rotation.h"
#include "tests/launcher/cli_support.h"
#include "tests/support/catch.h"
#include "tests/support/seed.h"
#include "tests/support/temp_dir.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

using namespace dtrun;
using namespace dtrun::history;
using Catch::Contains;
using Strings = std::vector<std::string>;

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kNow = 1'795'000'000 * kSecond;

JobStart a_start(const std::string& job = "0123456789abcdef", std::int64_t time_ns = kNow) {
    JobStart start{.job = job, .time_ns = time_ns};
    start.name = "train";
    start.typed = {{"-np", "2", "-x", "HF_TOKEN=", "python3", "train it.py"}, {3}};
    start.directory = "/home/me";
    start.program = "python3 train.py";
    start.ranks = 2;
    start.host_count = 1;
    start.hosts = "s1";
    start.head = {"head", "boot-1", "pid:[1]", 77, 1234};
    start.log = "/state/log";
    start.log_kept = 32u << 20;
    return start;
}

JobEnd an_end() {
    return {kNow + 90 * kSecond, 3, "rank_failed", "dtrun: rank 1 failed\n", ""};
}

/// A record as a head leaves it. \return its path
std::string leave(const std::string& folder, const JobStart& start, bool has_ended = true) {
    const std::string path =
        fmt::format("{}/{}{}", folder, stem_of(start.job, start.time_ns), kRecordSuffix);
    std::ofstream(path) << line_of(start) << (has_ended ? line_of(an_end()) : "");
    return path;
}

Strings ids_in(const std::string& folder) {
    Strings ids;
    for (const JobEntry& entry : read_history(folder)) ids.push_back(entry.start.job);
    return ids;
}

Strings lines_of(KeptLog& log) {
    Strings lines;
    while (const auto line = log.next()) lines.emplace_back(*line);
    return lines;
}

void append(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::app) << text;
}

}  // namespace

TEST_CASE("a record says what it was told", "[launcher][history]") {
    const auto entry = parse_entry(line_of(a_start()) + line_of(an_end()));
    REQUIRE(entry.has_value());
    CHECK(entry->start == a_start());
    CHECK(entry->end == an_end());
    CHECK_FALSE(parse_entry(line_of(a_start()))->end.has_value());
    JobStart bytes = a_start();
    bytes.directory = "/tmp/\xff\n\x1b[2J";
    CHECK(parse_entry(line_of(bytes)).has_value());
    JobStart longest = a_start();
    longest.typed = {{std::string(70'000, 'a')}};
    CHECK(parse_entry(line_of(longest))->start.typed.words.empty());
    longest.typed = {{"no \xff UTF-8"}};
    CHECK(parse_entry(line_of(longest))->start.typed.words.empty());
}

TEST_CASE("a torn record is that of a job whose end is not known, and anything else is none",
          "[launcher][history]") {
    const std::string whole = line_of(a_start()) + line_of(an_end());
    const std::size_t first = line_of(a_start()).size();
    for (std::size_t size = 0; size <= whole.size(); ++size) {
        const auto entry = parse_entry(std::string_view(whole).substr(0, size));
        CHECK(entry.has_value() == (size >= first));
        if (entry) CHECK(entry->end.has_value() == (size == whole.size()));
    }
    for (const char* const odd :
         {"", "\n", "\n\n", "{}\n", "[]\n", "null\n", "{\"line\":\"start\"}\n",
          "{\"line\":\"start\",\"job\":7}\n", "{\"line\":3,\"job\":\"a\"}\n", "\xff\xfe\n", "x\n"})
        CHECK_FALSE(parse_entry(odd).has_value());
    const auto wrong_types = parse_entry(
        "{\"line\":\"start\",\"job\":\"ab\",\"ranks\":-1,\"hosts\":1e300,\"typed\":{\"words\":[1],"
        "\"hidden\":[9]},\"dtrun\":[],\"started_ns\":\"x\"}\n");
    REQUIRE(wrong_types.has_value());
    CHECK(wrong_types->start == JobStart{.job = "ab"});
    CHECK(parse_entry("rubbish\n" + whole)->start == a_start());
}

TEST_CASE("records of random bytes harm nobody", "[launcher][history]") {
    const auto seed = static_cast<unsigned>(std::random_device()());
    CAPTURE(seed);
    std::mt19937 random(seed);
    const std::string whole = line_of(a_start()) + line_of(an_end());
    for (int i = 0; i < 2'000; ++i) {
        std::string text = whole;
        for (unsigned changes = random() % 8 + 1; changes > 0; --changes) {
            const std::size_t at = random() % text.size();
            if (random() % 3 == 0)
                text.erase(at, random() % 20);
            else
                text[at] = static_cast<char>(random());
            if (text.empty()) break;
        }
        const auto entry = parse_entry(text);
        if (!entry) continue;
        CHECK_FALSE(entry->start.job.empty());
        for (const std::size_t hidden : entry->start.typed.hidden)
            CHECK(hidden < entry->start.typed.words.size());
        CHECK_FALSE(history_details({*entry, Life::gone}).empty());
    }
}

TEST_CASE("values of variables that look secret are left out, and come back from the environment",
          "[launcher][history]") {
    const Strings typed{"-np",
                        "2",
                        "-x",
                        "HF_TOKEN=abc",
                        "--env=WANDB_API_KEY=d",
                        "NCCL_DEBUG=INFO",
                        "DB_PASSWORD=",
                        "python3",
                        "x.py",
                        "MY_TOKEN=kept"};
    const TypedLine line = without_secrets(typed, 3);
    CHECK(line.words[3] == "HF_TOKEN=");
    CHECK(line.words[4] == "--env=WANDB_API_KEY=");
    CHECK(line.words[5] == "NCCL_DEBUG=INFO");
    CHECK(line.words[9] == "MY_TOKEN=kept");
    CHECK(line.hidden == std::vector<std::size_t>{3, 4, 6});
    CHECK(shell_text(line) ==
          "dtrun -np 2 -x HF_TOKEN=... --env=WANDB_API_KEY=... NCCL_DEBUG=INFO DB_PASSWORD=... "
          "python3 x.py MY_TOKEN=kept");
    const auto has_all = [](std::string_view name) -> std::optional<std::string> {
        return "new " + std::string(name);
    };
    const auto again = with_secrets(line, has_all);
    REQUIRE(again.has_value());
    CHECK((*again)[3] == "HF_TOKEN=new HF_TOKEN");
    CHECK((*again)[4] == "--env=WANDB_API_KEY=new WANDB_API_KEY");
    const auto has_none = [](std::string_view) { return std::optional<std::string>(); };
    CHECK_THAT(message_of(with_secrets(line, has_none)), Contains("export HF_TOKEN=..."));
    CHECK(without_secrets({"-x", "TOKENIZERS_PARALLELISM=false", "-x", "MAX_TOKENS=5", "a"}, 1)
              .hidden.empty());
}

TEST_CASE("a line with a secret in another form is not kept at all", "[launcher][history]") {
    for (const Strings& typed : {Strings{"mpirun", "-genv", "HF_TOKEN", "abc", "x"},
                                 Strings{"--export=ALL,HF_TOKEN=abc", "x"},
                                 Strings{"--mca", "mca_base_env_list", "A=1;DB_PASS=abc", "x"}})
        CHECK(without_secrets(typed, 1) == TypedLine{});
    CHECK(without_secrets({"-genv", "A", "b", "--export=ALL,A=b", "x"}, 1).words.size() == 5);
}

TEST_CASE("the first line of a job in a log is known from what else dtrun says of jobs",
          "[launcher][history]") {
    const auto begun = [](const std::string& text) {
        const std::string line = "2026-11-21T10:11:12.345 " + text;
        return std::string(job_begun_by(parse_log_line(line)));
    };
    CHECK(begun("dtrun: job 0123456789ab: 4 ranks on 2 hosts\n") == "0123456789ab");
    CHECK(begun("dtrun: job train: all are there\n").empty());
    CHECK(begun("dtrun: job 0123456789ab: all are there\n").empty());
    CHECK(begun("[0@s1 stdout] dtrun: job 0123456789ab: 4 ranks on 2 hosts\n").empty());
}

TEST_CASE("whether a dtrun runs is known on its own machine, in the same boot alone",
          "[launcher][history]") {
    const ProcessMark here = mark_of_this_process();
    CHECK(here.pid == ::getpid());
    CHECK(here.started > 0);
    CHECK(life_of(here, here) == Life::runs);
    ProcessMark other = here;
    other.started += 1;  // its number belongs to somebody else now
    CHECK(life_of(other, here) == Life::gone);
    other = here;
    other.pid = 0x7ffffff0;
    CHECK(life_of(other, here) == Life::gone);
    other = here;
    other.boot = "before";
    CHECK(life_of(other, here) == Life::gone);
    other.host = "another";
    CHECK(life_of(other, here) == Life::unknown);
    other = here;
    other.pid_space = "pid:[5]";
    CHECK(life_of(other, here) == Life::unknown);
}

TEST_CASE("records are for their user alone, and where there can be none that is said",
          "[launcher][history]") {
    CHECK(history_folder("/x", "/home/me") == "/x/dtrun/jobs");
    CHECK(history_folder("x", "/home/me") == "/home/me/.local/state/dtrun/jobs");
    CHECK(history_folder("", "/") == "/.local/state/dtrun/jobs");  // of a container's user
    CHECK(history_folder("", "").empty());
    const TempDir dir;
    const std::string folder = dir.at("state/dtrun/jobs");
    {
        RecordWriter writer(folder, a_start(), true);
        REQUIRE(writer.written(after(std::chrono::seconds(20))).has_value());
        REQUIRE(writer.finish(an_end(), after(std::chrono::seconds(20))).has_value());
    }
    const auto entries = read_history(folder);
    REQUIRE(entries.size() == 1);
    CHECK(entries[0].start == a_start());
    CHECK(entries[0].end == an_end());
    struct stat info {};
    REQUIRE(::stat(folder.c_str(), &info) == 0);
    CHECK((info.st_mode & 07777) == 0700);
    REQUIRE(::stat(entries[0].path.c_str(), &info) == 0);
    CHECK((info.st_mode & 07777) == 0600);

    const std::string file = dir.write("file", "");
    RecordWriter nowhere(file + "/jobs", a_start(), false);
    CHECK_THAT(message_of(nowhere.written(after(std::chrono::seconds(20)))), Contains(file));
    CHECK_FALSE(nowhere.finish(an_end(), after(std::chrono::seconds(20))).has_value());
    REQUIRE(::chmod(folder.c_str(), 0755) == 0);
    RecordWriter open_to_all(folder, a_start("ff"), false);
    CHECK_THAT(message_of(open_to_all.written(after(std::chrono::seconds(20)))),
               Contains("others may enter it"));
}

TEST_CASE("a record is meant by a name, an id or a begin of it, the newest first",
          "[launcher][history]") {
    const TempDir dir;
    const std::string folder = dir.path();
    leave(folder, a_start("aa11", kNow));
    JobStart unnamed = a_start("aa22", kNow + kSecond);
    unnamed.name = "";
    leave(folder, unnamed);
    leave(folder, a_start("bb33", kNow + 2 * kSecond));
    dir.write("notes.txt", "of the user");
    dir.write(stem_of("cc44", kNow) + ".job", "torn");
    CHECK(ids_in(folder) == Strings{"bb33", "aa22", "aa11"});
    CHECK(find_entry(folder, "")->start.job == "bb33");
    CHECK(find_entry(folder, "train")->start.job == "bb33");
    CHECK(find_entry(folder, "aa1")->start.job == "aa11");
    CHECK(message_of(find_entry(folder, "aa")) ==
          "several jobs begin with 'aa'; say which: aa22 and aa11");
    CHECK_THAT(message_of(find_entry(folder, "zz")), Contains("dtrun jobs --all"));
    CHECK_THAT(message_of(find_entry(dir.at("none"), "")), Contains("no job of yours"));
    CHECK(read_history(folder, 1).size() == 1);
}

TEST_CASE("what is old or too much goes, and nothing of a job that may run",
          "[launcher][history]") {
    const TempDir dir;
    const std::string folder = dir.path();
    Bounds bounds{.age_max_ns = 100 * kSecond, .records_max = 3, .bytes_max = 1u << 20};
    JobStart runs = a_start("running", kNow - 500 * kSecond);
    runs.head = mark_of_this_process();
    leave(folder, runs, false);
    JobStart elsewhere = a_start("elsewhere", kNow - 400 * kSecond);
    elsewhere.head.host = "another";
    leave(folder, elsewhere, false);
    leave(folder, a_start("old", kNow - 200 * kSecond));
    const std::string log = dir.write(stem_of("old", kNow - 200 * kSecond) + ".log.1", "x");
    dir.write("notes.txt", "of the user");
    for (int i = 0; i < 5; ++i) leave(folder, a_start(fmt::format("new{}", i), kNow - i * kSecond));
    tidy(folder, bounds, kNow);
    CHECK(ids_in(folder) == Strings{"new0", "new1", "new2", "elsewhere", "running"});
    CHECK_FALSE(std::filesystem::exists(log));
    CHECK(std::filesystem::exists(dir.at("notes.txt")));

    // The newest fit, whatever their logs take.
    dir.write(stem_of("new0", kNow) + ".log", std::string(900u << 10, 'x'));
    dir.write(stem_of("new1", kNow - kSecond) + ".log", std::string(900u << 10, 'x'));
    tidy(folder, bounds, kNow);
    CHECK(ids_in(folder) == Strings{"new0", "new2", "elsewhere", "running"});
    tidy(dir.at("none"), bounds, kNow);
}

TEST_CASE("a line of a log says who has printed it", "[launcher][history]") {
    const LogLine rank = parse_log_line("2026-11-21T10:11:12.345 [3@s1 stdout] a [b@c stderr] d\n");
    CHECK(rank.time == "2026-11-21T10:11:12.345");
    CHECK(rank.rank == 3);
    CHECK_FALSE(rank.of_dtrun);
    CHECK(rank.stream == Stream::out);
    CHECK(rank.text == "a [b@c stderr] d\n");
    CHECK(parse_log_line("2026-11-21T10:11:12.345 [0@s1 stderr] \n").text == "\n");
    const LogLine own = parse_log_line("2026-11-21T10:11:12.345 dtrun: [3@s1 stdout] x\n");
    CHECK(own.of_dtrun);
    CHECK(own.text == "dtrun: [3@s1 stdout] x\n");
    for (const char* const odd : {"", "\n", "x\n", "2026-11-21T10:11:12.345", "[3@s1 stdout] x\n"})
        CHECK(parse_log_line(odd).text == odd);
}

TEST_CASE("a log is read to its end, and further when more is there", "[launcher][history]") {
    const TempDir dir;
    const std::string path = dir.at("log");
    KeptLog log(path);
    CHECK(lines_of(log).empty());
    CHECK_FALSE(log.is_open());
    append(path, "one\ntwo\r\n10%\r20%\rhal");
    CHECK(lines_of(log) == Strings{"one\n", "two\r\n", "10%\r", "20%\r"});
    append(path, "f\nlast\r");
    CHECK(lines_of(log) == Strings{"half\n"});
    append(path, "\n");
    CHECK(lines_of(log) == Strings{"last\r\n"});
    append(path, "no end");
    CHECK(lines_of(log).empty());
    CHECK(log.rest() == "no end");
    CHECK_FALSE(log.rest().has_value());
}

TEST_CASE("a log that is set aside is read in order, and what was removed unread is told",
          "[launcher][history]") {
    const TempDir dir;
    const std::string path = dir.at("log");
    namespace fs = std::filesystem;
    const auto set_aside = [&] {
        if (fs::exists(path + ".1")) fs::rename(path + ".1", path + ".2");
        fs::rename(path, path + ".1");
    };
    append(path, "a\n");
    set_aside();
    append(path, "b\n");
    set_aside();
    append(path, "c\n");
    KeptLog log(path);
    CHECK(lines_of(log) == Strings{"a\n", "b\n", "c\n"});
    append(path, "d\n");
    set_aside();
    append(path, "e\n");
    CHECK(lines_of(log) == Strings{"d\n", "e\n"});
    CHECK_FALSE(log.take_gap());
    fs::remove(path + ".2");
    fs::remove(path + ".1");
    fs::remove(path);
    append(path + ".1", "y\n");
    append(path, "z\n");
    CHECK(lines_of(log) == Strings{"y\n", "z\n"});
    CHECK(log.take_gap());
    CHECK_FALSE(log.take_gap());
}

TEST_CASE("a log is followed in order whatever step of setting it aside its writer has come to",
          "[launcher][history]") {
    const std::uint32_t seed = test_seed();
    INFO("DTRUN_SEED=" << seed);
    std::mt19937 random(seed);
    constexpr int kKeep = 4;
    for (int run = 0; run < 20; ++run) {
        const TempDir dir;
        const std::string path = dir.at("log");
        const auto name = [&path](int number) {
            return number == 0 ? path : fmt::format("{}.{}", path, number);
        };
        KeptLog log(path);
        int written = 0, read = 0, unread_files = 0;
        int moving = 0;  // the file that the writer sets aside next; 0: it writes
        for (int step = 0; step < 400; ++step) {
            if (moving > 0) {
                ::rename(name(moving - 1).c_str(), name(moving).c_str());
                --moving;
            } else if (random() % 4 > 0) {
                append(path, fmt::format("{}\n", written++));
            } else if (unread_files < kKeep - 1 && std::filesystem::exists(path)) {
                moving = kKeep;
                ++unread_files;
            }
            if (random() % 3 > 0) continue;
            for (const std::string& line : lines_of(log))
                CHECK(line == fmt::format("{}\n", read++));
            CHECK_FALSE(log.take_gap());
            // What is written next may lie in a file that has no name yet.
            if (moving == 0) CHECK(read == written);
            unread_files = 0;
        }
    }
}

TEST_CASE("a log is followed in order while another process sets it aside", "[launcher][history]") {
    const std::uint32_t seed = test_seed();
    INFO("DTRUN_SEED=" << seed);
    const TempDir dir;
    const std::string path = dir.at("log");
    constexpr int kFiles = 300, kKeep = 5;
    std::atomic<bool> is_done = false;
    std::thread writer([&] {
        std::mt19937 random(seed);
        int written = 0;
        for (int file = 0; file < kFiles; ++file) {
            for (unsigned lines = random() % 4 + 1; lines > 0; --lines)
                append(path, fmt::format("{}\n", written++));
            if (file + 1 < kFiles && !output::set_aside(AT_FDCWD, path, kKeep)) break;
        }
        is_done = true;
    });
    KeptLog log(path);
    bool is_first = true;
    int next = 0, gaps = 0;
    for (bool was_done = false; !was_done;) {
        was_done = is_done;
        while (const auto line = log.next()) {
            const int number = std::stoi(std::string(*line));
            const bool has_gap = log.take_gap();
            gaps += has_gap ? 1 : 0;
            CHECK((has_gap || is_first ? number >= next : number == next));
            is_first = false;
            next = number + 1;
        }
    }
    writer.join();
    CHECK(next >= kFiles);
    CHECK(gaps < kFiles);
}

TEST_CASE("a job that has ended is shown with how it has", "[launcher][history]") {
    const auto shown = [](const JobEntry& entry, Life life = Life::gone) {
        return history_details({entry, life});
    };
    const std::string ended = shown({a_start(), an_end()});
    CHECK_THAT(ended, Contains("job 0123456789abcdef, named train\n"));
    CHECK_THAT(ended, Contains("dtrun -np 2 -x HF_TOKEN=... python3 'train it.py'\n"));
    CHECK_THAT(ended, Contains("after 1 min 30 s: exit 3, rank_failed\n"));
    CHECK_THAT(ended, Contains("\n\ndtrun: rank 1 failed\n"));
    CHECK_THAT(shown({a_start()}), Contains("without saying how"));
    CHECK_THAT(shown({a_start()}, Life::unknown), Contains("ask on head"));
    CHECK_THAT(shown({a_start()}, Life::runs), Contains("not yet"));
    const std::string table =
        history_table({{{a_start(), an_end()}, Life::gone}, {{a_start()}, Life::gone}}, 80);
    for (const std::string_view line : split(table, '\n')) CHECK(line.size() <= 80);
    CHECK_THAT(table, Contains("exit 3, rank_failed") && Contains("not known") &&
                          Contains("train: python3~"));
    JobStart evil = a_start();
    evil.program = evil.name = "\x1b[2J";
    CHECK_THAT(history_table({{{evil}, Life::gone}}, 0), !Contains("\x1b"));
}

TEST_CASE("a name is held by one job at a time", "[launcher][history]") {
    using namespace control;
    const std::string name = fmt::format("test{}", ::getpid());
    {
        const auto held = hold_name(name, {});
        REQUIRE(held.has_value());
        CHECK_THAT(message_of(hold_name(name, {})), Contains("take another name"));
        CHECK(hold_name(name + "x", {}).has_value());
    }
    CHECK(hold_name(name, {}).has_value());
    const std::vector<JobSocket> running{{"3f2a", "/a", 10, "train"}, {"train0", "/b", 20}};
    CHECK_THAT(message_of(hold_name("train", running)), Contains("3f2a (pid 10)"));
    CHECK(choose_job(running, "train").value().job == "3f2a");
    CHECK(choose_job(running, "train0").value().job == "train0");
    CHECK(socket_name("3f2a", "") == "3f2a.sock");
    CHECK(socket_name("3f2a", "train") == "3f2a.train.sock");
}

TEST_CASE("-d, --name and --no-record say how a job is kept", "[launcher][history]") {
    const Options options = options_of("-d --name a-1_B -np 2 x");
    CHECK(options.history.detach);
    CHECK(options.history.name == "a-1_B");
    CHECK_FALSE(options.history.off);
    CHECK(options_of("--no-record x").history.off);
    CHECK(options_of("--detach x").history.detach);
    for (const char* const wrong : {"1a", "a.b", "a/b", "-", "a234567890123456789012345678901234"})
        CHECK_THAT(error_of(fmt::format("--name={} x", wrong)), Contains("is no name of a job"));
    CHECK_THAT(error_of("-d --pty x"), Contains("--pty"));
    CHECK_THAT(error_of("-np 2 --again x"), Contains("dtrun --again [JOB]"));
    CHECK_THAT(error_of("-d --mpi mpirun x"), Contains("--detach would need"));
}
