#include "launcher/plan/env_file.h"
#include "launcher/plan/environment.h"
#include "tests/launcher/cli_support.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace dtrun;
using namespace dtrun::plan;
using Catch::Contains;

namespace {

Result<EnvironmentPlan> plan_of(std::string_view typed, const Environment& caller) {
    return plan_environment(caller, options_of(std::string(typed) + " prog", caller));
}

std::string file_variables(std::string_view text) {
    const auto variables = parse_env_file(text, "f.env");
    return variables ? show(*variables) : variables.error().message;
}

}  // namespace

TEST_CASE("the caller's environment goes everywhere but for bound and stale names",
          "[launcher][environment]") {
    const Environment caller = {"PATH=/bin",      "HOME=/root", "CUDA_VISIBLE_DEVICES=3",
                                "RANK=7",         "LANG=C",     "MASTER_ADDR=old",
                                "DTRUN_RANK=5",   "SSH_TTY=t",  "HOROVOD_CYCLE_TIME=3",
                                "PMIX_RANK=1",    "_=x",        "TORCHELASTIC_RUN_ID=none",
                                "NCCL_DEBUG=INFO"};
    const auto planned = plan_of("", caller);
    REQUIRE(planned);
    CHECK(show(planned->local) ==
          "CUDA_VISIBLE_DEVICES=3 HOME=/root HOROVOD_CYCLE_TIME=3 LANG=C NCCL_DEBUG=INFO "
          "PATH=/bin SSH_TTY=t _=x");
    CHECK(show(planned->remote) == "HOROVOD_CYCLE_TIME=3 LANG=C NCCL_DEBUG=INFO PATH=/bin");
    CHECK(planned->added.empty());
}

TEST_CASE("each name that is not forwarded belongs to the right rule", "[launcher][environment]") {
    const auto [rule, names] = GENERATE(table<NameRule, std::string>({
        {NameRule::own,
         "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK "
         "ROLE_WORLD_SIZE LOCAL_SIZE CROSS_RANK CROSS_SIZE HOROVOD_RANK HOROVOD_SIZE "
         "HOROVOD_LOCAL_RANK HOROVOD_LOCAL_SIZE HOROVOD_CROSS_RANK HOROVOD_CROSS_SIZE "
         "HOROVOD_HOSTNAME DTRUN_RANK DTRUN_ANYTHING OMPI_COMM_WORLD_LOCAL_RANK PMI_RANK PMI_SIZE "
         "PMIX_RANK"},
        {NameRule::stale,
         "MASTER_ADDR MASTER_PORT HOROVOD_GLOO_RENDEZVOUS_PORT _HOROVOD_SECRET_KEY "
         "TORCHELASTIC_RUN_ID PMI_FD PMI_HOSTNAME PMIX_NAMESPACE PMIX_SERVER_URI41 "
         "PMIX_MCA_mca_base_component_path OMPI_MCA_ess OMPI_MCA_ess_base_jobid "
         "OMPI_MCA_orte_launch OMPI_MCA_schizo OMPI_MCA_num_procs OMPI_UNIVERSE_SIZE PRTE_LAUNCHED "
         "PRTE_MCA_ess_base_vpid HYDI_CONTROL_FD HYDRA_BSTRAP_UPSTREAM_FD "
         "MPIR_CVAR_CH3_INTERFACE_HOSTNAME I_MPI_PIN_MAPPING MPISPAWN_ID SLURM_PROCID "
         "SLURM_LOCALID SLURM_NODEID SLURM_TASK_PID FLUX_TASK_RANK PALS_RANKID"},
        {NameRule::launcher,
         "SLURM_NTASKS SLURM_NNODES SLURM_NODELIST SLURM_TASKS_PER_NODE SLURM_NTASKS_PER_SOCKET "
         "SLURM_DISTRIBUTION SLURM_HOSTFILE"},
        {NameRule::host_bound,
         "HOME USER LOGNAME SHELL HOSTNAME HOST PWD OLDPWD SHLVL _ MAIL SSH_AUTH_SOCK "
         "SSH_CONNECTION DISPLAY XAUTHORITY WAYLAND_DISPLAY XDG_RUNTIME_DIR XDG_SESSION_ID "
         "DBUS_SESSION_BUS_ADDRESS TMUX TMUX_PANE STY WINDOWID TMPDIR CUDA_VISIBLE_DEVICES "
         "ROCR_VISIBLE_DEVICES BASH_FUNC_module%% KRB5CCNAME NOTIFY_SOCKET"},
    }));
    for (const std::string_view name : split(names, ' ')) {
        CAPTURE(name);
        const VariableGroup* group = find_variable_group(name);
        REQUIRE(group != nullptr);
        CHECK(group->rule == rule);
        CHECK_FALSE(group->reason.empty());
    }
}

