#include "launcher/commands/print_plan.h"
#include "launcher/mpirun/mpirun_command.h"
#include "launcher/mpirun/mpirun_run.h"
#include "rendezvous/wire/modes.h"
#include "tests/launcher/cli_support.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace dtrun;
using namespace dtrun::plan;
using namespace dtrun::commands;
using namespace dtrun::mpirun;
using Catch::Contains;
using Catch::StartsWith;
using Kind = MpirunProgram::Kind;

namespace {

constexpr const char* kOpenmpi4 = "mpirun (Open MPI) 4.1.4\n\nReport bugs to ...\n";
constexpr const char* kOpenmpi5 = "mpirun (Open MPI) 5.0.7\n\nReport bugs to ...\n";
constexpr const char* kMpich =
    "HYDRA build details:\n    Version:                                 4.0.2\n"
    "    Release Date:                            Thu Apr  7 12:34:45 CDT 2022\n";
constexpr const char* kIntel =
    "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626 (id: b44796a)\n"
    "Copyright 2003-2026, Intel Corporation.\n";

JobSpec spec_of(std::string_view typed, const Environment& caller = {}) {
    auto spec =
        make_job_spec(options_of(fmt::format("--mpi mpirun {}", typed), caller), caller, "/work");
    if (!spec) throw std::runtime_error(spec.error().message);
    return std::move(*spec);
}

MpirunProgram found_mpirun(const char* version) {
    return identify_mpirun("mpirun", version).value();
}

Result<MpirunCommand> compose(const char* version, std::string_view typed,
                              const Environment& caller = {}) {
    return compose_mpirun(spec_of(typed, caller), found_mpirun(version), {.hostfile_path = "FILE"});
}

/// The command line, or the error.
std::string runs(const char* version, std::string_view typed, const Environment& caller = {}) {
    const auto command = compose(version, typed, caller);
    return command ? mpirun_command_text(*command) : command.error().message;
}

}  // namespace

TEST_CASE("an mpirun is told by what it says of its version", "[launcher][mpirun]") {
    const auto [text, kind, major, name] = GENERATE(table<std::string, Kind, int, std::string>({
        {kOpenmpi4, Kind::openmpi, 4, "Open MPI 4.1.4"},
        {kOpenmpi5, Kind::openmpi, 5, "Open MPI 5.0.7"},
        {"mpirun.openmpi (OpenRTE) 4.1.4\n", Kind::openmpi, 4, "Open MPI 4.1.4"},
        {"mpirun (Open MPI) gitclone\n\nversion 9", Kind::openmpi, 0, "Open MPI"},
        {"mpirun (IBM Spectrum MPI) 10.3.1.02rtm0\n", Kind::openmpi, 0,
         "IBM Spectrum MPI 10.3.1.02"},
        {kMpich, Kind::mpich, 0, "MPICH 4.0.2"},
        {"MVAPICH2 HYDRA build details:\n    Version:   3.2.1\n", Kind::mpich, 0, "MVAPICH 3.2.1"},
        {kIntel, Kind::intel, 0, "Intel MPI 2021.18.1"},
    }));
    CAPTURE(text);
    const auto program = identify_mpirun("/opt/mpirun", text);
    REQUIRE(program.has_value());
    CHECK(program->path == "/opt/mpirun");
    CHECK(program->kind == kind);
    CHECK(program->major == major);
    CHECK(program->name == name);
}

TEST_CASE("a program that is no known mpirun is named with what it said", "[launcher][mpirun]") {
    const std::string error = identify_mpirun("/bin/ls", "\nls (GNU) 9\nmore\n").error().message;
    CHECK_THAT(error, StartsWith("/bin/ls --version names none of Open MPI, MPICH,") &&
                          Contains(": 'ls (GNU) 9'"));
    CHECK_FALSE(identify_mpirun("x", "").has_value());
}

