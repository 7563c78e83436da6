// What is made of the texts of gdb, py-spy and /proc, and what may be sent to ranks.

#include "rendezvous/wire/look_messages.h"
#include "tests/support/catch.h"
#include "worker/ranks/stack_taker.h"
#include "worker/ranks/stack_text.h"

#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

namespace dtrun {

using namespace ranks;
using Strings = std::vector<std::string>;
namespace {

/// A child that sleeps, with or without a handler for SIGUSR1.
class Sleeper {
public:
    explicit Sleeper(bool catches) {
        int ready[2];
        REQUIRE(::pipe(ready) == 0);
        pid_ = ::fork();
        if (pid_ == 0) {
            ::signal(SIGUSR1, catches ? [](int) {} : SIG_DFL);
            if (::write(ready[1], "x", 1) != 1) ::_exit(1);
            for (;;) ::pause();
        }
        char byte = 0;
        REQUIRE(::read(ready[0], &byte, 1) == 1);
        ::close(ready[0]);
        ::close(ready[1]);
    }
    ~Sleeper() {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;
    pid_t pid() const { return pid_; }

private:
    pid_t pid_ = 0;
};

}  // namespace

TEST_CASE("of gdb's text functions and places are left, the first thread first", "[stacks]") {
    const auto threads = parse_gdb(R"([New LWP 14553]
0x00007f101bb4fdf2 in __libc_pause () at ../sysdeps/unix/sysv/linux/pause.c:29
29	../sysdeps/unix/sysv/linux/pause.c: No such file or directory.

Thread 2 (Thread 0x7f101ba786c0 (LWP 14553) "worker"):
#0  __sleep (seconds=...) at ../sysdeps/posix/sleep.c:55
#1  0x00007f101ba00000 in std::function<void ()>::operator() (this=...) from /lib/libwork.so.1

Thread 1 (Thread 0x7f101ba79740 (LWP 14550) "spin"):
#0  <signal handler called>
#1  outer (a=..., b=...) at /tmp/spin.c:6
#2  main () at /tmp/spin.c:7
[Inferior 1 (process 14550) detached]
)");
    REQUIRE(threads.size() == 2);
    CHECK(threads[0].name == "spin");
    CHECK(threads[0].frames ==
          Strings{"<signal handler called>", "outer at /tmp/spin.c:6", "main at /tmp/spin.c:7"});
    CHECK(threads[1].name == "worker");
    CHECK(threads[1].frames ==
          Strings{"__sleep at ../sysdeps/posix/sleep.c:55",
                  "std::function<void ()>::operator() from /lib/libwork.so.1"});
}

TEST_CASE("of py-spy's text the main thread comes first, without what differs between equal ranks",
          "[stacks]") {
    constexpr const char* kText = R"text(Process 14758: python3 train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 0x7F12 (active): "Thread-1 (loader)"
    load (data.py:3)
Thread 14758 (idle): "MainThread"
    all_reduce (distributed.py:20)
    <module> (train.py:5)
)text";
    const auto threads = parse_py_spy(kText);
    REQUIRE(threads.size() == 2);
    CHECK(threads[0] == ThreadStack{"MainThread",
                                    1,
                                    {"all_reduce (distributed.py:20)", "<module> (train.py:5)"}});
    CHECK(threads[1].name == "Thread-1 (loader)");
}

TEST_CASE(
    "of faulthandler's text the main thread, the last one, comes first, with files as modules are "
    "named",
    "[stacks]") {
    constexpr const char* kText =
        R"text(Thread 0x00007f3a1d7fa6c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait
  File "/home/u/run/data/loader.py", line 7 in fetch

Current thread 0x00007f3a20b3d740 (most recent call first):
  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 2806 in all_reduce
  File "/home/u/run/train.py", line 41 in train_step
  File "<string>", line 1 in <module>
)text";
    const auto threads = parse_faulthandler(kText, "/home/u/run");
    REQUIRE(threads.size() == 2);
    CHECK(threads[0].name == "MainThread");
    CHECK(threads[0].frames == Strings{"all_reduce (torch/distributed/distributed_c10d.py:2806)",
                                       "train_step (train.py:41)", "<module> (<string>:1)"});
    CHECK(threads[1].name.empty());
    CHECK(threads[1].frames == Strings{"wait (threading.py:324)", "fetch (data/loader.py:7)"});
}

