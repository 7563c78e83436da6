// The flags by which one looks into ranks.

#include "launcher/control/caller_server.h"
#include "launcher/control/control_place.h"
#include "launcher/control/control_server.h"
#include "launcher/head/port_forward.h"
#include "launcher/inspect/collective_calls.h"
#include "launcher/inspect/stacks_text.h"
#include "launcher/output/user_terminal.h"
#include "tests/launcher/cli_support.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <map>

using namespace dtrun;
using Catch::Contains;
using Strings = std::vector<std::string>;

TEST_CASE("--wrap takes a command for all ranks, or for those before its colon",
          "[launcher][look]") {
    const Options options =
        options_of("-np 4 --wrap 'nsys profile -o \"p %q{RANK}\" {}' --wrap 0,2-3:'perf record' x");
    REQUIRE(options.wraps.size() == 2);
    CHECK(options.wraps[0].words == Strings{"nsys", "profile", "-o", "p %q{RANK}", "{}"});
    CHECK(options.wraps[0].ranks.empty());
    CHECK(options.wraps[1].words == Strings{"perf", "record"});
    CHECK(options.wraps[1].ranks.largest() == 3);
    CHECK_FALSE(options.wraps[1].ranks.contains(1));
    CHECK(options.wraps[1].written == "0,2-3:perf record");
}

TEST_CASE("a colon in the command itself names no ranks", "[launcher][look]") {
    CHECK(options_of("--wrap 'env A=b:c' x").wraps[0].words == Strings{"env", "A=b:c"});
    CHECK(options_of("--wrap '1:env 2:x' x").wraps[0].words == Strings{"env", "2:x"});
}

TEST_CASE("a --wrap that wraps nothing is refused", "[launcher][look]") {
    CHECK_THAT(error_of("--wrap 'env \"x' x"), Contains("is never closed"));
    CHECK_THAT(error_of("--wrap 0: x"), Contains("'0:' names no command before the program"));
    CHECK_THAT(error_of("--wrap '{} x' x"), Contains("names no command"));
    CHECK_THAT(error_of("--wrap 3-1:env x"), Contains("range 3-1 runs backwards"));
    CHECK_THAT(error_of("--mpi mpirun --wrap env x"), Contains("which --wrap would need"));
}

TEST_CASE("--pty gives a rank a terminal and the input, and never takes the program for its value",
          "[launcher][look]") {
    CHECK_FALSE(options_of("bash").pty.has_value());
    const Options alone = options_of("--pty -np 2 bash");
    CHECK(alone.pty == 0);
    CHECK(alone.program == Strings{"bash"});
    const Options third = options_of("--pty=3 -np 4 bash");
    CHECK(third.pty == 3);
    CHECK(third.stdin_target == StdinTarget{StdinTarget::Kind::rank, 3});
    CHECK_THAT(error_of("--pty --stdin 1 bash"), Contains("--stdin"));
    CHECK_THAT(error_of("--pty=x bash"), Contains("--pty"));
    CHECK_THAT(error_of("--pty --min-np 1 -np 2 -H s1,s2 bash"), Contains("leave out --min-np"));
}

TEST_CASE("--debug-rank names a rank, and a debugger or none", "[launcher][look]") {
    CHECK(options_of("--debug-rank 3 x").debug_rank == 3);
    CHECK(options_of("--debug-rank 3 x").debugger == Debugger::automatic);
    CHECK(options_of("--debug-rank 0:gdb x").debugger == Debugger::gdb);
    CHECK(options_of("--debug-rank 0:debugpy x").debugger == Debugger::debugpy);
    CHECK_THAT(error_of("--debug-rank 0:pdb x"), Contains("'pdb' is not one of gdb and debugpy"));
}

TEST_CASE("a user leaves a raw terminal by ~. at the begin of a line only", "[launcher][look]") {
    const auto typed = [](std::initializer_list<const char*> pieces) {
        output::EscapeWatch watch;
        std::string passed;
        for (const char* const piece : pieces) passed += watch.pass(piece);
        return passed + (watch.escaped() ? " left" : "");
    };
    CHECK(typed({"~."}) == " left");
    CHECK(typed({"ls\r", "~", ".rest"}) == "ls\r left");
    CHECK(typed({"cd ~.\r"}) == "cd ~.\r");
    CHECK(typed({"~~.\r"}) == "~.\r");
    CHECK(typed({"~/x\r"}) == "~/x\r");
    CHECK(typed({"\x03~."}) == "\x03~.");
}

