#include "launcher/frontends/deepspeed_elasticity.h"
#include "launcher/frontends/deepspeed_env.h"
#include "launcher/plan/job_plan.h"
#include "launcher/plan/machine_facts.h"
#include "rendezvous/wire/modes.h"
#include "tests/launcher/cli_support.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <unistd.h>
#include <filesystem>
#include <fstream>

using namespace dtrun;
using namespace dtrun::frontends;
using namespace dtrun::plan;
using namespace std::chrono_literals;
using Catch::Contains;
using Strings = std::vector<std::string>;
using Count = HostShape::Count;

namespace {

/// Neither a home with a .deepspeed_env nor a python.
const Environment kBare = {"HOME=/nowhere", "PATH=/nowhere", "DS_ENV_FILE=/nowhere/env"};

Environment with(const std::string& variable) {
    Environment caller = kBare;
    caller.push_back(variable);
    return caller;
}

Options ds_options(const std::string& typed, const Environment& caller = kBare) {
    return options_of("deepspeed " + typed, caller);
}

std::string ds_error(const std::string& typed, const Environment& caller = kBare) {
    return error_of("deepspeed " + typed, caller);
}

Strings ds_warnings(const std::string& typed, const Environment& caller = kBare) {
    const auto command = parse_typed("deepspeed " + typed, caller);
    REQUIRE(command.has_value());
    return command->warnings;
}

/// The job of a line, as if it were typed in /work.
JobSpec job_of(const std::string& typed, const Environment& caller) {
    auto spec = make_job_spec(options_of(typed, caller), caller, "/work");
    if (!spec) throw std::runtime_error(spec.error().message);
    return std::move(*spec);
}

/// What the ranks of a host start with, before the agent adds the contracts' variables.
std::string value_in(const JobSpec& spec, HostId host, const std::string& name) {
    for (const auto& [variable, value] : spec.env_of(spec.hosts[host]))
        if (variable == name) return value;
    return "not set";
}

}  // namespace

TEST_CASE("DeepSpeed's script gets its local rank as the first argument", "[launcher][deepspeed]") {
    const std::string rank = "--local_rank=${local_rank}";
    const auto [typed, program] = GENERATE_COPY(table<std::string, Strings>({
        {"t.py", {"python3", "-u", "t.py", rank}},
        {"t.py --deepspeed -H x", {"python3", "-u", "t.py", rank, "--deepspeed", "-H", "x"}},
        {"--module pkg.mod a", {"python3", "-u", "-m", "pkg.mod", rank, "a"}},
        {"--no_python ./prog a", {"./prog", rank, "a"}},
        {"--no_local_rank t.py a", {"python3", "-u", "t.py", "a"}},
        {"--no-local-rank --no-python ./prog", {"./prog"}},
        {"--venv_script v/bin/activate --no_python --no_local_rank ./prog a",
         {"bash", "-c", "source \"$0\" && exec \"$@\"", "v/bin/activate", "./prog", "a"}},
        {"--venv_script activate --no_python --no_local_rank ./prog",
         {"bash", "-c", "source \"$0\" && exec \"$@\"", "./activate", "./prog"}},
    }));
    CAPTURE(typed);
    const Options options = ds_options(typed);
    CHECK(options.program == program);
    CHECK(options.rank_macros == (std::ranges::find(program, rank) != program.end()));
    CHECK(options.contracts == Strings{"deepspeed"});
    CHECK(options.grace == 30s);
}

TEST_CASE("DeepSpeed's words choose hosts and slots", "[launcher][deepspeed]") {
    const Options options = ds_options("-H hosts -i w0@w1:0,2 --ssh_port 2200 t.py");
    CHECK(options.hostfile == "hosts");
    CHECK(options.include == "w0@w1:0,2");
    CHECK(options.ssh_port == 2200);
    CHECK(options.shape.count == Count::accelerator);
    CHECK(options.shape.note_here.empty());
    CHECK(ds_options("--hostfile=hosts -e w0 t.py").exclude == "w0");
    const HostShape shape = ds_options("--hosts a:4,b:4 --num_nodes 2 --num_gpus 3 t.py").shape;
    CHECK(shape.hosts_min == 2);
    CHECK(shape.hosts_max == 2);
    CHECK(shape.count == Count::number);
    CHECK(shape.number == 3);
    CHECK(ds_options("--num_accelerators=5 t.py").shape.number == 5);
    CHECK(ds_options("--num_nodes -1 --num_gpus -1 t.py").shape.hosts_flag.empty());
    if (!std::filesystem::exists("/job/hostfile"))
        CHECK(ds_options("t.py").shape.note_here ==
              "no /job/hostfile and no --hostfile: ranks run on this machine only");
}