TEST_CASE("Open MPI's mpirun gets hosts, places, variables and the program", "[launcher][mpirun]") {
    const Environment caller = {"PATH=/bin", "HOME=/root", "OMPI_MCA_btl=tcp", "TMPDIR=/tmp"};
    CHECK(runs(kOpenmpi4, "-H s1:4,s2:2 -x A=1 prog 'a b'", caller) ==
          "mpirun -np 6 -H s1:4,s2:2 --bind-to none --map-by slot --tag-output -x A -x "
          "OMPI_MCA_btl -x PATH prog 'a b'");
    CHECK(runs(kOpenmpi4, "-np 1 prog", caller) ==
          "mpirun -np 1 -H localhost:1 --bind-to none --map-by slot prog");
    CHECK(runs(kOpenmpi4, "-np 3 -H s1:2,s2:2 --map-by node --tag none p") ==
          "mpirun -np 3 -H s1:2,s2:1 --bind-to none --map-by node p");
    CHECK(runs(kOpenmpi4, "-H s1:1 -np 2 --oversubscribe --wdir w --timestamps --stdin 1 p") ==
          "mpirun -np 2 -H s1:2 --bind-to none --map-by slot --oversubscribe --tag-output "
          "--timestamp-output --stdin 1 -wdir /work/w p");
    CHECK(runs(kOpenmpi4,
               "-np 2 --mpi-args '-mca x \"a b\"' --mpi-args=-q --stdin all "
               "--binding-args='--bind-to core' p") ==
          "mpirun -np 2 -H localhost:2 --bind-to core --tag-output --stdin all -mca x 'a b' -q p");
    const auto command =
        compose_mpirun(spec_of("-np 1 p"), found_mpirun(kOpenmpi4), {.as_root = true});
    REQUIRE(command.has_value());
    CHECK(command->argv[1] == "--allow-run-as-root");
}

TEST_CASE("Open MPI 5 has other names for the same", "[launcher][mpirun]") {
    CHECK(runs(kOpenmpi5,
               "-H s1:1 -np 2 --oversubscribe --timestamps -p 2222 --transport ssh "
               "--network-interfaces e0,e1 p") ==
          "mpirun -np 2 -H s1:2 --bind-to none --map-by slot:OVERSUBSCRIBE --prtemca plm ssh "
          "--prtemca plm_ssh_args '-p 2222' --mca btl_tcp_if_include e0,e1 --prtemca "
          "prte_if_include e0,e1 --output tag,timestamp -x GLOO_SOCKET_IFNAME -x "
          "HOROVOD_GLOO_IFACE -x NCCL_SOCKET_IFNAME p");
}

TEST_CASE("flags for ssh and interfaces reach each mpirun in its own way", "[launcher][mpirun]") {
    const std::string flags =
        "-H s1:1 -p 2222 --ssh-command 'myssh -4' --accept-new-host-keys --connect-timeout 2.5 "
        "--network-interfaces e0 --tag none ";
    CHECK_THAT(runs(kOpenmpi4, flags + "p"),
               Contains(" --mca plm_rsh_agent myssh --mca plm_rsh_args '-4 -p 2222 -o "
                        "StrictHostKeyChecking=accept-new -o ConnectTimeout=3' --mca "
                        "btl_tcp_if_include e0 --mca oob_tcp_if_include e0 -x "));
    const std::string ssh =
        "'-4 -p 2222 -o StrictHostKeyChecking=accept-new -o ConnectTimeout=3' mpirun ";
    CHECK_THAT(runs(kMpich, flags + "p"),
               StartsWith("HYDRA_LAUNCHER_EXTRA_ARGS=" + ssh +
                          "-hosts s1:1 -bootstrap ssh -bootstrap-exec myssh -iface e0 -genvlist "));
    CHECK_THAT(
        runs(kIntel, flags + "p"),
        StartsWith("I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS=" + ssh +
                   "-machinefile FILE -bootstrap ssh -bootstrap-exec myssh -iface e0 -genvlist "));
    // On this machine alone nobody logs in.
    CHECK_THAT(runs(kOpenmpi4, "-np 1 -p 2222 p"), !Contains("2222"));
    // What Slurm sets for srun is not for ssh.
    CHECK_THAT(runs(kMpich, "-H s1:1 --transport ssh p"),
               StartsWith("HYDRA_LAUNCHER_EXTRA_ARGS='' mpirun "));
}

