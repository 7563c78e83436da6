#include "launcher/report/cures.h"
#include "launcher/report/report.h"
#include "tests/support/catch.h"

#include <fmt/format.h>
#include <csignal>
#include <functional>
#include <map>
#include <set>

namespace dtrun::test_cures {

using namespace report;
using namespace plan;
namespace {

constexpr std::string_view kNames[] = {
#define DTRUN_CURE(name, seen, signs, holds, text) #name,
#include "launcher/report/cures.def"
};

constexpr std::string_view kSources[] = {
#define DTRUN_CURE(name, seen, signs, holds, text) seen,
#include "launcher/report/cures.def"
};

using Lines = std::vector<std::string>;

/// Two ranks on s1, two on s2, with the contracts that are there by default.
JobSpec two_hosts() {
    JobSpec spec;
    spec.options.program = {"python3", "train.py"};
    spec.contracts = {"dtrun", "torch", "horovod", "deepspeed", "accelerate", "lightning", "mpi"};
    spec.directory = "/home/me";
    for (int host = 0; host < 2; ++host) {
        JobHost& made = spec.hosts.emplace_back();
        made.host.name = fmt::format("s{}", host + 1);
        made.transport = Transport::ssh;
        for (int i = 0; i < 2; ++i) {
            const int rank = 2 * host + i;
            spec.placement.ranks.push_back({rank, host, i});
            made.ranks.push_back(static_cast<SlotId>(rank));
        }
    }
    return spec;
}

/// A rank on s2, how it ends, and where it runs.
struct Sample {
    Lines lines{};
    int code = 1;
    int signal = 0;
    std::function<void(JobSpec&)> changed{};
    bool out_of_memory = false;
    bool hung = false;
};

/// Rank 3, on s2, has exited with code 1.
JobOutcome rank_3_failed() {
    JobOutcome outcome;
    outcome.cause = JobOutcome::Cause::rank_failed;
    outcome.first = Exited{};
    outcome.first->rank = Rank{3};
    outcome.first->pid = 4'242;
    outcome.first->code = 1;
    return outcome;
}

std::optional<Cure> cure_of(const Sample& sample) {
    JobSpec spec = two_hosts();
    if (sample.changed) sample.changed(spec);
    Exited exited;
    exited.rank = Rank{3};
    exited.pid = 4'242;
    exited.code = sample.signal != 0 ? 0 : sample.code;
    exited.signal = sample.signal;
    exited.out_of_memory = sample.out_of_memory;
    exited.hung = sample.hung;
    return find_cure({exited, SlotId{3}, sample.lines}, spec);
}

std::string name_of(const Sample& sample) {
    const auto cure = cure_of(sample);
    return cure ? std::string(cure->name) : "none";
}

std::string text_of(const Sample& sample) {
    const auto cure = cure_of(sample);
    return cure ? cure->text : "none";
}

void is_here(JobSpec& spec) {
    spec.hosts[HostId{1}].transport = Transport::local;
}

void is_mpirun(JobSpec& spec) {
    spec.options.program = {"/usr/bin/mpirun", "./a.out"};
}

void has_shim(JobSpec& spec) {
    spec.options.horovod_shim = true;
}

void has_macros(JobSpec& spec) {
    spec.options.rank_macros = true;
    spec.options.directory_in_pythonpath = true;
}

std::function<void(JobSpec&)> with_variable(const char* name, const char* value = "1") {
    return [=](JobSpec& spec) {
        for (auto* const env : {&spec.environment.local, &spec.environment.remote})
            env->emplace_back(name, value);
    };
}

Lines import_of(const std::string& module, const std::string& statement) {
    return {"Traceback (most recent call last):", "  File \"train.py\", line 1, in <module>",
            "    " + statement, "ModuleNotFoundError: No module named '" + module + "'"};
}

/// What users have seen, by the row of the table that is to answer.
const std::multimap<std::string_view, Sample>& samples() {
    static const std::multimap<std::string_view, Sample> kSamples{
        {"horovod_other", {import_of("horovod", "import horovod.tensorflow as hvd")}},
        {"horovod_other", {import_of("horovod.keras", "import horovod.keras"), 1, 0, has_shim}},
        {"horovod", {import_of("horovod", "import horovod.torch as hvd")}},
        {"horovod", {{"/usr/bin/python: No module named horovod.runner"}}},
        {"horovod",
         {{"ImportError: Extension horovod.torch has not been built.  If this is not expected, "
           "reinstall Horovod with HOROVOD_WITH_PYTORCH=1 to debug the build error."}}},
        {"dtrun_shadowed",
         {{"ModuleNotFoundError: No module named 'dtrun.collectives'; 'dtrun' is not a package"}}},
        {"dtrun_module", {import_of("dtrun", "import dtrun")}},
        {"mpi4py", {import_of("mpi4py", "from mpi4py import MPI")}},
        {"module", {import_of("tensorboard", "import tensorboard")}},
        {"script_nowhere",
         {{"python3: can't open file '/home/me/train.py': [Errno 2] No such file or directory"},
          2}},
        {"script_elsewhere",
         {{"python3: can't open file '/bin/sh': [Errno 2] No such file or directory"},
          2,
          0,
          [](JobSpec& spec) {
              spec.options.program = {"python3", "/bin/sh"};
          }}},
        {"script_nowhere",
         {{"sh: 0: cannot open run.sh: No such file"},
          2,
          0,
          [](JobSpec& spec) {
              spec.options.program = {"sh", "run.sh"};
          }}},
        {"script_elsewhere",
         {{"bash: passwd: No such file or directory"},
          127,
          0,
          [](JobSpec& spec) {
              spec.options.program = {"bash", "passwd"};
              spec.directory = "/etc";
          }}},
        {"script_elsewhere",  // which the host has looked for in its user's home
         {{"bash: /home/me/passwd: No such file or directory"},
          127,
          0,
          [](JobSpec& spec) {
              spec.options.program = {"bash", "passwd"};
              spec.directory = "/etc";
          }}},
        {"script",
         {{"/usr/bin/python3: can't open file 'train.py': [Errno 2] No such file or directory"},
          2,
          0,
          is_here}},
        {"carriage_return", {{"download.sh: line 2: $'\\r': command not found"}, 127}},
        {"not_executable", {{"run.sh: line 3: ./solver: Permission denied"}, 126}},
        {"no_command", {{"train.sh: line 1: torchrun: command not found"}, 127}},
        {"no_command", {{"sh: 1: torchrun: not found"}, 127}},
        {"libdtrun",
         {{"./a.out: error while loading shared libraries: libdtrun.so.0: cannot open shared "
           "object file: No such file or directory"},
          127}},
        {"libmpi",
         {{"ImportError: libmpi.so.40: cannot open shared object file: No such file or "
           "directory"}}},
        {"library",
         {{"./a.out: error while loading shared libraries: libhdf5.so.103: cannot open shared "
           "object file: No such file or directory"},
          127}},
        {"library",
         {{"OSError: libcudart.so.12: cannot open shared object file: No such file or directory"}}},
        {"glibc",
         {{"./a.out: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by "
           "./a.out)"}}},
        {"libstdcxx",
         {{"ImportError: /lib64/libstdc++.so.6: version `GLIBCXX_3.4.29' not found (required by "
           "/opt/conda/lib/libicu.so)"}}},
        {"contract", {{"KeyError: 'SLURM_PROCID'"}}},
        {"contract", {{"KeyError: 'OMPI_COMM_WORLD_RANK'"}}},
        {"contract",
         {{"ValueError: Error initializing torch.distributed using env:// rendezvous: environment "
           "variable RANK expected, but not set"},
          1,
          0,
          [](JobSpec& spec) { spec.contracts = {"dtrun"}; }}},
        {"contract", {{"run.sh: line 2: SLURM_NODEID: unbound variable"}}},
        {"contract", {{"run.sh: 2: SLURM_NTASKS: parameter not set"}, 2}},
        {"node_rank", {{"KeyError: 'NODE_RANK'"}}},
        {"local_rank_flag",
         {{"train.py: error: unrecognized arguments: --local_rank=0"}, 2, 0, has_macros}},
        {"device_ordinal", {{"RuntimeError: CUDA error: invalid device ordinal"}}},
        {"same_gpu",
         {{"torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:275, invalid usage",
           "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
           "Last error:", "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 10"}}},
        {"gpu_memory",
         {{"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.87 GiB (GPU 0; ..."}}},
        {"no_gpu", {{"RuntimeError: No CUDA GPUs are available"}}},
        {"gpu_kernels",
         {{"RuntimeError: CUDA error: no kernel image is available for execution on the device"}}},
        {"own_store",
         {{"torch.distributed.DistNetworkError: The client socket has timed out after 20000ms "
           "while trying to connect to (127.0.0.1, 24001)."}}},
        {"given_port",
         {{"RuntimeError: The server socket has failed to listen on any local network address. "
           "port: 29500, useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use"},
          1,
          0,
          with_variable("MASTER_PORT", "29500")}},
        {"port",
         {{"The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in "
           "use)."}}},
        {"port", {{"OSError: [Errno 98] Address already in use"}}},
        {"nccl",
         {{"RuntimeError: NCCL Error 2: unhandled system error (run with NCCL_DEBUG=INFO for "
           "details)"}}},
        {"interface",
         {{"ncclSystemError: System call (e.g. socket, malloc) or external library call failed or "
           "device error."},
          1,
          0,
          with_variable("NCCL_DEBUG")}},
        {"interface",
         {{"RuntimeError: Gloo connectFullMesh failed with [pair.cc:152] timed out connecting: "
           "SO_ERROR: Connection refused, remote=[127.0.0.1]:4711"}}},
        {"collective_timeout",
         {{"[E ProcessGroupNCCL.cpp:737] [Rank 1] Watchdog caught collective operation timeout: "
           "WorkNCCL(SeqNum=5, OpType=ALLREDUCE)"}}},
        {"own_ssh", {{"me@s1: Permission denied (publickey)."}, 255}},
        {"own_mpirun", {{"ORTE was unable to reliably start one or more daemons."}}},
        {"locked_memory",
         {{"NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory"}}},
        {"shared_memory",
         {{"RuntimeError: DataLoader worker (pid 11011) is killed by signal: Bus error. It is "
           "possible that dataloader's workers are out of shared memory."}}},
        {"memory", {{"RuntimeError: DataLoader worker (pid 19597) is killed by signal: Killed. "}}},
        {"memory",
         {{"terminate called after throwing an instance of 'std::bad_alloc'"}, 0, SIGABRT}},
        {"libuv",
         {{"RuntimeError: use_libuv was requested but PyTorch was build without libuv support"}}},
        {"open_files", {{"OSError: [Errno 24] Too many open files"}}},
        {"open_files", {{"RuntimeError: received 0 items of ancdata"}}},
        {"threads",
         {{"OpenBLAS blas_thread_init: pthread_create failed for thread 33 of 64: Resource "
           "temporarily unavailable"}}},
        {"threads", {{"RuntimeError: can't start new thread"}}},
        {"other_launcher", {{}, 213, 0, is_mpirun}},
        {"out_of_memory", {{}, 0, SIGKILL, {}, true}},
        {"killed", {{"step 5"}, 0, SIGKILL}},
        {"cpu", {{}, 0, SIGILL}},
        {"cpu", {{"Illegal instruction (core dumped)"}, 132}},
        {"bus_error", {{}, 0, SIGBUS}},
        {"python_crash", {{}, 0, SIGSEGV}},
    };
    return kSamples;
}

}  // namespace

TEST_CASE("every row of the table of cures answers what users have seen", "[report][cures]") {
    std::set<std::string_view> known;
    for (const auto& [name, sample] : samples()) {
        INFO((sample.lines.empty() ? std::string("no lines") : sample.lines.back()));
        CHECK(name_of(sample) == name);
        known.insert(name);
        const std::string text = text_of(sample);
        CHECK(text.find_first_of("{}\n") == std::string::npos);
        CHECK(text.size() < 260);
    }
    for (const std::string_view name : kNames) CHECK(known.contains(name));
}

TEST_CASE("each cure says who has met the failure", "[report][cures]") {
    for (const std::string_view source : kSources)
        CHECK((source.contains('/') && (source.contains('#') || source.starts_with("docs/"))));
}

TEST_CASE("a cure names the rank's host, what it lacks and what the user has typed",
          "[report][cures]") {
    CHECK(text_of({import_of("horovod", "import horovod.torch as hvd")}) ==
          "dtrun has Horovod's interface itself: add --horovod-shim before python3");
    CHECK(text_of({{"KeyError: 'SLURM_PROCID'"}}) ==
          "add --contract slurm before python3: it sets SLURM_PROCID (dtrun contracts slurm)");
    CHECK(text_of({{"KeyError: 'OMPI_COMM_WORLD_RANK'"}})
              .starts_with("add --contract openmpi-names "));
    CHECK(text_of({import_of("yaml", "import yaml")}).starts_with("python3 on s2 has no yaml: "));
    CHECK_THAT(text_of({{"CUDA error: invalid device ordinal"}}),
               Catch::Contains("2 ranks run there"));
    CHECK_THAT(text_of({{"python3: can't open file '/home/me/train.py': [Errno 2] No such file"}}),
               Catch::Contains("there is no /home/me/train.py, neither on s2 nor here"));
}

TEST_CASE("a cure that was taken already, or is not true, is not given", "[report][cures]") {
    CHECK(name_of({import_of("horovod", "import horovod.torch"), 1, 0, has_shim}) == "none");
    const auto is_slurm = [](JobSpec& spec) { spec.contracts.emplace_back("slurm"); };
    CHECK(name_of({{"KeyError: 'SLURM_PROCID'"}, 1, 0, is_slurm}) == "none");
    CHECK(name_of({{"KeyError: 'loss'"}}) == "none");
    CHECK(name_of({{"KeyError: 'RANK'"}}) == "none");  // it has that
    CHECK(name_of({{"error: unrecognized arguments: --local_rank=0"}, 2}) == "none");
    CHECK(name_of({{"cat: data.txt: No such file or directory"}}) == "none");  // not of the command
    CHECK(name_of({{"warning: : Permission denied"}, 1}) == "none");
    const auto is_at_rank_0 = [](JobSpec& spec) { spec.options.torch_store = TorchStore::rank0; };
    CHECK(name_of({{"The client socket has failed to connect to [::]:1"}, 1, 0, is_at_rank_0}) ==
          "none");
    CHECK(name_of({{}, 0, SIGSEGV, with_variable("PYTHONFAULTHANDLER")}) == "none");
    CHECK(name_of({{"Fatal Python error: Segmentation fault"}, 0, SIGSEGV}) == "none");
    const auto has_interface = [](JobSpec& spec) { spec.options.network_interfaces = {"eth0"}; };
    CHECK(name_of({{"connectFullMesh failed"}, 1, 0, has_interface}) == "none");
    CHECK(name_of({import_of("dtrun.nosuch", "import dtrun.nosuch")}) == "none");
    CHECK(name_of({{"ValueError: boom"}}) == "none");
    CHECK(name_of({{"java.lang.OutOfMemoryError: Java heap space"}}) == "none");
    CHECK(name_of({{"git@github.com: Permission denied (publickey)."}, 128}) == "none");
    CHECK(name_of({{"error: unrecognized arguments: --local_rank=0"}, 2, 0, [](JobSpec& spec) {
                       spec.options.rank_macros = true;  // of torchrun, whose users write it
                   }}) == "none");
    CHECK(name_of({.code = 0, .signal = SIGKILL, .hung = true}) == "none");
    // Another may have been, of whom nobody has told.
    CHECK(name_of({{}, 0, SIGKILL, [](JobSpec& spec) { spec.options.kill_hung = true; }}) ==
          "killed");
    const auto port = with_variable("MASTER_PORT", "29500");
    CHECK(name_of({{"OSError: [Errno 98] Address already in use: 8080"}, 1, 0, port}) == "port");
    CHECK(name_of({{"No module named "}}) == "none");
    CHECK(name_of({{}}) == "none");
}

TEST_CASE("the last line that has a cure decides, however many lines follow it",
          "[report][cures]") {
    Lines lines{"OSError: [Errno 24] Too many open files", "RuntimeError: CUDA out of memory."};
    for (int i = 0; i < 30; ++i) lines.push_back(fmt::format("frame #{}: torch", i));
    CHECK(name_of({lines}) == "gpu_memory");
    CHECK(cure_of({lines})->sign == "RuntimeError: CUDA out of memory.");
}

TEST_CASE("what was only a warning, or was caught, has no cure", "[report][cures]") {
    CHECK(name_of({{"Error caught was: No module named 'triton'"}}) == "none");
    CHECK(name_of({{"ModuleNotFoundError: No module named 'triton'", "going on without",
                    "ValueError: boom"}}) == "none");
    CHECK(name_of({{"OSError: [Errno 98] Address already in use", "retrying",
                    "[rank0]: torch.distributed.DistBackendError: lost"}}) == "none");
    CHECK(name_of({{"OSError: [Errno 98] Address already in use", "",
                    "The above exception was the direct cause of the following exception:", "",
                    "RuntimeError: no server"}}) == "port");
    CHECK(name_of({{"[rank0]: ModuleNotFoundError: No module named 'yaml'"}}) == "module");
}

TEST_CASE("who has not typed the interpreter is not told to write before it", "[report][cures]") {
    const auto is_torchrun = [](JobSpec& spec) {
        spec.options.rank_output.files = RankOutput::Files::torchrun;
    };
    CHECK(text_of({{"KeyError: 'SLURM_PROCID'"}, 1, 0, is_torchrun})
              .starts_with("add --contract slurm before the script: "));
}

TEST_CASE("the report ends with what helps, and quotes what that goes by", "[report][cures]") {
    const JobSpec spec = two_hosts();
    JobOutcome outcome = rank_3_failed();
    Lines lines = import_of("horovod", "import horovod.torch as hvd");
    const RankNumbers numbers(std::size_t{4});
    const auto tail = [&lines](SlotId slot) { return slot == SlotId{3} ? lines : Lines{}; };
    outcome.victims = 3;
    CHECK_THAT(failure_report(outcome, spec, numbers, tail),
               Catch::EndsWith("  3 other ranks ended by dtrun\n"
                               "  hint: dtrun has Horovod's interface itself: add --horovod-shim "
                               "before python3\n"));
    for (int i = 0; i < 20; ++i) lines.push_back(fmt::format("at exit {}", i));
    const std::string report = failure_report(outcome, spec, numbers, tail);
    CHECK_THAT(report, Catch::Contains("  last 10 lines of its standard error:\n"
                                       "  | ModuleNotFoundError: No module named 'horovod'\n"
                                       "  | …\n"
                                       "  | at exit 10\n"));
    CHECK_THAT(report, Catch::Contains("hint: "));
}

TEST_CASE("a rank that failed later may say what the first has not", "[report][cures]") {
    const JobSpec spec = two_hosts();
    JobOutcome outcome = rank_3_failed();
    outcome.also_failed = 2;
    outcome.later.resize(2);
    outcome.later[1].rank = Rank{1};
    const auto tail = [](SlotId slot) {
        if (slot == SlotId{3}) return Lines{"RuntimeError: Connection closed by peer"};
        if (slot == SlotId{1}) return Lines{"RuntimeError: CUDA out of memory.", "frame #0"};
        return Lines{};
    };
    CHECK_THAT(failure_report(outcome, spec, RankNumbers(std::size_t{4}), tail),
               Catch::Contains("  2 other ranks failed after it\n"
                               "  rank 1 on s1 wrote:\n"
                               "  | RuntimeError: CUDA out of memory.\n"
                               "  hint: a GPU of s1 is full, where 2 ranks run: "));
}

TEST_CASE("lines that are on the screen are not repeated but for the last", "[report]") {
    const JobSpec spec = two_hosts();
    JobOutcome outcome = rank_3_failed();
    Lines lines{"Traceback (most recent call last):", "  File \"t.py\"", "ValueError: boom"};
    std::size_t asked = 0;
    const auto report = [&] {
        return failure_report(
            outcome, spec, RankNumbers(std::size_t{4}), [&lines](SlotId) { return lines; },
            [&asked](SlotId slot, std::size_t count) {
                asked = count;
                return slot == SlotId{3};
            });
    };
    CHECK(report() ==
          "dtrun: rank 3 on s2 (pid 4242) exited with code 1 after 0.00 s\n"
          "  last line of its standard error, which stands above:\n"
          "  | ValueError: boom\n");
    CHECK(asked == 3);
    lines.resize(40, "more");
    CHECK_THAT(report(), Catch::Contains("| more\n"));
    CHECK(asked == 10);
    lines.clear();
    CHECK_THAT(report(), Catch::Contains("it wrote nothing to standard error"));
}

}  // namespace dtrun::test_cures
