// Real Python processes, asked where they are.

#include "base/fd.h"
#include "base/process/subprocess.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "worker/ranks/python_dump.h"
#include "worker/ranks/stack_text.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace dtrun {

using namespace ranks;
using Strings = std::vector<std::string>;
namespace {

/// A Python program that has printed a line; it is killed at the end.
class PythonProgram {
public:
    explicit PythonProgram(const std::string& program, const Strings& options = {},
                           const Strings& more_env = {}) {
        auto out = make_pipe();
        REQUIRE(out.has_value());
        const std::string path = "/usr/bin/python3";
        Strings argv{"python3"},
            env{"PATH=/usr/bin:/bin", "PYTHONPATH=" DTRUN_STARTUP, "PYTHONDONTWRITEBYTECODE=1"};
        argv.insert(argv.end(), options.begin(), options.end());
        argv.insert(argv.end(), {"-uc", program});
        env.insert(env.end(), more_env.begin(), more_env.end());
        ProcessPlan plan{.path = path, .argv = argv, .env = env};
        plan.descriptors = {{out->write.get(), STDOUT_FILENO}};
        plan.group = ProcessPlan::Group::own_group;
        const auto pid = spawn_process(plan);
        REQUIRE(pid.has_value());
        pid_ = *pid;
        out->write.reset();
        for (char byte = 0; byte != '\n' && ::read(out->read.get(), &byte, 1) == 1;)
            said_.push_back(byte);
        REQUIRE(said_.ends_with('\n'));
    }
    ~PythonProgram() {
        ::kill(-pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    PythonProgram(const PythonProgram&) = delete;
    PythonProgram& operator=(const PythonProgram&) = delete;

    pid_t pid() const { return pid_; }
    const std::string& said() const { return said_; }
    bool lives() const { return ::waitpid(pid_, nullptr, WNOHANG) == 0; }

private:
    pid_t pid_ = 0;
    std::string said_;
};

std::vector<PythonDump> ask(std::vector<pid_t> pids) {
    asio::io_context io;
    std::optional<std::vector<PythonDump>> result;
    const Deadline until = after(std::chrono::seconds(20));
    asio::co_spawn(io, ask_python(std::move(pids), until),
                   [&](std::exception_ptr, std::vector<PythonDump> dumps) { result = dumps; });
    io.run_for(std::chrono::seconds(25));
    REQUIRE(result.has_value());
    return *result;
}

/// The same once it is as it is to be: a program that has printed its line is still on its way to where it stays.
std::vector<PythonDump> ask_until(
    const std::vector<pid_t>& pids,
    const std::function<bool(const std::vector<PythonDump>&)>& is_so) {
    std::vector<PythonDump> dumps = ask(pids);
    for (int i = 0; i < 200 && !is_so(dumps); ++i) {
        ::usleep(20'000);
        dumps = ask(pids);
    }
    return dumps;
}

bool is_in(const PythonDump& dump, std::string_view function) {
    return dump.text.find(fmt::format(" in {}\n", function)) != std::string::npos;
}

/// The frames of the main thread.
Strings main_thread(const PythonDump& dump) {
    INFO(dump.text << dump.why);
    const auto threads = parse_faulthandler(dump.text, "/");
    REQUIRE_FALSE(threads.empty());
    CHECK(threads.front().name == "MainThread");
    return threads.front().frames;
}

}  // namespace

TEST_CASE("a Python program says where all its threads are, as often as it is asked", "[stacks]") {
    const PythonProgram program(R"(
import threading, time
def rest():
    time.sleep(60)
def loader():
    rest()
def train_step():
    rest()
thread = threading.Thread(target=loader)
thread.start()
print("ready")
train_step()
)");
    ask_until({program.pid()}, [](const std::vector<PythonDump>& dumps) {
        const auto threads = parse_faulthandler(dumps.at(0).text, "/");
        const auto rests = [](const ThreadStack& thread) {
            return thread.frames.front().starts_with("rest ");
        };
        return threads.size() == 2 && std::ranges::all_of(threads, rests);
    });
    for (int i = 0; i < 3; ++i) {
        const auto dumps = ask({program.pid()});
        REQUIRE(dumps.size() == 1);
        CHECK(main_thread(dumps[0]) ==
              Strings{"rest (<string>:4)", "train_step (<string>:8)", "<module> (<string>:12)"});
        const auto threads = parse_faulthandler(dumps[0].text, "/");
        REQUIRE(threads.size() == 2);
        CHECK(threads[1].frames.at(1) == "loader (<string>:6)");
    }
    CHECK(program.lives());
}

TEST_CASE("a main thread in C that keeps the interpreter's lock answers", "[stacks]") {
    const PythonProgram program(R"(
import re
def slow():
    re.match("(a+)+$", "a" * 60 + "b")
print("ready")
slow()
)");
    const auto frames =
        main_thread(ask_until({program.pid()}, [](const std::vector<PythonDump>& dumps) {
                        return is_in(dumps.at(0), "slow");
                    }).at(0));
    CHECK(std::ranges::count(frames, "slow (<string>:4)") == 1);
}

TEST_CASE("forked processes, which have one file, answer one after the other", "[stacks]") {
    const PythonProgram program(R"(
import os, time
def child(n): time.sleep(60)
def other(n): time.sleep(60)
pids = []
for i in range(4):
    pid = os.fork()
    if pid == 0:
        (child if i % 2 else other)(i)
    pids.append(pid)
print(*pids)
time.sleep(60)
)");
    std::vector<pid_t> pids{program.pid()};
    for (const char* at = program.said().c_str(); *at != '\n' && *at != '\0';)
        pids.push_back(static_cast<pid_t>(std::strtol(at, const_cast<char**>(&at), 10)));
    REQUIRE(pids.size() == 5);
    const auto dumps = ask_until(pids, [](const std::vector<PythonDump>& all) {
        for (std::size_t i = 1; i < all.size(); ++i)
            if (!is_in(all[i], i % 2 == 0 ? "child" : "other")) return false;
        return all[0].text.find(" line 12 in ") != std::string::npos;  // not in print() any more
    });
    CHECK(main_thread(dumps[0]) == Strings{"<module> (<string>:12)"});
    for (std::size_t i = 1; i < dumps.size(); ++i)
        CHECK(main_thread(dumps[i]).front() ==
              (i % 2 == 0 ? "child (<string>:3)" : "other (<string>:4)"));
}

TEST_CASE("a process that is stopped is said to be, and is not asked", "[stacks]") {
    const PythonProgram program("import time; print('ready'); time.sleep(60)");
    ::kill(program.pid(), SIGSTOP);
    int status = 0;
    REQUIRE(::waitpid(program.pid(), &status, WUNTRACED) == program.pid());
    const auto dumps = ask({program.pid()});
    CHECK(dumps[0].text.empty());
    CHECK(dumps[0].why ==
          fmt::format("it is stopped by a signal: `kill -CONT {}` lets it go on", program.pid()));
}

TEST_CASE("a program's own handler of SIGURG runs, and nothing is said", "[stacks]") {
    const PythonProgram program(
        "import signal, time; signal.signal(signal.SIGURG, lambda *_: None); print('ready')\n"
        "while True: time.sleep(60)");
    const auto dumps = ask({program.pid()});
    CHECK(dumps[0].text.empty());
    CHECK(dumps[0].why == "its SIGURG is the program's own");
    CHECK(program.lives());
}

TEST_CASE("who does not listen is sent nothing", "[stacks]") {
    TempDir directory;
    const std::string file = directory.at("data");
    const std::string rest = "print('ready'); time.sleep(60)";
    const PythonProgram isolated("import time; " + rest, {"-I"});
    const PythonProgram off("import time; " + rest, {}, {"DTRUN_STACKS=0"});
    // What it has open where the file was is its own.
    const PythonProgram daemon(fmt::format("import os, time; os.closerange(3, 100); "
                                           "file = open({:?}, 'w'); ",
                                           file) +
                               rest);
    const PythonProgram blocks(
        "import signal, time; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGURG]); " + rest);
    const auto dumps = ask({isolated.pid(), off.pid(), daemon.pid(), blocks.pid(), 0, 1 << 22});
    for (const PythonDump& dump : dumps) CHECK(dump.text.empty());
    CHECK(dumps[0].why.empty());
    CHECK(dumps[3].why == "it blocks SIGURG");
    CHECK(isolated.lives());
    CHECK(daemon.lives());
    CHECK(read_file(file).value().empty());
}

}  // namespace dtrun