TEST_CASE("Hydra gets hosts, places, variables and the program", "[launcher][mpirun]") {
    CHECK(runs(kMpich, "-H s1:4,s2:2 -x A=1 --wdir /d prog 'a b'", {"PATH=/bin", "HOME=/root"}) ==
          "mpirun -hosts s1:4,s2:2 -prepend-rank -wdir /d -genvlist A,PATH -n 6 prog 'a b'");
    CHECK(runs(kMpich, "-np 3 -H s1:2,s2:2 --map-by node --tag none p") ==
          "mpirun -hosts s1:2,s2:1 -ppn 1 -n 3 p");
    CHECK(runs(kMpich, "-np 1 --tag rank-host --timestamps p") ==
          "mpirun -hosts localhost:1 -prepend-pattern '%t [%r@%h] ' -n 1 p");
    CHECK(runs(kMpich, "-np 2 --tag host --mpi-args=-v --binding-args '=x' p") ==
          "mpirun -hosts localhost:2 -prepend-pattern '[%h] ' =x -v -n 2 p");
    CHECK(runs(kIntel, "-np 2 --stdin all p") ==
          "mpirun -machinefile FILE -prepend-rank -s all -n 2 p");
}

TEST_CASE("many hosts, and hosts with users, are written to a file", "[launcher][mpirun]") {
    const auto openmpi = compose(kOpenmpi4, "-H al@s1:4,s2:2 --tag none p");
    REQUIRE(openmpi.has_value());
    CHECK(mpirun_command_text(*openmpi) ==
          "mpirun -np 6 --hostfile FILE --bind-to none --map-by slot p");
    CHECK(openmpi->hostfile == "al@s1 slots=4\ns2 slots=2\n");
    const auto mpich = compose(kMpich, "-H al@s1:4,s2:2 --tag none p");
    REQUIRE(mpich.has_value());
    CHECK(mpirun_command_text(*mpich) == "mpirun -f FILE -n 6 p");
    CHECK(mpich->hostfile == "s1:4 user=al\ns2:2\n");
    const auto intel = compose(kIntel, "-H s1:3,s2:1 --map-by node p");
    REQUIRE(intel.has_value());
    CHECK(intel->hostfile == "s1:1\ns2:1\ns1:2\n");

    const auto many = compose(kOpenmpi4, "-H n[01-64]:2 --tag none p");
    REQUIRE(many.has_value());
    CHECK(mpirun_command_text(*many) ==
          "mpirun -np 128 --hostfile FILE --bind-to none --map-by slot --mca "
          "plm_rsh_no_tree_spawn true --mca plm_rsh_num_concurrent 64 p");
    CHECK(std::ranges::count(many->hostfile, '\n') == 64);
    CHECK(compose(kOpenmpi4, "-H n[01-16] p")->hostfile.empty());
    CHECK_FALSE(compose(kOpenmpi4, "-H n[01-17] p")->hostfile.empty());
}

TEST_CASE("a program gets its words as they are", "[launcher][mpirun]") {
    const auto colon = compose(kOpenmpi4, "-np 1 prog a : 'b c'");
    REQUIRE(colon.has_value());
    const std::vector<std::string> shell(colon->argv.end() - 3, colon->argv.end());
    CHECK(shell == std::vector<std::string>{"/bin/sh", "-c", "exec prog a : 'b c'"});
    CHECK(compose(kMpich, "-np 1 --stdin none prog ''")->argv.back() == "exec prog '' </dev/null");
    CHECK(runs(kMpich, "-np 1 -- -prog") ==
          "--mpi mpirun: it takes the program -prog for an option; write it with its directory");
}