TEST_CASE("a job is meant by its id, a begin of that, its pid, or by being the only one",
          "[launcher][look]") {
    using namespace control;
    const std::vector<JobSocket> jobs{{"3f2a", "/a", 10}, {"3fbb", "/b", 20}, {"77", "/c", 30}};
    CHECK(choose_job(jobs, "3f2").value().path == "/a");
    CHECK(choose_job(jobs, "20").value().path == "/b");
    CHECK(choose_job({jobs[2]}, "").value().path == "/c");
    CHECK(message_of(choose_job(jobs, "")) ==
          "several jobs run here; say which: 3f2a (pid 10), 3fbb (pid 20) and 77 (pid 30)");
    CHECK(message_of(choose_job(jobs, "3f")) ==
          "several jobs begin with '3f'; say which: 3f2a (pid 10) and 3fbb (pid 20)");
    CHECK_THAT(message_of(choose_job(jobs, "99")), Contains("no job '99' runs here"));
    CHECK_THAT(message_of(choose_job({}, "")), Contains("no job of yours runs here"));
}

TEST_CASE("a control socket at which nobody listens is removed, and a folder of others not used",
          "[launcher][look]") {
    using namespace control;
    const TempDir dir;
    const std::string folder = dir.path() + "/dtrun";
    REQUIRE(make_private_folder(folder).has_value());
    REQUIRE(make_private_folder(folder).has_value());
    asio::io_context io;
    Unix::acceptor living(io, Unix::endpoint(folder + "/aa.sock"));
    { const Unix::acceptor dead(io, Unix::endpoint(folder + "/bb.sock")); }
    const auto jobs = running_jobs({dir.path() + "/none", folder});
    REQUIRE(jobs.size() == 1);
    CHECK(jobs[0].job == "aa");
    CHECK(jobs[0].head == ::getpid());
    CHECK(::access((folder + "/bb.sock").c_str(), F_OK) != 0);

    // Who cleans /tmp leaves alone what is locked.
    struct : control::ControlEvents {
        void asked(CallerId, const ControlRequest&) override {}
        void typed(CallerId, std::string_view) override {}
        void resized(CallerId, const TerminalSize&) override {}
        void left(CallerId) override {}
    } nobody;
    const Fd own(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const auto is_locked = [&] {
        const bool has_locked = ::flock(own.get(), LOCK_EX | LOCK_NB) == 0;
        if (has_locked) ::flock(own.get(), LOCK_UN);
        return !has_locked;
    };
    CHECK_FALSE(is_locked());
    auto server = ControlServer::open(io.get_executor(), folder, "cc.train.sock", nobody);
    REQUIRE(server.has_value());
    CHECK(is_locked());
    REQUIRE(running_jobs({folder}).size() == 2);
    CHECK(running_jobs({folder})[1].job == "cc");
    CHECK(running_jobs({folder})[1].name == "train");
    (*server)->stop();
    asio::co_spawn(io, (*server)->join(), [](const std::exception_ptr&) {});
    io.run();
    server->reset();
    CHECK_FALSE(is_locked());

    REQUIRE(::chmod(folder.c_str(), 0755) == 0);
    CHECK(make_private_folder(folder).error().code == Errc::denied);
    CHECK(running_jobs({folder}).empty());
    const std::string link = dir.path() + "/link";
    REQUIRE(::symlink(folder.c_str(), link.c_str()) == 0);
    CHECK(make_private_folder(link).error().code == Errc::denied);
    CHECK(make_private_folder(dir.path() + "/.cache/dtrun/run-here").has_value());
}

asio::awaitable<void> take_away(control::CallerServer& server) {
    server.stop();
    co_await server.join();
}

TEST_CASE("a socket that is taken away waits for nobody who comes just then", "[launcher][look]") {
    using namespace control;
    const TempDir dir;
    const std::string folder = dir.path() + "/run";
    asio::io_context io;
    struct Nobody : CallerEvents {
        Result<void> heard(CallerId, const FrameView&) override { return {}; }
        void left(CallerId) override {}
    } nobody;
    CallerServer server(io.get_executor(), "a test's socket", nobody);
    REQUIRE(server.listen(folder, "x.sock").has_value());
    bool is_over = false;
    asio::co_spawn(io, take_away(server),
                   [&is_over](const std::exception_ptr&) { is_over = true; });
    Unix::socket comes(io);
    comes.connect(Unix::endpoint(folder + "/x.sock"));
    io.run_for(std::chrono::seconds(2));
    CHECK(is_over);
    comes.close();
    io.run_for(std::chrono::seconds(2));
}

TEST_CASE("somebody else's folder in /tmp does not hide a user's jobs", "[launcher][look]") {
    using namespace control;
    const auto folders = control_folders("/site/run", "/home/u");
    REQUIRE(folders.size() == 3);
    CHECK(folders[0] == "/site/run/dtrun");
    CHECK(folders[1] == fmt::format("/tmp/dtrun-{}", ::geteuid()));
    CHECK(folders[2].starts_with("/home/u/.cache/dtrun/run-"));
    CHECK(control_folders("", "").size() == 1);
}

TEST_CASE("jobs are found after the session in which they were started", "[launcher][look]") {
    const auto folders = control::control_folders("/run/user/7", "/home/u");
    REQUIRE(folders.size() == 3);
    CHECK(folders[0] == fmt::format("/tmp/dtrun-{}", ::geteuid()));
    CHECK(folders[2] == "/run/user/7/dtrun");
}

TEST_CASE("equal stacks are one block under their ranks, and Python comes first",
          "[launcher][look]") {
    const auto host_of = [](Rank rank) { return fmt::format("s{}", rank); };
    std::vector<ProcessStacks> processes;
    for (std::uint32_t rank = 0; rank < 8; ++rank) {
        const bool waits = rank != 3;
        processes.push_back({.rank = Rank{rank},
                             .pid = 100 + rank,
                             .program = "train",
                             .tool = "gdb",
                             .note = {},
                             .threads = {{"main", 1, {"poll"}}}});
        processes.push_back(
            {.rank = Rank{rank},
             .pid = 100 + rank,
             .program = "train",
             .tool = "py-spy",
             .note = {},
             .threads = {{"MainThread", 1, {waits ? "all_reduce (d.py:2)" : "load (x.py:1)"}},
                         {"T", 2, {"wait"}}}});
    }
    inspect::FoldedStacks stacks;
    for (const ProcessStacks& process : processes) stacks.add(process);
    CHECK(stacks.text(host_of, 100) ==
          Strings{"ranks 0-2, 4-7 (7): train, by py-spy", "  thread MainThread",
                  "    all_reduce (d.py:2)", "  2 threads such as T", "    wait",
                  "rank 3 on s3, pid 103: train, by py-spy", "  thread MainThread",
                  "    load (x.py:1)", "  2 threads such as T", "    wait",
                  "ranks 0-7 (8): train, by gdb", "  thread main", "    poll"});
    const auto cut = stacks.text(host_of, 4);
    CHECK(cut.size() == 5);
    CHECK(cut.back() == "… and 9 more lines");
}

/// Of a rank that is Python, as it tells it itself.
ProcessStacks python_rank(std::uint32_t rank, Strings frames, std::string tool = "faulthandler") {
    return {.rank = Rank{rank},
            .pid = 7,
            .program = "python3.11",
            .tool = std::move(tool),
            .note = {},
            .threads = {{"MainThread", 1, std::move(frames)}, {"", 2, {"wait (threading.py:3)"}}}};
}

TEST_CASE("ranks that are in a collective operation, and those that are not, are told first",
          "[launcher][look]") {
    using Frames = std::map<Rank, Strings>;
    const Strings reduces{"all_reduce (torch/distributed/distributed_c10d.py:9)",
                          "wrapper (torch/distributed/c10d_logger.py:4)", "step (train.py:8)"};
    const Strings loads{"load_batch (train.py:5)", "step (train.py:7)"};
    const Strings gathers{"synchronize (horovod/torch/mpi_ops.py:1)",
                          "allgather (horovod/torch/mpi_ops.py:2)", "step (train.py:9)"};
    CHECK(inspect::who_takes_part(Frames{
              {Rank{0}, reduces}, {Rank{1}, reduces}, {Rank{2}, loads}, {Rank{3}, reduces}}) ==
          Strings{"ranks 0-1, 3 are in all_reduce: step (train.py:8)",
                  "rank 2 is not: load_batch (train.py:5)"});
    CHECK(
        inspect::who_takes_part(Frames{{Rank{0}, reduces}, {Rank{1}, gathers}, {Rank{2}, loads}}) ==
        Strings{"rank 0 is in all_reduce: step (train.py:8)",
                "rank 1 is in allgather: step (train.py:9)",
                "rank 2 is in none: load_batch (train.py:5)"});
    CHECK(inspect::who_takes_part(Frames{{Rank{0}, reduces}, {Rank{1}, reduces}}) ==
          Strings{"all 2 ranks are in all_reduce: step (train.py:8)"});
    CHECK(inspect::who_takes_part(Frames{{Rank{0}, reduces}, {Rank{1}, reduces}},
                                  {{Rank{2}, "it has ended"}, {Rank{3}, ""}, {Rank{4}, ""}}) ==
          Strings{"ranks 0-1 are in all_reduce: step (train.py:8)", "ranks 3-4 have said nothing",
                  "rank 2 has said nothing: it has ended"});
    CHECK(inspect::who_takes_part(Frames{{Rank{0}, loads}}).empty());
    CHECK(inspect::who_takes_part(Frames{{Rank{0}, {"reduce (functools.py:1)"}}, {Rank{1}, {}}})
              .empty());
    Frames many;
    for (std::uint32_t rank = 0; rank < 20; ++rank)
        many[Rank{rank}] = {"barrier (dtrun/collectives.py:1)", fmt::format("f (x.py:{})", rank)};
    CHECK(inspect::who_takes_part(many).size() == 7);
    CHECK(inspect::who_takes_part(many).back() == "… and ranks at 14 other places");
}

TEST_CASE("what to do about Python that says nothing is the first line", "[launcher][look]") {
    inspect::FoldedStacks stacks;
    stacks.add(python_rank(0, {"f (x.py:1)"}));
    stacks.add(python_rank(1, {"futex_do_wait"}, "/proc"));
    CHECK(stacks.summary() == Strings{"rank 1 is Python: for its functions install py-spy on the "
                                      "host (pip install py-spy)"});
    stacks.add(python_rank(2, {"futex_do_wait"}, "gdb"));
    CHECK(stacks.summary() == Strings{"ranks 1-2 are Python: for its functions install py-spy on "
                                      "the hosts (pip install py-spy)"});
    stacks.add(python_rank(1, {"g (x.py:1)"}, "py-spy"));
    stacks.add(python_rank(2, {"g (x.py:1)"}));
    CHECK(stacks.summary().empty());
    // A rank that is stopped is neither lost among the others nor to be had by py-spy.
    ProcessStacks stopped = python_rank(3, {"do_signal_stop"}, "/proc");
    stopped.note = "it is stopped by a signal";
    stacks.add(stopped);
    CHECK(stacks.summary().empty());
    stacks.add(python_rank(4, {"barrier (dtrun/__init__.py:1)", "main (x.py:2)"}));
    CHECK(stacks.summary({{Rank{3}, ""}, {Rank{4}, ""}, {Rank{5}, "it has ended"}}) ==
          Strings{"rank 4 is in barrier: main (x.py:2)", "ranks 1-2 are not: g (x.py:1)",
                  "rank 0 is not: f (x.py:1)", "rank 5 has said nothing: it has ended",
                  "rank 3 has said nothing: it is stopped by a signal"});
    // Of what Python has cut the first thread is any.
    ProcessStacks many = python_rank(5, {"barrier (dtrun/__init__.py:1)"});
    many.note = "it has more than 100 threads";
    stacks.add(many);
    CHECK(stacks.summary({{Rank{4}, ""}, {Rank{5}, ""}}).back() ==
          "rank 5 has said nothing: it has more than 100 threads");
    stacks.add(python_rank(5, {"broadcast (dtrun/__init__.py:1)", "main (x.py:2)"}, "py-spy"));
    CHECK_THAT(fmt::format("{}", fmt::join(stacks.summary({{Rank{5}, ""}}), "\n")),
               Catch::Contains("rank 5 is in broadcast: main (x.py:2)"));
}

TEST_CASE("a brief text has the main thread of each rank, and both ends of a deep stack",
          "[launcher][look]") {
    inspect::FoldedStacks stacks;
    Strings deep;
    for (int i = 0; i < 40; ++i) deep.push_back(fmt::format("f{} (x.py:1)", i));
    stacks.add(python_rank(0, deep));
    ProcessStacks stopped = python_rank(1, {"do_signal_stop"}, "/proc");
    stopped.note = "it is stopped by a signal";
    stacks.add(stopped);
    ProcessStacks loader = python_rank(0, {"fetch (y.py:1)"});
    loader.is_child = true;
    stacks.add(loader);
    const auto lines =
        stacks.text([](Rank) { return "s1"; }, 40, inspect::FoldedStacks::Form::brief);
    REQUIRE(lines.size() == 1 + 8 + 1 + 4 + 1);
    CHECK(lines[0] == "rank 0 on s1, pid 7: python3.11, by faulthandler");
    CHECK(lines[1] == "  f0 (x.py:1)");
    CHECK(lines[9] == "  … 28 frames");
    CHECK(lines[13] == "  f39 (x.py:1)");
    CHECK(lines[14] == "rank 1 on s1, pid 7: python3.11, by /proc (it is stopped by a signal)");
}

TEST_CASE("of a job whose ranks are all at different places not all places are kept",
          "[launcher][look]") {
    inspect::FoldedStacks stacks;
    for (std::uint32_t rank = 0; rank < 600; ++rank)
        stacks.add({.rank = Rank{rank},
                    .pid = 1,
                    .program = "x",
                    .tool = "gdb",
                    .note = {},
                    .threads = {{"main", 1, {fmt::format("f{}", rank)}}}});
    const auto lines = stacks.text([](Rank) { return "s1"; }, 10'000);
    CHECK(lines.size() == 3 * 500 + 1);
    CHECK(lines.back() == "… and 100 processes at other places");
}

TEST_CASE("names in stacks cannot give orders to the terminal of `dtrun stacks`",
          "[launcher][look]") {
    inspect::FoldedStacks stacks;
    stacks.add({.rank = Rank{0},
                .pid = 1,
                .program = "a\x1b[2J",
                .tool = "gdb",
                .note = {},
                .threads = {{"t\r", 1, {"f\n", "g\xc2\x9b\x7fü"}}}});
    CHECK(stacks.text([](Rank) { return "s1"; }, 9) ==
          Strings{"rank 0 on s1, pid 1: a?[2J, by gdb", "  thread t?", "    f?", "    g??ü"});
}

TEST_CASE("who waits for a debugger says what to paste", "[launcher][look]") {
    DebugStatus news{Rank{3}, Debugger::debugpy, "/usr/bin/python3"};
    CHECK(head::debugger_text(news, "s2", 4711) ==
          "dtrun: rank 3 on s2 waits for a debugger at 127.0.0.1:4711\n"
          "  VS Code, launch.json: {\"name\": \"rank 3\", \"type\": \"debugpy\", \"request\": "
          "\"attach\", \"connect\": {\"host\": \"127.0.0.1\", \"port\": 4711}}\n");
    news = {Rank{0}, Debugger::gdb, "/my dir/solver"};
    CHECK(head::debugger_text(news, "s1", 1) ==
          "dtrun: rank 0 on s1 waits for gdb at 127.0.0.1:1\n"
          "  gdb -ex 'target remote 127.0.0.1:1' '/my dir/solver'\n");
}