TEST_CASE("what programs are configured with is forwarded", "[launcher][environment]") {
    for (const char* name : {"DTRUN_BACKEND",
                             "DTRUN_MPI_LIBRARY",
                             "PATH",
                             "LD_LIBRARY_PATH",
                             "PYTHONPATH",
                             "VIRTUAL_ENV",
                             "CONDA_PREFIX",
                             "TERM",
                             "LANG",
                             "NCCL_DEBUG",
                             "NCCL_SOCKET_IFNAME",
                             "HOROVOD_TIMELINE",
                             "OMPI_MCA_btl",
                             "PMIX_MCA_gds",
                             "OMPI_MCA_rmaps_base_oversubscribe",
                             "OMPI_ALLOW_RUN_AS_ROOT",
                             "PRTE_MCA_rmaps_verbose",
                             "OPAL_PREFIX",
                             "MPIR_CVAR_DEBUG_SUMMARY",
                             "HYDRA_HOST_FILE",
                             "I_MPI_FABRICS",
                             "I_MPI_PIN",
                             "OMP_NUM_THREADS",
                             "SLURM_JOB_ID",
                             "HOME_DIR",
                             "MY_RANK",
                             "TORCH_HOME",
                             "HF_HOME"}) {
        CAPTURE(name);
        CHECK(find_variable_group(name) == nullptr);
    }
}

TEST_CASE("what a batch system says of its own tasks is for mpirun only",
          "[launcher][environment][slurm]") {
    const Environment caller{"SLURM_JOB_ID=7", "SLURM_TASKS_PER_NODE=3,1", "SLURM_NNODES=2"};
    Options options;
    CHECK(show(plan_environment(caller, options)->local) == "SLURM_JOB_ID=7");
    options.export_vars = {"SLURM_NNODES"};
    CHECK(show(plan_environment(caller, options)->remote) == "SLURM_JOB_ID=7 SLURM_NNODES=2");
    options.mpirun = true;
    CHECK(show(plan_environment(caller, options)->local) ==
          "SLURM_JOB_ID=7 SLURM_NNODES=2 SLURM_TASKS_PER_NODE=3,1");
}

TEST_CASE(
    "who runs torchrun's programs leaves all GPUs visible, unless Slurm was asked to bind them",
    "[launcher][environment][slurm]") {
    Options options;
    options.sees_all_devices = true;
    CHECK(show(plan_environment(Environment{"SLURM_GPUS_PER_TASK=1"}, options)->remote) ==
          "SLURM_GPUS_PER_TASK=1 SLURM_GPU_BIND=none");
    const Environment newer{"SLURM_GPUS_PER_TASK=1", "SLURM_TRES_BIND=gres/gpu:per_task:1"};
    CHECK(show(plan_environment(newer, options)->remote) ==  // set by Slurm itself
          "SLURM_GPUS_PER_TASK=1 SLURM_GPU_BIND=none SLURM_TRES_BIND=gres/gpu:per_task:1");
    const Environment named{"SLURM_GPUS_PER_TASK=1", "SLURM_TRES_BIND=gres/gpu:single:1"};
    CHECK(show(plan_environment(named, options)->remote) ==
          "SLURM_GPUS_PER_TASK=1 SLURM_TRES_BIND=gres/gpu:single:1");
    const Environment bound{"SLURM_GPUS_PER_TASK=1", "SLURM_GPU_BIND=single:1"};
    CHECK(show(plan_environment(bound, options)->remote) ==
          "SLURM_GPUS_PER_TASK=1 SLURM_GPU_BIND=single:1");
    CHECK(show(plan_environment(Environment{"A=1"}, options)->local) == "A=1");
    options.sees_all_devices = false;
    CHECK(show(plan_environment(Environment{"SLURM_GPUS_PER_TASK=1"}, options)->local) ==
          "SLURM_GPUS_PER_TASK=1");
}