TEST_CASE("what an mpirun cannot be told is an error that says what to do", "[launcher][mpirun]") {
    const auto [version, typed, error] = GENERATE(table<const char*, std::string, std::string>({
        {kOpenmpi4, "-H [::1]:2 p",
         "::1: an IPv6 address cannot be a host's name there; give it a "
         "name in /etc/hosts"},
        {kIntel, "-H al@s1 p",
         "host s1: Intel MPI 2021.18.1 has no place for user al; put it into ~/.ssh/config"},
        {kOpenmpi4, "-H s1:4 --include s1:0,2 p",
         "host s1: it counts slots and cannot choose slot 2; filter whole hosts only"},
        {kOpenmpi4, "-H s1 --tag host p",
         "Open MPI 4.1.4 tags lines with ranks only; use --tag rank or none"},
        {kOpenmpi5, "-H s1 -np 2 --oversubscribe --binding-args=x p",
         "--binding-args takes the place of --oversubscribe with Open MPI 5.0.7; write it there as "
         "--map-by slot:OVERSUBSCRIBE"},
        {kOpenmpi4, "-H s1 --ssh-command \"ssh -o 'A b'\" p",
         "ssh would get 'A b' as several words; put it into ~/.ssh/config"},
        {kOpenmpi4, "-H s1 --ssh-command a:b p",
         "--ssh-command: Open MPI 4.1.4 cannot be told of a:b; link it to a plain name"},
        {kMpich, "-H s1:3,s2:1 --map-by node p",
         "MPICH 4.0.2 cannot give ranks to hosts in turn if these have different numbers of them; "
         "use --map-by slot"},
        {kMpich, "-H s1 --network-interfaces e0,e1 p",
         "MPICH 4.0.2 takes one of --network-interfaces e0,e1; name only that"},
        {kMpich, "-np 2 --stdin 1 p",
         "MPICH 4.0.2 gives standard input to rank 0 only; use --stdin 0 or none"},
    }));
    CAPTURE(typed);
    CHECK(runs(version, typed) == "--mpi mpirun: " + error);
}

TEST_CASE("a port or key of one host has no place in a hostfile", "[launcher][mpirun]") {
    const TempDir directory;
    const std::string key = directory.write("key", "");
    const std::string hosts =
        directory.write("hosts.yaml",
                        "hosts:\n  - {host: s1, slots: 1, address: 10.0.0.1}\n"
                        "  - {host: s2, slots: 1, port: 2222}\n");
    CHECK_THAT(runs(kMpich, "--hostfile " + hosts + " p"),
               Contains("host s2: no place for its port 2222; put it into ~/.ssh/config"));
    CHECK_THAT(runs(kMpich, "--hostfile " + hosts + " --include s1 p"),
               Contains("-hosts 10.0.0.1:1 "));
    directory.write("hosts.yaml", "hosts:\n  - {host: s2, slots: 1, identity_file: " + key + "}\n");
    CHECK_THAT(runs(kOpenmpi4, "--hostfile " + hosts + " p"), Contains("no place for its key"));
}

TEST_CASE("flags that need dtrun's own agents are refused together", "[launcher][mpirun]") {
    CHECK(error_of("--mpi mpirun --encrypt --store rank0 --max-restarts 2 p") ==
          "--mpi mpirun: no agent of dtrun is on the hosts, which --store, --encrypt and "
          "--max-restarts would need; leave them out, or let dtrun start the ranks (--mpi auto)");
    const std::string flag =
        GENERATE("--no-env", "--contract jax", "--tree-threshold 2", "--start-timeout 9",
                 "--output-dir d", "--only-ranks 0", "--quiet-ranks 0", "--grace 1",
                 "--heartbeat-timeout 9", "--init-timeout 9", "--keep-going");
    CHECK_THAT(error_of("--mpi mpirun " + flag + " p"),
               Contains("which " + flag.substr(0, flag.find(' ')) + " would need; leave it out"));
    CHECK(options_of("--mpi mpirun p", {"HOROVOD_START_TIMEOUT=9"}).mpirun);
    CHECK_THAT(error_of("--mpi mpirun --map-by node --binding-args=x p"),
               StartsWith("--binding-args takes the place of --map-by;"));
}