TEST_CASE("CUDA_VISIBLE_DEVICES are this machine's slots", "[launcher][deepspeed]") {
    if (std::filesystem::exists("/job/hostfile")) return;
    const Environment caller = with("CUDA_VISIBLE_DEVICES=3,1");
    CHECK(ds_options("t.py", caller).shape.devices_here == std::vector<int>{3, 1});
    CHECK(ds_warnings("t.py", caller).empty());
    CHECK(ds_options("--hostfile h t.py", caller).shape.devices_here.empty());
    for (const std::string typed : {"--include localhost:0 t.py", "--num_gpus 2 t.py"}) {
        CHECK(ds_options(typed, caller).shape.devices_here.empty());
        CHECK(ds_warnings(typed, caller) ==
              Strings{"CUDA_VISIBLE_DEVICES=3,1 is ignored: --include, --exclude, --num_gpus or "
                      "--num_nodes is given"});
    }
    CHECK(ds_error("t.py", with("CUDA_VISIBLE_DEVICES=0,all")) ==
          "CUDA_VISIBLE_DEVICES=0,all: 'all' is neither a device's number nor its GPU-... or "
          "MIG-...; unset it, or write 0,1");
}

TEST_CASE("Devices that are named by their UUIDs are counted, and ranks inherit the list",
          "[launcher][deepspeed]") {
    if (std::filesystem::exists("/job/hostfile")) return;
    const std::string list = "GPU-8932f937-d72c, MIG-377e0049-554c";
    const JobSpec job = job_of("deepspeed t.py", with("CUDA_VISIBLE_DEVICES=" + list));
    CHECK(job.placement.ranks.size() == 2);
    CHECK(value_in(job, HostId{0}, "CUDA_VISIBLE_DEVICES") == list);
}

TEST_CASE("Where CUDA_VISIBLE_DEVICES leaves no device, each NUMA node is a slot",
          "[launcher][deepspeed]") {
    if (std::filesystem::exists("/job/hostfile")) return;
    const auto nodes = static_cast<std::size_t>(machine_facts({}).numa_nodes);
    for (const std::string list : {"", "-1", "NoDevFiles"}) {
        CAPTURE(list);
        const JobSpec job = job_of("deepspeed t.py", with("CUDA_VISIBLE_DEVICES=" + list));
        CHECK(job.placement.ranks.size() == nodes);
        CHECK(value_in(job, HostId{0}, "CUDA_VISIBLE_DEVICES") == list);
    }
    CHECK(ds_warnings("--num_gpus 1 t.py", with("CUDA_VISIBLE_DEVICES=")).empty());
}

TEST_CASE("What pdsh is told of ssh says how hosts are reached", "[launcher][deepspeed]") {
    const Environment caller = with("PDSH_SSH_ARGS_APPEND=-q -tt -p 2222 -i /key");
    const Options options = ds_options("--hosts a:1,b:1 t.py", caller);
    CHECK(options.ssh_port == 2222);
    CHECK(options.ssh_identity_file == "/key");
    CHECK(options.ssh_command.empty());
    CHECK(ds_options("--ssh_port 22 --hosts a:1,b:1 t.py", caller).ssh_port == 22);
    CHECK(ds_options("t.py", with("PDSH_SSH_ARGS_APPEND=-o ConnectTimeout=5")).ssh_command ==
          "ssh -o ConnectTimeout=5");
    Environment inner = caller;
    inner.push_back("DTRUN_RANK=0");
    CHECK(ds_options("--hosts a:1,b:1 t.py", inner).ssh_port == 0);
}

TEST_CASE("An address of the user's own lets rank 0 serve", "[launcher][deepspeed]") {
    CHECK(ds_options("t.py").torch_store == TorchStore::agent);
    const Options options = ds_options("--master_addr 10.0.0.1 --master_port 29501 t.py");
    CHECK(show(options.assignments) == "MASTER_ADDR=10.0.0.1 MASTER_PORT=29501");
    CHECK(options.torch_store == TorchStore::rank0);
}