TEST_CASE("dtrun mpirun's programs see all GPUs, and plain dtrun's those of srun's task",
          "[launcher][environment][slurm][mpirun]") {
    const Environment caller{"SLURM_GPUS_PER_TASK=1"};
    const std::string unbound = "SLURM_GPUS_PER_TASK=1 SLURM_GPU_BIND=none";
    const Options mpirun = options_of("mpirun -np 2 prog", caller);
    CHECK(show(plan_environment(caller, mpirun)->local) == unbound);
    const Options in_rank = options_of("mpirun -np 2 prog", {"DTRUN_RANK=0"});
    CHECK(show(plan_environment(caller, in_rank)->local) == unbound);
    CHECK(show(plan_environment(caller, options_of("-np 2 prog", caller))->local) ==
          "SLURM_GPUS_PER_TASK=1");
}

TEST_CASE("the more explicit word wins", "[launcher][environment]") {
    const TempDir directory;
    const std::string file =
        directory.write("file", "A=file\nB=file\nC=file\nHOROVOD_CYCLE_TIME=9\n");
    const Environment caller = {"A=caller", "B=caller", "C=caller", "D=caller",
                                "HOROVOD_CACHE_CAPACITY=1"};
    const auto planned = plan_of("--cycle-time-ms 2 --cache-capacity 3 --env-file " + file +
                                     " -x B=x -x C=x -x D C=word E=word",
                                 caller);
    REQUIRE(planned);
    const std::string expected =
        "A=file B=x C=word D=caller E=word HOROVOD_CACHE_CAPACITY=3 HOROVOD_CYCLE_TIME=9";
    CHECK(show(planned->added) == expected);
    CHECK(show(planned->remote) == expected);
    CHECK(show(planned->local) == expected);
}

TEST_CASE("--no-env forwards only what was asked for", "[launcher][environment]") {
    const auto planned =
        plan_of("--no-env -x A -x B=2 --tcp C=3", {"A=1", "PATH=/bin", "HOME=/root"});
    REQUIRE(planned);
    CHECK(show(planned->local) == "A=1 B=2 C=3 NCCL_IB_DISABLE=1");
    CHECK(show(planned->remote) == show(planned->local));
}

TEST_CASE("where ranks of an outer dtrun share memory is not inherited",
          "[launcher][environment]") {
    const std::string name = "OMPI_MCA_btl_vader_backing_directory=";
    CHECK(show(plan_of("", {name + "/dev/shm/dtrun-a1B2c3"})->local).empty());
    CHECK(show(plan_of("", {name + "/dev/shm/mine"})->remote) == name + "/dev/shm/mine");
}

TEST_CASE("bound and stale names are sent when they are given", "[launcher][environment]") {
    const auto planned =
        plan_of("-x HOME -x MASTER_PORT=29500 MASTER_ADDR=s1 CUDA_VISIBLE_DEVICES=0",
                {"HOME=/root", "MASTER_ADDR=old"});
    REQUIRE(planned);
    CHECK(show(planned->remote) ==
          "CUDA_VISIBLE_DEVICES=0 HOME=/root MASTER_ADDR=s1 MASTER_PORT=29500");
}

TEST_CASE("-x of a variable that is unset here is an error", "[launcher][environment]") {
    const auto planned = plan_of("-x NOT_THERE", {"NOT_THERE_EITHER=1"});
    REQUIRE_FALSE(planned);
    CHECK(planned.error().message ==
          "-x NOT_THERE: NOT_THERE is not set here; set it or write -x NOT_THERE=VALUE");
}