TEST_CASE("dtrun's words for binding are those of the mpirun, or an error", "[launcher][mpirun]") {
    CHECK(runs(kOpenmpi4, "-np 2 --bind-to core --report-bindings --tag none p") ==
          "mpirun -np 2 -H localhost:2 --bind-to core --map-by slot --report-bindings p");
    CHECK(runs(kOpenmpi4, "-np 2 --map-by numa --tag none p") ==
          "mpirun -np 2 -H localhost:2 --bind-to numa --map-by numa p");
    CHECK(runs(kOpenmpi4, "-np 2 --cpus-per-rank 4 --tag none p") ==
          "mpirun -np 2 -H localhost:2 --bind-to core --map-by slot:PE=4 p");
    CHECK(runs(kOpenmpi5, "-np 2 --bind-to l3 --report-bindings --tag none p") ==
          "mpirun -np 2 -H localhost:2 --bind-to l3cache --map-by slot --display bindings p");
    CHECK(runs(kMpich, "-np 2 --cpus-per-rank 2 --map-by socket --tag none p") ==
          "mpirun -hosts localhost:2 -bind-to core:2 -map-by socket -n 2 p");
    CHECK_THAT(runs(kOpenmpi4, "-np 2 --bind-to gpu p"),
               Contains("knows no --bind-to gpu; say --bind-to core, l3, numa or socket"));
    CHECK_THAT(runs(kIntel, "-np 2 --bind-to core p"),
               Contains("binds by its own variables; give them as -x I_MPI_PIN_DOMAIN=numa"));
}

TEST_CASE("arguments for mpirun need mpirun", "[launcher][mpirun]") {
    CHECK_THAT(error_of("--mpi-args=-q p"), StartsWith("--mpi-args is for mpirun, which dtrun runs "
                                                       "with --mpi mpirun only;"));
    CHECK_THAT(error_of("--mpi --mpi-args=-q p"), StartsWith("--mpi-args is for mpirun"));
    for (const std::string flag : {"--mpi-args", "--binding-args"}) {
        CHECK(error_of("--mpi mpirun " + flag + "=\"'\" p") ==
              flag + ": a quote in ' is never closed");
    }
    CHECK_THAT(error_of("torchrun --mpi mpirun x.py"), StartsWith("--mpi mpirun: dtrun torchrun"));
    CHECK_THAT(error_of("deepspeed --mpi mpirun x.py"),
               StartsWith("--mpi mpirun: dtrun deepspeed"));
}

TEST_CASE("--mpi takes one of its words and never the program", "[launcher][mpirun]") {
    const auto [typed, mode, is_mpirun] = GENERATE(table<std::string, MpiMode, bool>({
        {"--mpi auto", MpiMode::automatic, false},
        {"--mpi=pmix", MpiMode::pmix, false},
        {"--mpi pmi1", MpiMode::pmi1, false},
        {"--mpi pmi2 --mpi", MpiMode::pmi2, false},
        {"--mpi mpirun --mpi", MpiMode::none, true},
        {"--mpi none", MpiMode::none, false},
        {"--mpi mpirun", MpiMode::none, true},
        {"--mpi mpirun --mpi auto", MpiMode::automatic, false},
        {"--mpi", MpiMode::automatic, false},
        {"--mpi -np 2", MpiMode::automatic, false},
        {"--mpi --", MpiMode::automatic, false},
    }));
    CAPTURE(typed);
    const Options options = options_of(typed + " prog pmix");
    CHECK(options.mpi == mode);
    CHECK(options.mpirun == is_mpirun);
    CHECK(options.program == std::vector<std::string>{"prog", "pmix"});
    CHECK(options_of("torchrun --mpi pmix train.py").mpi == MpiMode::pmix);
    CHECK(options_of("deepspeed --mpi pmi1 train.py").mpi == MpiMode::pmi1);
}

TEST_CASE("a mistake in --mpi is not taken for a program", "[launcher][mpirun]") {
    const std::string choices = " is not one of auto, pmix, pmi1, pmi2, mpirun and none";
    CHECK(error_of("--mpi pmix1 prog") ==
          "--mpi: 'pmix1'" + choices + "; did you mean pmix? (-- before a program)");
    CHECK_THAT(error_of("--mpi pmi-2 prog"), Contains("did you mean pmi2?"));
    CHECK(options_of("--mpi -- pmix1").program == std::vector<std::string>{"pmix1"});
    CHECK(options_of("--mpi ./pmix").program == std::vector<std::string>{"./pmix"});
    CHECK(error_of("--mpi=openmpi prog") == "--mpi: 'openmpi'" + choices);
    CHECK(error_of("--mpi= prog") == "--mpi: the value is empty");
    CHECK_THAT(error_of("--mpi"), StartsWith("no program to run"));
    CHECK_THAT(all_flags_help(), Contains("--mpi [auto|pmix|pmi1|pmi2|mpirun|none]\n"));
}