TEST_CASE("DeepSpeed's logs are one file for each rank, and nothing is shown",
          "[launcher][deepspeed]") {
    const Options options = ds_options("--enable_each_rank_log logs t.py");
    CHECK(options.output_dir == "logs");
    CHECK(options.rank_output.files == RankOutput::Files::deepspeed);
    CHECK(options.rank_output.shown.of(0) == 0);
    CHECK(options.rank_output.to_file.of(0) == 3);
    CHECK(ds_options("--enable_each_rank_log None t.py").output_dir.empty());
    CHECK(ds_options("t.py").rank_output.shown.of(0) == 3);
}

TEST_CASE("Log levels, the process id and words without effect", "[launcher][deepspeed]") {
    CHECK(ds_options("--log_level debug t.py").verbosity == log::Level::debug);
    CHECK(ds_options("--log_level info t.py").verbosity == log::Level::verbose);
    CHECK(ds_options("-q t.py").verbosity == log::Level::quiet);
    CHECK(ds_options("--save_pid t.py").pid_file == fmt::format("/tmp/{}.deepspeed", ::getpid()));
    CHECK(ds_options("t.py").pid_file.empty());
    CHECK(ds_warnings("--launcher OpenMPI t.py") ==
          Strings{"--launcher openmpi has no effect: dtrun starts the ranks itself"});
    CHECK(ds_warnings("--num_gpus 1 --num_accelerators 2 t.py").front() ==
          "--num_gpus 1 and --num_accelerators 2 are one option, of which the last value counts");
    CHECK(ds_warnings("--no_ssh_check --force_multi --node_rank 0 t.py").empty());
    CHECK(ds_options("--node_rank 1 t.py").shape.not_first);
    CHECK(ds_options("--contract jax t.py").contracts == Strings{"deepspeed", "jax"});
    CHECK(ds_options("--bind_cores_to_rank --bind_core_list 4-7,0 t.py").binding ==
          BindingOptions{.to = BindTo::share, .cpus = "0,4-7"});
    CHECK(ds_warnings("--bind_core_list 0-3 t.py") ==
          Strings{"--bind_core_list has no effect without --bind_cores_to_rank"});
}

TEST_CASE("DeepSpeed's mistakes are answered with what would be right", "[launcher][deepspeed]") {
    const auto [typed, message] = GENERATE_COPY(table<std::string, std::string>({
        {"",
         "no script to run; usage: dtrun deepspeed [options] [--] script [args...] (dtrun "
         "deepspeed "
         "--help tells more)"},
        {"--num_nodes 2 -i a t.py",
         "--num_nodes and --include exclude each other; give one of them"},
        {"--num_gpus 2 -e a t.py", "--num_gpus and --exclude exclude each other; give one of them"},
        {"-i a -e b t.py", "-i and -e exclude each other; give one of them"},
        {"-H f --hosts a t.py", "-H and --hosts exclude each other; give one of them"},
        {"--num_gpus x t.py", "--num_gpus: 'x' is not a whole number from -1 to 65536"},
        {"--launcher x t.py",
         "--launcher: 'x' is not one of pdsh, openmpi, mvapich, slurm, mpich and impi"},
        {"--log_level x t.py",
         "--log_level: 'x' is not one of debug, info, warning, error and critical"},
        {"--no_python --module t.py", "--no_python and --module exclude each other"},
        {"--bind_cores_to_rank --bind-to core t.py",
         "--bind-to and --bind_cores_to_rank exclude each other; give one of them"},
        {"--bind_core_list 3-1 t.py",
         "--bind_core_list: '3-1' in '3-1' is neither a processor nor a range such as 0-3"},
        {"--elastic_training --hosts a:2,b:2 --min_elastic_nodes 3 --max_elastic_nodes 2 t.py",
         "--max_elastic_nodes 2 is less than --min_elastic_nodes 3"},
        {"--num_nodes 3:2 t.py", "--num_nodes: '3:2' is neither N nor MIN:MAX, of at least 1"},
        {"--hosts a:2,b:2 --reset-limit 3 t.py",
         "--reset-limit is for elastic jobs: write --elastic_training, and name the hosts"},
        {"--account=lab t.py",
         "--account is refused: for Slurm's job: give it to sbatch or salloc, in whose job dtrun "
         "then starts"},
        {"--launcher_args=-x t.py",
         "--launcher_args is refused: there is no launcher underneath that could take them"},
        {"--autotuning run t.py",
         "--autotuning is refused: the autotuner starts jobs of its own; run DeepSpeed's deepspeed "
         "for it"},
        {"--master-port x t.py", "--master_port: 'x' is not a whole number from 1 to 65535"},
        {"--num_gpu", "--num_gpus needs a value: --num_gpus N"},
        {"--mun_gpus 2 t.py", "unknown option --mun-gpus; did you mean --num_gpus?"},
        {"--wrong_flag t.py", "unknown option --wrong-flag; see dtrun deepspeed --help"},
        {"--no_ssh t.py",
         "--no_ssh is refused: dtrun starts all nodes from one command; without ssh run dtrun "
         "serve on one machine and dtrun join on each"},
    }));
    CAPTURE(typed);
    CHECK(ds_error(typed) == message);
}

