#include "launcher/cli/horovod_config.h"
#include "launcher/cli/horovod_flags.h"
#include "rendezvous/wire/modes.h"
#include "tests/launcher/cli_support.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace dtrun;
using namespace dtrun::cli;
using Catch::EndsWith;

namespace {

std::string tuning(std::string_view typed) {
    return show(options_of(std::string(typed) + " prog").tuning_env);
}

std::string config(std::string_view text) {
    const auto values = parse_horovod_config(text, "c.yaml");
    if (!values) return values.error().message;
    return show({values->begin(), values->end()});
}

}  // namespace

TEST_CASE("--horovod-shim is asked for, and not with mpirun, which starts ranks without an agent",
          "[launcher][horovod]") {
    CHECK_FALSE(options_of("prog").horovod_shim);
    CHECK(options_of("--horovod-shim prog").horovod_shim);
    CHECK_THAT(error_of("--mpi mpirun --horovod-shim prog"), Catch::Contains("--horovod-shim"));
}

TEST_CASE("each tuning flag of horovodrun becomes its variable", "[launcher][horovod]") {
    const auto [typed, expected] = GENERATE(table<std::string, std::string>({
        {"--fusion-threshold-mb 10", "HOROVOD_FUSION_THRESHOLD=10485760"},
        {"--fusion_threshold_mb=0", "HOROVOD_FUSION_THRESHOLD=0"},
        {"--fusion 32", "HOROVOD_FUSION_THRESHOLD=33554432"},
        {"--cycle-time-ms 20", "HOROVOD_CYCLE_TIME=20.0"},
        {"--cycle-time-ms 0.5", "HOROVOD_CYCLE_TIME=0.5"},
        {"--cycle-time-ms=1e2", "HOROVOD_CYCLE_TIME=100.0"},
        {"--cache-capacity 2048", "HOROVOD_CACHE_CAPACITY=2048"},
        {"--hierarchical-allreduce", "HOROVOD_HIERARCHICAL_ALLREDUCE=1"},
        {"--no-hierarchical-allreduce", "HOROVOD_HIERARCHICAL_ALLREDUCE=0"},
        {"--hierarchical-allgather", "HOROVOD_HIERARCHICAL_ALLGATHER=1"},
        {"--no-hierarchical-allgather", "HOROVOD_HIERARCHICAL_ALLGATHER=0"},
        {"--torus-allreduce", "HOROVOD_TORUS_ALLREDUCE=1"},
        {"--no-torus-allreduce", "HOROVOD_TORUS_ALLREDUCE=0"},
        {"--torus-allreduce --no-torus-allreduce", "HOROVOD_TORUS_ALLREDUCE=0"},
        {"--autotune", "HOROVOD_AUTOTUNE=1"},
        {"--no-autotune", "HOROVOD_AUTOTUNE=0"},
        {"--autotune --autotune-log-file f", "HOROVOD_AUTOTUNE=1 HOROVOD_AUTOTUNE_LOG=f"},
        {"--autotune-warmup-samples 5 --autotune",
         "HOROVOD_AUTOTUNE=1 HOROVOD_AUTOTUNE_WARMUP_SAMPLES=5"},
        {"--autotune --autotune-steps-per-sample 20",
         "HOROVOD_AUTOTUNE=1 HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE=20"},
        {"--autotune --autotune-bayes-opt-max-samples 50",
         "HOROVOD_AUTOTUNE=1 HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES=50"},
        {"--autotune --autotune-gaussian-process-noise 0.9",
         "HOROVOD_AUTOTUNE=1 HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE=0.9"},
        {"--timeline-filename t.json", "HOROVOD_TIMELINE=t.json"},
        {"--timeline-filename t --timeline-mark-cycles",
         "HOROVOD_TIMELINE=t HOROVOD_TIMELINE_MARK_CYCLES=1"},
        {"--timeline-f t --no-timeline-mark-cycles",
         "HOROVOD_TIMELINE=t HOROVOD_TIMELINE_MARK_CYCLES=0"},
        {"--no-stall-check", "HOROVOD_STALL_CHECK_DISABLE=1"},
        {"--stall-check", "HOROVOD_STALL_CHECK_DISABLE=0"},
        {"--stall-check-warning-time-seconds 120", "HOROVOD_STALL_CHECK_TIME_SECONDS=120"},
        {"--stall-check-shutdown-time-seconds 240", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=240"},
        {"--mpi-threads-disable", "HOROVOD_MPI_THREADS_DISABLE=1"},
        {"--no-mpi-threads-disable", "HOROVOD_MPI_THREADS_DISABLE=0"},
        {"--num-nccl-streams 2", "HOROVOD_NUM_NCCL_STREAMS=2"},
        {"--thread-affinity 1", "HOROVOD_THREAD_AFFINITY=1"},
        {"--gloo-timeout-seconds 60", "HOROVOD_GLOO_TIMEOUT_SECONDS=60"},
        {"--log-level INFO", "HOROVOD_LOG_LEVEL=INFO"},
        {"--log-level=trace", "HOROVOD_LOG_LEVEL=TRACE"},
        {"--log-with-timestamp", "HOROVOD_LOG_HIDE_TIME=0"},
        {"--log-without-timestamp", "HOROVOD_LOG_HIDE_TIME=1"},
        {"--log-hide-timestamp", "HOROVOD_LOG_HIDE_TIME=1"},
        {"--no-log-hide-timestamp", "HOROVOD_LOG_HIDE_TIME=0"},
        {"--tcp", "NCCL_IB_DISABLE=1"},
        {"--disable-cache", ""},
        {"--network-interface eth0,ib0",
         "NCCL_SOCKET_IFNAME=eth0,ib0 GLOO_SOCKET_IFNAME=eth0,ib0 HOROVOD_GLOO_IFACE=eth0"},
    }));
    CAPTURE(typed);
    CHECK(tuning(typed) == expected);
}

TEST_CASE("a wrong tuning value names the flag and the range", "[launcher][horovod]") {
    const auto [typed, message] = GENERATE(table<std::string, std::string>({
        {"--fusion-threshold-mb -1",
         "--fusion-threshold-mb: '-1' is not a whole number from 0 to 8796093022207"},
        {"--fusion-threshold-mb 8796093022208",
         "--fusion-threshold-mb: '8796093022208' is not a whole number from 0 to 8796093022207"},
        {"--fusion-threshold-mb 1.5",
         "--fusion-threshold-mb: '1.5' is not a whole number from 0 to 8796093022207"},
        {"--cycle-time-ms -1", "--cycle-time-ms: '-1' is not a number >= 0"},
        {"--cycle-time-ms nan", "--cycle-time-ms: 'nan' is not a number >= 0"},
        {"--cycle-time-ms fast", "--cycle-time-ms: 'fast' is not a number >= 0"},
        {"--cache-capacity -1",
         "--cache-capacity: '-1' is not a whole number from 0 to 2147483647"},
        {"--num-nccl-streams x",
         "--num-nccl-streams: 'x' is not a whole number from 0 to 2147483647"},
        {"--autotune-gaussian-process-noise 1.1",
         "--autotune-gaussian-process-noise: '1.1' is not a number from 0 to 1"},
        {"--autotune-gaussian-process-noise=-0.1",
         "--autotune-gaussian-process-noise: '-0.1' is not a number from 0 to 1"},
        {"--log-level LOUD",
         "--log-level: 'LOUD' is not one of TRACE, DEBUG, INFO, WARNING, ERROR and FATAL"},
        {"--autotune=1", "--autotune takes no value"},
        {"--timeline-filename=", "--timeline-filename: the value is empty"},
    }));
    CAPTURE(typed);
    CHECK(error_of(typed + " prog") == message);
}

TEST_CASE("settings without what they refine are left out and warned of", "[launcher][horovod]") {
    const auto [typed, expected, warning] = GENERATE(table<std::string, std::string, std::string>({
        {"--autotune-log-file f", "", "--autotune-log-file has no effect without --autotune"},
        {"--autotune-warmup-samples 5 --no-autotune", "HOROVOD_AUTOTUNE=0",
         "--autotune-warmup-samples has no effect without --autotune"},
        {"--timeline-mark-cycles", "",
         "--timeline-mark-cycles has no effect without --timeline-filename"},
    }));
    const auto command = parse_typed(typed + " prog");
    REQUIRE(command);
    CHECK(show(command->options.tuning_env) == expected);
    CHECK(command->warnings == std::vector<std::string>{warning});
}

TEST_CASE("horovodrun's own example of a --config-file is read", "[launcher][horovod]") {
    CHECK(config(R"(
controller: gloo
params: {fusion_threshold_mb: 32, cycle_time_ms: 10, cache_capacity: 2048,
         hierarchical_allreduce: true, hierarchical_allgather: true, torus_allreduce: false}
autotune: {enabled: true, log_file: 'x.txt', warmup_samples: 5, steps_per_sample: 20,
           bayes_opt_max_samples: 50, gaussian_process_noise: 0.9}
timeline: {filename: 't.json', mark_cycles: true}
stall_check: {enabled: true, warning_time_seconds: 120, shutdown_time_seconds: 240}
library_options: {mpi_threads_disable: true, num_nccl_streams: 2, thread_affinity: 1,
                  gloo_timeout_seconds: 60}
logging:
    level: INFO
    hide_timestamp: true
)") == "HOROVOD_AUTOTUNE=1 HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES=50 "
       "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE=0.9 HOROVOD_AUTOTUNE_LOG=x.txt "
       "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE=20 HOROVOD_AUTOTUNE_WARMUP_SAMPLES=5 "
       "HOROVOD_CACHE_CAPACITY=2048 HOROVOD_CONTROLLER=gloo HOROVOD_CYCLE_TIME=10.0 "
       "HOROVOD_FUSION_THRESHOLD=33554432 HOROVOD_GLOO_TIMEOUT_SECONDS=60 "
       "HOROVOD_HIERARCHICAL_ALLGATHER=1 HOROVOD_HIERARCHICAL_ALLREDUCE=1 "
       "HOROVOD_LOG_HIDE_TIME=1 HOROVOD_LOG_LEVEL=INFO HOROVOD_MPI_THREADS_DISABLE=1 "
       "HOROVOD_NUM_NCCL_STREAMS=2 HOROVOD_STALL_CHECK_DISABLE=0 "
       "HOROVOD_STALL_CHECK_TIME_SECONDS=120 HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=240 "
       "HOROVOD_THREAD_AFFINITY=1 HOROVOD_TIMELINE=t.json HOROVOD_TIMELINE_MARK_CYCLES=1 "
       "HOROVOD_TORUS_ALLREDUCE=0");
}

TEST_CASE("a --config-file may leave out anything", "[launcher][horovod]") {
    CHECK(config("").empty());
    CHECK(config("# nothing\n").empty());
    CHECK(config("controller:\nparams:\nlogging: {level: }\n").empty());
    CHECK(config("stall_check: {enabled: no}") == "HOROVOD_STALL_CHECK_DISABLE=1");
    CHECK(config("logging: {with_timestamp: false}") == "HOROVOD_LOG_HIDE_TIME=1");
    CHECK(config("logging: {with_timestamp: true}") == "HOROVOD_LOG_HIDE_TIME=0");
}

TEST_CASE("Horovod's controller is chosen by --mpi, --gloo or the --config-file",
          "[launcher][horovod]") {
    const std::string gloo = "HOROVOD_CONTROLLER=gloo HOROVOD_CPU_OPERATIONS=gloo";
    const std::string mpi = "HOROVOD_CONTROLLER=mpi HOROVOD_CPU_OPERATIONS=mpi";
    CHECK(config("controller: mpi") == "HOROVOD_CONTROLLER=mpi");
    CHECK(show(options_of("--mpi -np 2 prog").tuning_env) == mpi);
    CHECK(show(options_of("--gloo prog").tuning_env) == gloo);
    CHECK(options_of("--mpi auto prog").tuning_env.empty());
    CHECK(show(options_of("--gloo --mpi pmix prog").tuning_env) == gloo);
    CHECK(show(options_of("--mpi prog", {"HOROVOD_CPU_OPERATIONS=ccl"}).tuning_env) ==
          "HOROVOD_CONTROLLER=mpi");
    CHECK(show(options_of("--no-env --mpi prog", {"HOROVOD_CPU_OPERATIONS=ccl"}).tuning_env) ==
          mpi);
    CHECK(show(options_of("--mpi -x HOROVOD_CONTROLLER=gloo prog").tuning_env) == gloo);
    CHECK(show(options_of("--gloo -x HOROVOD_CONTROLLER prog", {"HOROVOD_CONTROLLER=mpi"})
                   .tuning_env) == mpi);
    CHECK(show(options_of("--mpi -x HOROVOD_CONTROLLER=gloo HOROVOD_CONTROLLER=mpi prog")
                   .tuning_env) == mpi);
    for (const char* const both : {"--gloo --mpi prog", "--mpi --gloo prog"})
        CHECK_THAT(error_of(both), EndsWith("are two controllers of Horovod; give one of them"));
}

TEST_CASE("MPI as Horovod's controller needs MPI", "[launcher][horovod]") {
    const TempDir directory;
    const std::string file = directory.write("file", "controller: mpi\n");
    const std::string error =
        "MPI is Horovod's controller (--mpi without a word, or 'controller: mpi' in "
        "--config-file), but --mpi none offers none; leave one of them out";
    CHECK(error_of("--mpi none --mpi -- prog") == error);
    CHECK(error_of("--mpi none --config-file " + file + " prog") == error);
    CHECK_THAT(error_of("--contract none,horovod --config-file " + file + " prog"),
               EndsWith("add --contract mpi"));
    CHECK(options_of("--mpi mpirun --config-file " + file + " prog").mpirun);
    CHECK(options_of("--mpi none --gloo --config-file " + file + " prog").mpi == MpiMode::none);
}

TEST_CASE("a mistake in a --config-file is named with its place", "[launcher][horovod]") {
    const auto [text, message] = GENERATE(table<std::string, std::string>({
        {"controller: nccl", "c.yaml:1:13: 'nccl' is not a controller; use gloo or mpi"},
        {"controller: [gloo]", "c.yaml:1:13: '' is not a controller; use gloo or mpi"},
        {"parms:\n  cycle_time_ms: 1", "c.yaml:1:1: unknown section 'parms'; did you mean params?"},
        {"xyzzy: 1", "c.yaml:1:1: unknown section 'xyzzy'"},
        {"params:\n  cycle_time: 1",
         "c.yaml:2:3: unknown key 'cycle_time' in 'params'; did you mean cycle_time_ms?"},
        {"params:\n  level: INFO", "c.yaml:2:3: unknown key 'level' in 'params'"},
        {"params:\n  ? [a]\n  : 1", "c.yaml:2:5: unknown key '' in 'params'"},
        {"params: 3", "c.yaml:1:9: 'params' needs settings, such as 'fusion_threshold_mb: ...'"},
        {"params: {cycle_time_ms: [1]}", "c.yaml:1:25: 'cycle_time_ms' needs one value"},
        {"params: {cycle_time_ms: -1}", "c.yaml:1:25: cycle_time_ms: '-1' is not a number >= 0"},
        {"autotune: {enabled: maybe}", "c.yaml:1:21: enabled: 'maybe' is neither true nor false"},
        {"- params", "c.yaml:1:1: expected sections such as 'params:'"},
    }));
    CAPTURE(text);
    CHECK(config(text) == message);
    CHECK(config("params: {").starts_with("c.yaml:1:"));
}

TEST_CASE("a flag wins over --config-file wherever it stands", "[launcher][horovod]") {
    const TempDir directory;
    const std::string file = directory.write(
        "file", "params: {cycle_time_ms: 10, cache_capacity: 5}\nautotune: {enabled: yes}\n");
    const std::string expected =
        "HOROVOD_CYCLE_TIME=20.0 HOROVOD_CACHE_CAPACITY=5 HOROVOD_AUTOTUNE=0";
    CHECK(tuning("--config-file " + file + " --cycle-time-ms 20 --no-autotune") == expected);
    CHECK(tuning("--no-autotune --cycle-time-ms 20 --config-file=" + file) == expected);
}

TEST_CASE("a --config-file that is missing or wrong is an error", "[launcher][horovod]") {
    CHECK(error_of("--config-file /nowhere/c.yaml prog") ==
          "--config-file: /nowhere/c.yaml: No such file or directory");
    CHECK(parse_typed("--config-file /nowhere/c.yaml prog").error().code == Errc::not_found);
    const TempDir directory;
    const std::string file = directory.write("file", "nonsense: 1\n");
    CHECK(error_of("--config-file " + file + " prog") == file + ":1:1: unknown section 'nonsense'");
}