TEST_CASE("MPI that is asked for must be among the contracts", "[launcher][mpirun]") {
    for (const std::string mode : {"--mpi auto", "--mpi=pmix", "--mpi pmi1", "--mpi pmi2", "--mpi"})
        CHECK(error_of(mode + " --contract none,torch --contract horovod -- p") ==
              "--contract none,torch,horovod leaves out mpi, without which no rank finds MPI; add "
              "--contract mpi");
    CHECK_THAT(error_of("torchrun --mpi pmix --contract none x.py"), Contains("leaves out mpi"));
    CHECK(options_of("--mpi pmix --contract none --contract mpi p").mpi == MpiMode::pmix);
    CHECK(options_of("--mpi pmix --contract jax p").mpi == MpiMode::pmix);
    CHECK(options_of("--mpi none --contract none p").mpi == MpiMode::none);
    CHECK(options_of("--mpi auto --mpi none --contract none p").mpi == MpiMode::none);
    CHECK(options_of("--contract none p").mpi == MpiMode::automatic);
}

TEST_CASE("arguments for mpirun may begin with a dash, other values may not", "[launcher][cli]") {
    CHECK(options_of("--mpi mpirun --mpi-args '-mca btl tcp' p").mpi_args.size() == 3);
    CHECK(options_of("--mpi mpirun --binding-args '-a b' p").binding_args.size() == 2);
    CHECK_THAT(error_of("--hostfile '-a b' p"), StartsWith("--hostfile needs a value:"));
    CHECK_THAT(error_of("--mpi mpirun --mpi-args -q p"), StartsWith("--mpi-args needs a value:"));
}

TEST_CASE("ranks and mpirun itself inherit what belongs to neither a launcher nor dtrun",
          "[launcher][mpirun]") {
    const JobSpec spec = spec_of("-H s1:2 -x B=2 p", {"A=1", "HOME=/root", "PMIX_RANK=0",
                                                      "PMI_FD=9", "CUDA_VISIBLE_DEVICES=1"});
    CHECK(show(spec.environment.local) == "A=1 B=2 CUDA_VISIBLE_DEVICES=1 HOME=/root");
    CHECK(spec.contracts.empty());
}

TEST_CASE("the plan shows the command that --mpi mpirun would run", "[launcher][mpirun][plan]") {
    const JobSpec spec = spec_of("-H al@s1:1,s2:1 --transport ssh p");
    MpirunPlan plan{found_mpirun(kMpich), {}};
    plan.command = compose_mpirun(spec, plan.mpirun, {.hostfile_path = "/dev/fd/64"}).value();
    CHECK_THAT(plan_text(spec, &plan),
               Contains("  al    mpirun\n") &&
                   Catch::EndsWith(
                       "mpirun:     MPICH 4.0.2\n"
                       "runs:       HYDRA_LAUNCHER_EXTRA_ARGS='' mpirun -f /dev/fd/64 -bootstrap "
                       "ssh -prepend-rank -n 2 p\n"
                       "hostfile:   s1:1 user=al\n"
                       "            s2:1\n"));
    CHECK_THAT(
        plan_json(spec, &plan),
        Catch::EndsWith(R"(,"mpirun":{"name":"MPICH 4.0.2","command":["mpirun","-f","/dev/fd/64",)"
                        R"("-bootstrap","ssh","-prepend-rank","-n","2","p"],)"
                        R"("environment":{"HYDRA_LAUNCHER_EXTRA_ARGS":""},)"
                        R"("hostfile":"s1:1 user=al\ns2:1\n"}})"
                        "\n"));
}

TEST_CASE("in a step of Slurm mpirun's own step may overlap", "[launcher][mpirun]") {
    JobSpec spec = spec_of("-H s1:1 p");
    spec.hosts.front().transport = Transport::slurm;
    const auto command = compose_mpirun(spec, found_mpirun(kOpenmpi4), {.in_slurm_step = true});
    REQUIRE(command.has_value());
    CHECK(show(command->environment) == "SLURM_OVERLAP=1");
}