TEST_CASE("--elastic_training is an elastic job of the named hosts",
          "[launcher][deepspeed][elastic]") {
    const Options options = ds_options(
        "--elastic_training --min_elastic_nodes 2 --max_elastic_nodes 3 --hosts a:2,b:2,c:2 t.py");
    REQUIRE(options.elastic);
    CHECK(options.shape.hosts_min == 2);
    CHECK(options.shape.hosts_max == 3);
    CHECK(options.shape.elastic);
    CHECK(options.elastic->rank_failure_limit == 100);  // as DeepSpeed's agent
    const Options less = ds_options("--num_nodes 1:2 --max-restarts 4 --hosts a:2,b:2 t.py");
    REQUIRE(less.elastic);
    CHECK(less.shape.hosts_min == 1);
    CHECK(less.elastic->rank_failure_limit == 4);
    CHECK(ds_options("--elastic_training --hosts a:2 t.py").shape.hosts_min == 1);
    CHECK_FALSE(ds_options("--hosts a:2 t.py").elastic);
    const auto notes = ds_options("--min_elastic_nodes 2 --hosts a:2,b:2 t.py").notes;
    CHECK(notes == Strings{"--min_elastic_nodes has no effect without --elastic_training"});
    if (!std::filesystem::exists("/job/hostfile"))
        CHECK_THAT(ds_error("--elastic_training t.py"), Contains("which hosts may the job have?"));
}

TEST_CASE("DeepSpeed's elasticity says which numbers of ranks keep the batch",
          "[launcher][deepspeed][elastic]") {
    // Those of DeepSpeed's own tests, whose batch is 9792.
    const auto sizes = elastic_sizes(R"({"train_micro_batch_size_per_gpu": 1, "elasticity": {
        "enabled": true, "max_train_batch_size": 10000, "micro_batch_sizes": [8, 12, 16, 17],
        "min_gpus": 32, "max_gpus": 1500, "min_time": 20, "version": 0.1}})");
    REQUIRE(sizes.has_value());
    CHECK(*sizes == std::vector{32,  34,  36,  48,  51,  64,  68,  72,  96,  102, 136, 144,
                                153, 192, 204, 272, 288, 306, 408, 576, 612, 816, 1224});
    // Version 0.2 counts nodes of 4 GPUs, of which two hold one replica.
    CHECK(*elastic_sizes(R"({"elasticity": {"enabled": true, "max_train_batch_size": 32,
        "micro_batch_sizes": [2, 4], "num_gpus_per_node": 4, "model_parallel_size": 2,
        "max_gpus": 8}})") == std::vector{4, 8});
    CHECK(elastic_sizes("{}")->empty());
    CHECK(elastic_sizes(R"({"elasticity": {"enabled": false, "version": 9}})")->empty());
    CHECK(message_of(elastic_sizes("[1]")) ==
          "it is no JSON object, so no configuration of DeepSpeed");
    CHECK(message_of(elastic_sizes(R"({"elasticity": {"enabled": true, "version": 9}})")) ==
          "elasticity: version 9 is not known; dtrun knows 0.1 and 0.2");
    CHECK_THAT(
        message_of(elastic_sizes(R"({"elasticity": {"enabled": true, "micro_batch_sizes": [0]}})")),
        Contains("is not a list of positive numbers"));
    CHECK_THAT(message_of(elastic_sizes(
                   R"({"elasticity": {"enabled": true, "min_gpus": 9000, "max_gpus": 9001}})")),
               Contains("no number of GPUs from 9000 to 9001 fits"));
}