TEST_CASE("values are bytes, and names that nobody can look up are dropped",
          "[launcher][environment]") {
    const Environment caller = {"A=\xff\xfe\n=\x01", "=B=1", "no equals", "", "C=", "A=second"};
    const auto planned = plan_of("", caller);
    REQUIRE(planned);
    CHECK(planned->remote == std::vector<Options::Variable>{{"A", "\xff\xfe\n=\x01"}, {"C", ""}});
}

TEST_CASE("parse_env_file reads assignments as a dotenv does", "[launcher][environment]") {
    const auto [text, expected] = GENERATE(table<std::string, std::string>({
        {"", ""},
        {"\n \t\n# A=1\n  # B=2\r\n", ""},
        {"A=1", "A=1"},
        {"A=1\r\nB=2\r\n", "A=1 B=2"},
        {"  export A=1\nexport\tB=2\nexport=3", "A=1 B=2 export=3"},
        {"A=\nB= \nC=''", "A= B= C="},
        {"A= x y \t# z\nB=x#y\nC=#z", "A=x y B=x#y C="},
        {"A='x # \"\\n' # z", "A=x # \"\\n"},
        {"A=\"x\\ty\\\"\\\\\\$\\q\"", "A=x\ty\"\\$\\q"},
        {"A='x\ny'\nB=\"u\r\nv\"", "A=x\ny B=u\r\nv"},
        {"A=$HOME `x` ${y}", "A=$HOME `x` ${y}"},
        {"A=x\"y\"", "A=x\"y\""},
        {"A=1\nA=2", "A=1 A=2"},
        {"a.b-c_1==", "a.b-c_1=="},
        {"A=\xff\xfe", "A=\xff\xfe"},
    }));
    CAPTURE(text);
    CHECK(file_variables(text) == expected);
}

TEST_CASE("parse_env_file names the place of a mistake", "[launcher][environment]") {
    const auto [text, message] = GENERATE(table<std::string, std::string>({
        {"A=1\nB\n", "f.env:2:2: expected NAME=VALUE"},
        {"A =1", "f.env:1:2: expected NAME=VALUE"},
        {"export A", "f.env:1:9: expected NAME=VALUE"},
        {"export ", "f.env:1:8: expected NAME=VALUE"},
        {" =1", "f.env:1:2: '' is not a variable's name"},
        {"\n 1A=1", "f.env:2:2: '1A' is not a variable's name"},
        {"A='x\ny", "f.env:1:3: this quote is never closed"},
        {"A=\"x\\", "f.env:1:3: this quote is never closed"},
        {"A=1\nB='x' y", "f.env:2:7: text after the closing quote"},
        {"RANK=1",
         "f.env:1:1: RANK is dtrun's own (each rank's place in the job) and cannot be set"},
        {std::string("A=x\0y", 5), "f.env:1:4: a NUL byte, which no variable can hold"},
    }));
    CAPTURE(text);
    CHECK(file_variables(text) == message);
}

TEST_CASE("a wrong or missing --env-file is an error with its path", "[launcher][environment]") {
    const auto missing = plan_of("--env-file /nowhere/e", {});
    REQUIRE_FALSE(missing);
    CHECK(missing.error().code == Errc::not_found);
    CHECK(missing.error().message == "--env-file: /nowhere/e: No such file or directory");
    const TempDir directory;
    const std::string file = directory.write("file", "A=1\nWORLD_SIZE=3\n");
    const auto wrong = plan_of("--env-file " + file, {});
    REQUIRE_FALSE(wrong);
    CHECK(wrong.error().message ==
          file +
              ":2:1: WORLD_SIZE is dtrun's own (each rank's place in the job) and cannot be set");
}

TEST_CASE("help on the environment lists every group with its reason", "[launcher][environment]") {
    const std::string help = environment_help();
    for (const VariableGroup& group : variable_groups()) {
        CHECK_THAT(help, Contains(std::string(group.reason)));
        for (const std::string_view name : split(group.names, ' '))
            CHECK_THAT(help, Contains(std::string(name)));
    }
}