TEST_CASE("the mpirun is DTRUN_MPIRUN, else the first of mpirun and mpiexec",
          "[launcher][mpirun]") {
    const TempDir directory;
    const auto install = [&directory](const std::string& name, const std::string& script) {
        return directory.write(name, "#!/bin/sh\n" + script, 0755);
    };
    const std::string path = "PATH=" + directory.path() + ":/bin:/usr/bin";
    const std::string only = "PATH=" + directory.path();
    CHECK_THAT(find_mpirun(Environment{only}).error().message,
               Contains("PATH has neither mpirun nor mpiexec; install Open MPI or MPICH,"));
    const std::string mpiexec = install("mpiexec", "echo 'mpiexec (Open MPI) 5.0.7'\n");
    CHECK(find_mpirun(Environment{only})->path == mpiexec);
    const std::string mpirun = install("mpirun", "echo 'HYDRA build details' >&2\n");
    CHECK(find_mpirun(Environment{path})->path == mpirun);
    CHECK(find_mpirun(Environment{only})->name == "MPICH");
    CHECK(find_mpirun(Environment{only, "DTRUN_MPIRUN=mpiexec"})->path == mpiexec);
    CHECK(find_mpirun(Environment{only, "DTRUN_MPIRUN=" + mpiexec})->major == 5);
    CHECK_THAT(find_mpirun(Environment{only, "DTRUN_MPIRUN=x"}).error().message,
               Contains("DTRUN_MPIRUN=x: not found in PATH"));
    for (const std::string& file :
         {std::string("/x/y"), directory.path(), directory.write("z", "")})
        CHECK_THAT(
            find_mpirun(Environment{only, "DTRUN_MPIRUN=" + file}).error().message,
            Contains("DTRUN_MPIRUN=" + file + ": no file that can be executed, or dtrun itself;"));
    install("mpirun", "echo one; echo 'cannot do that' >&2; exit 3\n");
    CHECK_THAT(find_mpirun(Environment{only}).error().message,
               Contains("--version ends with 3: cannot do that; name another in DTRUN_MPIRUN"));
}

TEST_CASE("dtrun mpirun follows the variables that tell an mpirun of its hosts and its ssh",
          "[launcher][cli][mpirun]") {
    const auto hostfile_of = [](const char* variable, std::string_view typed = "-np 2 p") {
        return options_of(fmt::format("mpirun {}", typed), {fmt::format("{}=/h", variable)})
            .hostfile;
    };
    for (const char* const name :
         {"OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile",
          "I_MPI_HYDRA_HOST_FILE", "HYDRA_HOST_FILE"}) {
        CAPTURE(name);
        CHECK(hostfile_of(name) == "/h");
        CHECK(hostfile_of(name, "-H a:2 p").empty());
        CHECK(hostfile_of(name, "--hostfile /own p") == "/own");
        CHECK(hostfile_of(name, "--mpi mpirun -np 2 p").empty());  // that one reads it itself
    }
    CHECK(options_of("mpirun p", {"HYDRA_HOST_FILE=/h", "DTRUN_RANK=0"}).hostfile.empty());
    CHECK(options_of("run p", {"HYDRA_HOST_FILE=/h"}).hostfile.empty());

    const Options by_script =
        options_of("mpirun p", {"OMPI_MCA_plm_rsh_agent=/etc/mpi/kubexec.sh"});
    CHECK(by_script.ssh_command == "/etc/mpi/kubexec.sh");
    const Options by_port = options_of("mpirun p", {"OMPI_MCA_plm_rsh_args=-p 2222 -i /key"});
    CHECK(by_port.ssh_command.empty());
    CHECK(by_port.ssh_port == 2222);
    CHECK(by_port.ssh_identity_file == "/key");
    const std::string tries = "-o ConnectionAttempts=10";
    CHECK(options_of("mpirun p", {"OMPI_MCA_plm_rsh_args=" + tries}).ssh_command == "ssh " + tries);
    CHECK(
        options_of("mpirun --ssh-command mine p", {"OMPI_MCA_plm_rsh_args=" + tries}).ssh_command ==
        "mine");
}