TEST_CASE("The numbers of ranks are those of the script's configuration, or --allowed-np's",
          "[launcher][deepspeed][elastic]") {
    const std::string file =
        (std::filesystem::temp_directory_path() / fmt::format("dtrun-ds-{}.json", ::getpid()));
    std::ofstream(file) << R"({"elasticity": {"enabled": true, "max_train_batch_size": 32,
        "micro_batch_sizes": [2, 4], "max_gpus": 8}})";
    const std::string elastic = "--elastic_training --hosts a:2,b:2,c:2 ";
    CHECK(ds_options(elastic + "t.py --deepspeed_config " + file).elastic->allowed ==
          std::vector{1, 2, 3, 4, 6});
    CHECK(ds_options(elastic + "t.py --deepspeed_config=" + file).elastic->allowed ==
          std::vector{1, 2, 3, 4, 6});
    CHECK(ds_options(elastic + "--allowed-np 4 t.py --deepspeed_config " + file).elastic->allowed ==
          std::vector{4});
    CHECK(ds_options(elastic + "t.py").elastic->allowed.empty());
    CHECK_THAT(ds_warnings(elastic + "t.py --deepspeed_config /nowhere/ds.json").at(0),
               Contains("is not known here, so any number of hosts is used"));
    const auto spec =
        make_job_spec(ds_options(elastic + "t.py --deepspeed_config " + file), kBare, "/");
    std::filesystem::remove(file);
    REQUIRE(spec.has_value());
    CHECK(spec->options.elastic->allowed == std::vector{2, 4, 6});  // whole hosts
}

TEST_CASE("A .deepspeed_env may have blank lines, comments and quotes", "[launcher][deepspeed]") {
    const auto env = parse_deepspeed_env(
        "A=1\n\n  # comment\n B = x y \nC=a=b#c\nD=\"q r\"\nE='s'\nF=\nG=\"half\r\nRANK=3\n", "f");
    REQUIRE(env.has_value());
    CHECK(show(env->variables) == "A=1 B=x y C=a=b#c D=q r E=s F= G=\"half");
    CHECK(env->notes ==
          Strings{"f:10: left out: RANK is dtrun's own (each rank's place in the job) "
                  "and cannot be set"});
    CHECK(parse_deepspeed_env("A=1\n  what\n", "f").error().message ==
          "f:2:3: expected NAME=VALUE");
    CHECK(parse_deepspeed_env("1A=1\n", "f").error().message ==
          "f:1:1: '1A' is not a variable's name");
    CHECK(parse_deepspeed_env("", "f")->variables.empty());
}

TEST_CASE("Values of .deepspeed_env have variables of the caller and of the lines above",
          "[launcher][deepspeed]") {
    const Environment caller = {"LD_LIBRARY_PATH=/lib/a", "X=x"};
    const auto env = parse_deepspeed_env(
        "LD_LIBRARY_PATH=/opt/"
        "efa:$LD_LIBRARY_PATH\nA=${X}y$X\nB=\"$A\"\nC='$X'\nD=\\$X\nE=a$\nF=$1\n"
        "G=[$NONE]\nH=$X.so\n",
        "f", caller);
    REQUIRE(env.has_value());
    CHECK(show(env->variables) ==
          "LD_LIBRARY_PATH=/opt/efa:/lib/a A=xyx B=xyx C=$X D=$X E=a$ F=$1 G=[] H=x.so");
    CHECK(env->notes.empty());
    const auto below = parse_deepspeed_env("X=1$X\nX=2$X\nA=3$A\n", "g", caller, *env);
    REQUIRE(below.has_value());
    CHECK(show(below->variables) == "X=1x X=21x A=3xyx");
    for (const std::string value : {"$(hostname)", "`hostname`", "${X:-y}", "${X"}) {
        const auto left = parse_deepspeed_env("A=" + value + "\n", "f", caller);
        REQUIRE(left.has_value());
        CHECK(show(left->variables) == "A=" + value);
        CHECK(left->notes ==
              Strings{"f:1: only $NAME and ${NAME} are replaced in A; the rest stays as it is"});
    }
}