TEST_CASE("faulthandler's odd outputs are understood, of each version of Python", "[stacks]") {
    // 3.14: threads have names, and after them come functions in C.
    auto threads =
        parse_faulthandler(R"text(Thread 0x00007f0b [pt_data_worker] (most recent call first):
  <no Python frame>

Current thread 0x00007f0c [python3.14] (most recent call first):
  Garbage-collecting
  File "/a b/\u6a21\u578b.py", line 3 in gr\xf6\xdfe
  File ???, line ??? in ???
  ...

Current thread's C stack trace (most recent call first):
  Binary file "/usr/bin/python3.14", at _PyEval_Vector+0x1f [0x55]
  <truncated rest of calls>
)text",
                           "/a b");
    REQUIRE(threads.size() == 2);
    CHECK(threads[0].name == "MainThread");
    CHECK(threads[0].frames ==
          Strings{"Garbage-collecting", "größe (模型.py:3)", "\?\?\? (\?\?\?:\?\?\?)", "…"});
    CHECK(threads[1] == ThreadStack{"pt_data_worker", 1, {"<no Python frame>"}});
    // Without the interpreter's lock one thread is shown.
    threads = parse_faulthandler(
        "<Cannot show all threads while the GIL is disabled>\n"
        "Stack (most recent call first):\n  File \"x.py\", line 1 in f\n"
        "Current thread 0x1 (most recent call first):\n"
        "  File \"x.py\", line 2 in \\ud800\\x\n",
        "/");
    REQUIRE(threads.size() == 1);
    CHECK(threads[0].frames.size() == 1);
    // After 100 threads there are dots, and the main thread is not among them.
    threads =
        parse_faulthandler("Thread 0x1 (most recent call first):\n  <invalid frame>\n...\n", "");
    REQUIRE(threads.size() == 1);
    CHECK(threads[0].name.empty());
}

TEST_CASE("what is no stack gives none", "[stacks]") {
    for (const char* text : {"", "ptrace: Operation not permitted.\n", "#0 lost\n    lost\n",
                             "\"\n#", "  File \"a\", line 1 in f\n", "Timeout (0:00:01)!\n"}) {
        CHECK(parse_faulthandler(text, "/").empty());
        CHECK(parse_gdb(text).empty());
        CHECK(parse_py_spy(text).empty());
        CHECK(parse_kernel_stack(text).empty());
    }
    CHECK(
        parse_kernel_stack("[<0>] futex_wait_queue+0x66/0x90\n[<0>] do_syscall_64+0x71/0x290\n") ==
        Strings{"futex_wait_queue", "do_syscall_64"});
}

TEST_CASE("threads at the same place are one, and what is too much is cut", "[stacks]") {
    std::vector<ThreadStack> threads{
        {"main", 1, {"a"}}, {"w1", 1, {"b", "c"}}, {"w2", 1, {"b", "c"}}};
    const auto folded = fold_threads(threads);
    REQUIRE(folded.size() == 2);
    CHECK(folded[1] == ThreadStack{"w1", 2, {"b", "c"}});

    threads.clear();
    for (std::size_t i = 0; i < 2 * kThreadsMax; ++i)
        threads.push_back(
            {"t", 1, Strings(2 * kFramesMax, std::string(1'000, 'x') + std::to_string(i))});
    for (std::size_t i = 0; i < threads.size(); ++i) threads[i].frames[0] = std::to_string(i);
    const auto cut = fold_threads(threads);
    REQUIRE(cut.size() == kThreadsMax + 1);
    CHECK(cut[0].frames.size() == kFramesMax + 1);
    CHECK(cut[0].frames[1].size() < kFrameBytesMax + 8);
    CHECK(cut.back().name == "and 64 more");
}

TEST_CASE("a signal is sent only to ranks that catch it", "[stacks]") {
    const Sleeper catches(true), would_die(false);
    CHECK(signal_catchers({{Rank{0}, catches.pid()}, {Rank{1}, would_die.pid()}}, SIGUSR1) == 1);
    CHECK(::waitpid(would_die.pid(), nullptr, WNOHANG) == 0);
}

TEST_CASE("/proc says where a process is, and nothing of one that has gone", "[stacks]") {
    const Sleeper sleeper(false);
    const ProcessStacks process = stacks_by_proc(sleeper.pid());
    CHECK(process.tool == "/proc");
    REQUIRE(process.threads.size() == 1);
    CHECK_FALSE(process.threads[0].frames.empty());
    CHECK(stacks_by_proc(0).threads.empty());
}

}  // namespace dtrun