TEST_CASE("mpirun goes on without a variable that is not set here", "[launcher][cli][mpirun]") {
    const std::string behind = ": -np 1 -x NONE q";
    const Options options = options_of("mpirun -np 1 -x NONE -x A -x B=1 p " + behind, {"A=there"});
    CHECK(options.export_vars == std::vector<std::string>{"A", "B=1"});
    REQUIRE(options.parts.size() == 2);
    CHECK(options.parts[1].export_vars.empty());
    CHECK(options.notes ==
          std::vector<std::string>{"NONE is not set here, so it is not passed on"});
    CHECK(options_of("run -x NONE p").export_vars == std::vector<std::string>{"NONE"});
}

TEST_CASE("Open MPI 5 has oversubscribing behind a colon, and in variables",
          "[launcher][cli][mpirun]") {
    for (const std::string typed :
         {"--map-by :OVERSUBSCRIBE", "--map-by slot:Oversubscribe",
          "--map-by ppr:8:node:oversubscribe", "--mca rmaps_base_oversubscribe 1"}) {
        CAPTURE(typed);
        const Options options = options_of("mpirun " + typed + " -H localhost p");
        CHECK(options.oversubscribe);
        CHECK(options.notes.empty());
    }
    for (const std::string variable : {"OMPI_MCA_rmaps_base_oversubscribe=True",
                                       "PRTE_MCA_rmaps_default_mapping_policy=:OVERSUBSCRIBE"}) {
        CAPTURE(variable);
        CHECK(options_of("mpirun p", {variable}).oversubscribe);
        CHECK_FALSE(options_of("mpirun p", {variable, "DTRUN_RANK=0"}).oversubscribe);
        CHECK_FALSE(options_of("run p", {variable}).oversubscribe);
    }
    CHECK_FALSE(options_of("mpirun --mca rmaps_base_oversubscribe 0 p").oversubscribe);
    CHECK_FALSE(options_of("mpirun --map-by slot:NOOVERSUBSCRIBE p").oversubscribe);
    const Options shown = options_of("mpirun --display map-devel,bind p");
    CHECK(shown.show_plan);
    CHECK(shown.binding.report);
    CHECK(error_of("mpirun --display cpus p") ==
          "--display: 'cpus' is none of map, allocation, topo and bind");
}

TEST_CASE("long names of mpirun may have one dash or two", "[launcher][cli][mpirun]") {
    for (const std::string typed : {"-pernode", "--pernode", "--perhost 1", "-npernode 1"}) {
        CAPTURE(typed);
        const Options options = options_of("mpirun " + typed + " -H a:4,b:4 p");
        CHECK(options.shape.number == 1);
        CHECK(options.shape.count_flag == "-N 1");
    }
    CHECK(options_of("mpirun --genv A b p").export_vars == std::vector<std::string>{"A=b"});
    CHECK(error_of("mpirun -perfect p") == "unknown option -perfect; see dtrun mpirun --help");
}

TEST_CASE("what mpirun's daemons are told does not matter here", "[launcher][cli][mpirun]") {
    const Options options = options_of("mpirun --leave-session-attached --debug-daemons p");
    CHECK(options.verbosity == log::Level::debug);
    CHECK(options.program == std::vector<std::string>{"p"});
    CHECK_THAT(error_of("mpirun --report-uri - p"), Contains("for daemons of mpirun"));
    CHECK_THAT(error_of("mpirun --preload-binary p"), Contains("programs are not copied"));
}

TEST_CASE("mpirun's words for its ssh are those of dtrun", "[launcher][cli][mpirun]") {
    const Options port = options_of("mpirun -mca plm_rsh_args '-p 22' p");
    CHECK(port.ssh_port == 22);
    CHECK(port.notes.empty());
    const Options agent = options_of("mpirun --mca plm_rsh_agent 'ssh -q : rsh' p");
    CHECK(agent.ssh_command == "ssh -q");
    CHECK(options_of("mpirun --mca plm_rsh_agent 'ssh : rsh' p").ssh_command.empty());
    const Options idle = options_of("mpirun --mca plm_rsh_args '-q -x -p 23' p");
    CHECK(idle.ssh_port == 23);
    CHECK(idle.ssh_command.empty());
    CHECK(error_of("mpirun --mca plm_rsh_args") == "--mca needs two words: --mca NAME VALUE");
}