TEST_CASE("The .deepspeed_env of the working directory wins over that of the home",
          "[launcher][deepspeed]") {
    const auto folder =
        std::filesystem::temp_directory_path() / fmt::format("dtrun-dsenv-{}", ::getpid());
    std::filesystem::create_directories(folder / "home");
    std::filesystem::create_directories(folder / "work");
    std::ofstream(folder / "home" / "env") << "A=home\nB=home\n";
    std::ofstream(folder / "work" / "env") << "B=work\nNCCL_SOCKET_IFNAME=ib0\n";
    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(folder / "work");
    const Environment caller = {"HOME=" + (folder / "home").string(), "DS_ENV_FILE=env"};
    const Options options = ds_options("t.py", caller);
    const Options flag = ds_options("--network-interfaces eth0 t.py", caller);
    std::filesystem::current_path(before);
    std::filesystem::remove_all(folder);
    CHECK(show(options.tuning_env) == "NCCL_SOCKET_IFNAME=ib0 B=work A=home");
    CHECK_THAT(show(flag.tuning_env), Contains("NCCL_SOCKET_IFNAME=eth0") && !Contains("ib0"));
}

TEST_CASE("A .deepspeed_env that others could have written is not obeyed",
          "[launcher][deepspeed]") {
    const TempDir folder;
    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(folder.path());
    folder.write(".deepspeed_env", "BASH_ENV=/theirs\n", 0666);
    const auto env = read_deepspeed_env(Environment{"HOME=" + folder.at("home")});
    std::filesystem::current_path(before);
    REQUIRE(env.has_value());
    CHECK(env->variables.empty());
    REQUIRE(env->notes.size() == 1);
    CHECK(env->notes[0] == ".deepspeed_env: others can write to it; chmod go-w; it is not read");
}

TEST_CASE("Inherited CUDA_VISIBLE_DEVICES give way to slots that were chosen",
          "[launcher][deepspeed]") {
    if (std::filesystem::exists("/job/hostfile")) return;
    const Environment caller = with("CUDA_VISIBLE_DEVICES=3,1");
    const auto [typed, value] = GENERATE(table<std::string, std::string>({
        {"deepspeed t.py", "3,1"},
        {"deepspeed --num_gpus 2 t.py", "not set"},
        {"deepspeed --hosts localhost:2 t.py", "not set"},
        {"deepspeed --hosts localhost:4 -i localhost:0,2 t.py", "not set"},
        {"deepspeed --hosts localhost:4 -e localhost:0 t.py", "not set"},
        {"deepspeed --num_gpus 2 -x CUDA_VISIBLE_DEVICES t.py", "3,1"},
        {"deepspeed --num_gpus 2 -x CUDA_VISIBLE_DEVICES=7,8 t.py", "7,8"},
        {"deepspeed --num_gpus 2 --contract none t.py", "not set"},
        {"-H localhost:2 t.py", "3,1"},
        {"-H localhost:2 --contract devices t.py", "not set"},
        {"-np 2 --contract devices t.py", "3,1"},
        {"torchrun --nproc-per-node 2 --contract deepspeed t.py", "3,1"},
    }));
    CAPTURE(typed);
    CHECK(value_in(job_of(typed, caller), HostId{0}, "CUDA_VISIBLE_DEVICES") == value);
}

TEST_CASE("With other machines the working directory is before all in PYTHONPATH",
          "[launcher][deepspeed]") {
    const Environment caller = with("PYTHONPATH=/lib/mine");
    const JobSpec job = job_of("deepspeed --hosts localhost:1,elsewhere:1 t.py", caller);
    CHECK(value_in(job, HostId{0}, "PYTHONPATH") == "/work:/lib/mine");
    CHECK(value_in(job, HostId{1}, "PYTHONPATH") == "/work:/lib/mine");
    const std::string two = "deepspeed --hosts localhost:1,elsewhere:1 ";
    CHECK(value_in(job_of(two + "t.py", kBare), HostId{1}, "PYTHONPATH") == "/work");
    CHECK(value_in(job_of(two + "t.py", with("PYTHONPATH=")), HostId{1}, "PYTHONPATH") == "/work");
    CHECK(value_in(job_of(two + "--wdir /data t.py", kBare), HostId{1}, "PYTHONPATH") == "/data");
    CHECK(value_in(job_of(two + "-x PYTHONPATH=/x t.py", caller), HostId{1}, "PYTHONPATH") == "/x");
    CHECK(value_in(job_of("deepspeed --hosts localhost:2 t.py", caller), HostId{0}, "PYTHONPATH") ==
          "/lib/mine");
    CHECK(value_in(job_of("-H localhost,elsewhere t.py", caller), HostId{1}, "PYTHONPATH") ==
          "/lib/mine");
}
