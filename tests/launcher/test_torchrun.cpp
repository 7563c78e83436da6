#include "launcher/output/line_prefix.h"
#include "launcher/plan/machine_facts.h"
#include "rendezvous/wire/modes.h"
#include "tests/launcher/cli_support.h"
#include "tests/support/catch.h"

using namespace dtrun;
using namespace dtrun::frontends;
using namespace dtrun::plan;
using namespace dtrun::cli;
using namespace dtrun::output;
using namespace std::chrono_literals;
using Catch::Contains;
using Strings = std::vector<std::string>;
using Count = HostShape::Count;

namespace {

/// Options of what stands behind `dtrun torchrun`, where the interpreter is called py.
Options torch_options(const std::string& typed, Environment caller = {}) {
    caller.emplace_back("PYTHON_EXEC=py");
    return options_of("torchrun " + typed, caller);
}

std::string torch_error(const std::string& typed, const Environment& caller = {}) {
    return error_of("torchrun " + typed, caller);
}

Strings torch_warnings(const std::string& typed, const Environment& caller = {}) {
    const auto command = parse_typed("torchrun " + typed, caller);
    REQUIRE(command.has_value());
    Strings all = command->warnings;
    all.insert(all.end(), command->options.notes.begin(), command->options.notes.end());
    return all;
}

/// What becomes of both outputs of a local rank, as "file shown prefixed".
std::string streams(const RankOutput& output, std::uint32_t local_rank) {
    return fmt::format("{} {} {}", output.to_file.of(local_rank), output.shown.of(local_rank),
                       output.prefixed.of(local_rank));
}

}  // namespace

TEST_CASE("torchrun's script gets the interpreter before it", "[launcher][torchrun]") {
    const auto [typed, program] = GENERATE(table<std::string, Strings>({
        {"t.py", {"py", "-u", "t.py"}},
        {"t.py -m --nnodes 3", {"py", "-u", "t.py", "-m", "--nnodes", "3"}},
        {"-- t.py -- x", {"py", "-u", "t.py", "--", "x"}},
        {"-m pkg.mod a", {"py", "-u", "-m", "pkg.mod", "a"}},
        {"--module pkg.mod", {"py", "-u", "-m", "pkg.mod"}},
        {"--no-python prog a", {"prog", "a"}},
        {"--no_python prog a", {"prog", "a"}},
        {"A=1", {"py", "-u", "A=1"}},
    }));
    CAPTURE(typed);
    CHECK(torch_options(typed).program == program);
    CHECK_FALSE(torch_options(typed).rank_macros);
}

TEST_CASE("--run-path runs the script inside the interpreter", "[launcher][torchrun]") {
    for (const char* typed : {"--run-path /a/t.py x", "--run_path --no-python /a/t.py x"}) {
        const Strings program = torch_options(typed).program;
        REQUIRE(program.size() == 6);
        CHECK(program[2] == "-c");
        CHECK_THAT(program[3], Contains("runpy.run_path(sys.argv[0], run_name='__main__')"));
        CHECK(program[4] == "/a/t.py");
        CHECK(program[5] == "x");
    }
}

TEST_CASE("${local_rank} is replaced only where the script's words have it",
          "[launcher][torchrun]") {
    CHECK(torch_options("t.py --out '${local_rank}.txt'").rank_macros);
    CHECK_FALSE(torch_options("t.py --out '${rank}.txt'").rank_macros);
}

TEST_CASE("The interpreter is PYTHON_EXEC, else that of PATH", "[launcher][torchrun]") {
    CHECK(options_of("torchrun t.py", {"PYTHON_EXEC=/x/python"}).program[0] == "/x/python");
    CHECK(options_of("torchrun t.py", {"PYTHON_EXEC=", "PATH=/nowhere"}).program[0] == "python3");
    CHECK(options_of("torchrun t.py").program[0] == "python3");
}

TEST_CASE("--nnodes and --nproc-per-node shape the hosts", "[launcher][torchrun]") {
    const auto [typed, min, max, count, number] =
        GENERATE(table<std::string, int, int, Count, int>({
            {"", 1, kHostsMax, Count::slots, 0},
            {"--nnodes 4", 4, 4, Count::slots, 0},
            {"--nnodes=2:4", 2, 4, Count::slots, 0},
            {"--nnodes 1:1 --nproc-per-node 2", 1, 1, Count::number, 2},
            {"--nproc_per_node=8", 1, kHostsMax, Count::number, 8},
            {"--nproc-per-node auto", 1, kHostsMax, Count::automatic, 0},
            {"--nproc-per-node gpu", 1, kHostsMax, Count::gpu, 0},
            {"--nproc-per-node cpu", 1, kHostsMax, Count::cpu, 0},
            {"--nproc 3", 1, kHostsMax, Count::number, 3},
        }));
    CAPTURE(typed);
    const HostShape shape = torch_options(typed + " t.py").shape;
    CHECK(shape.hosts_min == min);
    CHECK(shape.hosts_max == max);
    CHECK(shape.count == count);
    CHECK(shape.number == number);
}

TEST_CASE("PET_ variables are defaults that the command line overrides", "[launcher][torchrun]") {
    const Environment caller = {
        "PET_NNODES=3",    "PET_NPROC_PER_NODE=gpu", "PET_MAX_RESTARTS=2", "PET_ROLE=trainer",
        "PET_MODULE=1",    "PET_STANDALONE=0",       "PET_RDZV_ID=job7",   "PET_TEE=3",
        "PET_LOG_DIR=logs"};
    const Options from_variables = torch_options("t.py", caller);
    CHECK(from_variables.shape.hosts_min == 3);
    CHECK(from_variables.shape.count == Count::gpu);
    CHECK(from_variables.max_restarts == 2);
    CHECK(from_variables.role == "trainer");
    CHECK(from_variables.run_id == "job7");
    CHECK(from_variables.program == Strings{"py", "-u", "-m", "t.py"});
    CHECK(from_variables.output_dir == "logs");
    const Options over =
        torch_options("--nnodes 2 --nproc-per-node 4 --role r --tee 0 t.py", caller);
    CHECK(over.shape.hosts_max == 2);
    CHECK(over.shape.number == 4);
    CHECK(over.role == "r");
    CHECK(over.output_dir.empty());
    CHECK(torch_options("t.py", {"PET_NNODES="}).shape.hosts_flag.empty());
    CHECK(torch_error("t.py", {"PET_NNODES=x"}) ==
          "PET_NNODES: 'x' is neither N nor MIN:MAX, of at least 1");
    CHECK(torch_error("t.py", {"PET_NO_PYTHON=yes"}) == "PET_NO_PYTHON: 'yes' is neither 0 nor 1");
    CHECK_THAT(torch_error("t.py", {"PET_VIRTUAL_LOCAL_RANK=1"}),
               Contains("PET_VIRTUAL_LOCAL_RANK is refused: "));
    CHECK(torch_error("t.py", {"PET_VIRTUAL_LOCAL_RANK=0"}) == "no error");
}

TEST_CASE("Restarts, the grace and the start have torchrun's words", "[launcher][torchrun]") {
    CHECK(torch_options("t.py").grace == 30s);
    CHECK(torch_options("--shutdown-timeout 7 t.py").grace == 7s);
    CHECK(torch_options("--grace 2 t.py").grace == 2s);
    CHECK(torch_options("t.py", {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT=9"}).grace == 9s);
    CHECK(torch_options("--shutdown_timeout=1 t.py", {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT=9"}).grace ==
          1s);
    CHECK(torch_options("--max-restarts 3 t.py").max_restarts == 3);
    CHECK(torch_options("--rdzv-conf is_host=1,join_timeout=60 t.py").start_timeout == 60s);
    CHECK_FALSE(torch_options("--rdzv-conf is_host=1,read_timeout=60 t.py").start_timeout);
}

TEST_CASE("--redirects, --tee and --local-ranks-filter choose for each local rank",
          "[launcher][torchrun]") {
    // Files, shown and with a prefix; of local ranks 0, 1 and 11.
    const auto [typed, first, second, twelfth] =
        GENERATE(table<std::string, std::string, std::string, std::string>({
            {"", "0 3 0", "0 3 0", "0 3 0"},
            {"-r 3", "3 0 0", "3 0 0", "3 0 0"},
            {"-r3", "3 0 0", "3 0 0", "3 0 0"},
            {"--redirects 1", "1 2 0", "1 2 0", "1 2 0"},
            {"-t 3", "3 3 3", "3 3 3", "3 3 3"},
            {"--tee=2", "2 3 2", "2 3 2", "2 3 2"},
            {"-r 3 -t 1", "3 1 1", "3 1 1", "3 1 1"},
            {"-r 0:1,11:2", "1 2 0", "0 3 0", "2 1 0"},
            {"-t 1:3 -r 0:3", "3 0 0", "3 3 3", "0 3 0"},
            {"--local-ranks-filter 0,11", "0 3 0", "0 0 0", "0 3 0"},
            {"-t 3 --local_ranks_filter=1", "3 0 3", "3 3 3", "3 0 3"},
            {"-r 3 -t 11:1 --local-ranks-filter 11", "3 0 0", "3 0 0", "3 1 1"},
            {"-t 3 --log-dir /dev/null", "0 3 0", "0 3 0", "0 3 0"},
        }));
    CAPTURE(typed);
    const RankOutput output = torch_options(typed + " t.py").rank_output;
    CHECK(output.files == RankOutput::Files::torchrun);
    CHECK(streams(output, 0) == first);
    CHECK(streams(output, 1) == second);
    CHECK(streams(output, 11) == twelfth);
}

TEST_CASE("of two names of one flag that disagree the last counts, as argparse has it",
          "[launcher][torchrun]") {
    CHECK(torch_options("-r 1 --redirects 3 t.py").rank_output.to_file.of(0) == 3);
    CHECK(torch_warnings("-r 1 --redirects 3 t.py") ==
          Strings{"-r 1 and --redirects 3 are one option, of which the last value counts"});
    CHECK(torch_warnings("-r 3 --redirects 3 t.py").empty());
    CHECK(torch_warnings("-r 1 -r 3 t.py").empty());
    // dtrun's own are refused, as everywhere.
    CHECK(torch_error("-p 1 --ssh-port 2 t.py") ==
          "-p 1 and --ssh-port 2 are one option of dtrun; give it once");
}

TEST_CASE("Files of torchrun have a folder, lines a prefix", "[launcher][torchrun]") {
    CHECK(torch_options("t.py").output_dir.empty());
    CHECK(torch_options("--log-dir logs t.py").output_dir.empty());
    CHECK(torch_options("--log-dir logs -r 1 t.py").output_dir == "logs");
    const Options chosen = torch_options("-t 1 t.py");
    CHECK(chosen.output_dir.empty());
    CHECK(chosen.rank_output.to_file.any());
    CHECK(torch_options("--local-ranks-filter 0,7 t.py").rank_output.local_ranks ==
          std::vector<std::uint32_t>{0, 7});
    CHECK(chosen.tag == Tag::none);
    CHECK(chosen.rank_output.prefix == "[${role_name}${local_rank}]:");
    const Environment caller = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=[${rank}]: "};
    CHECK(torch_options("-t 1 t.py", caller).rank_output.prefix == "[${rank}]: ");
    const Options tagged = torch_options("-t 1 --tag rank t.py");
    CHECK(tagged.tag == Tag::rank);
    CHECK(tagged.rank_output.prefixed.of(0) == 0);
}

TEST_CASE("An empty value of torchrun's flags is as good as none", "[launcher][torchrun]") {
    const Options options =
        torch_options("--rdzv-conf '' --rdzv-id= --nnodes '' --log-dir '' --tee= t.py x");
    CHECK(options.run_id.empty());
    CHECK(options.shape.hosts_flag.empty());
    CHECK(options.output_dir.empty());
    CHECK(options.program == Strings{"py", "-u", "t.py", "x"});
    CHECK(torch_error("-H '' t.py") == "-H: the value is empty");
}

TEST_CASE("Strings about the meeting are accepted with one note", "[launcher][torchrun]") {
    CHECK(torch_warnings("--rdzv-backend c10d --rdzv-id x t.py").empty());
    CHECK(torch_options("--rdzv-backend c10d --rdzv-id x t.py").run_id == "x");
    CHECK(torch_warnings("--rdzv-endpoint h:29400 t.py") ==
          Strings{"--rdzv-endpoint has no effect: dtrun brings the ranks together itself, on an "
                  "address and a free port of its own choice"});
    CHECK(
        torch_warnings("--local-addr h --rdzv-backend c10d t.py") ==
        Strings{"--local-addr has no effect: dtrun brings the ranks together itself, on an address "
                "and a free port of its own choice"});
    CHECK(
        torch_warnings("--master-addr h --master-port 1 --rdzv-backend etcd t.py") ==
        Strings{"--rdzv-backend etcd, --master-addr and --master-port have no effect: dtrun brings "
                "the ranks together itself, on an address and a free port of its own choice"});
    CHECK(torch_warnings("--standalone --rdzv-endpoint h:29400 --rdzv-id x t.py").empty());
    CHECK(torch_options("--standalone --rdzv-id x t.py").run_id.empty());
    CHECK(torch_options("--standalone t.py").transport == Transport::local);
    CHECK(torch_warnings("--rdzv-conf join_timeout=3,timeout=3,last_call_timeout=1,is_host=1 t.py")
              .empty());
    CHECK(torch_warnings("--rdzv-conf read_timeout=60,store_type=tcp t.py") ==
          Strings{"--rdzv-conf: read_timeout and store_type have no effect; --start-timeout, "
                  "--elastic-timeout and --heartbeat-timeout say how long dtrun waits"});
    CHECK(torch_warnings("--signals-to-handle SIGTERM,SIGUSR1 t.py").empty());
    CHECK(torch_warnings("--signals-to-handle SIGTERM,SIGALRM t.py") ==
          Strings{"--signals-to-handle: dtrun does not forward SIGALRM"});
}

TEST_CASE(
    "--master-addr and --master-port are where rank 0 serves, where torchrun would meet there",
    "[launcher][torchrun]") {
    const auto [typed, assignments] = GENERATE(table<std::string, std::string>({
        {"", ""},
        {"--master-addr h --master-port 1234", "MASTER_ADDR=h MASTER_PORT=1234"},
        {"--master-port 1234", "MASTER_PORT=1234"},
        {"--master_addr=h --rdzv-backend static", "MASTER_ADDR=h"},
        {"--master-addr h --master-port 0", "MASTER_ADDR=h"},
        {"--master-port 0", ""},
        {"--master-addr h --master-port 1 --rdzv-backend c10d", ""},
        {"--master-addr h --master-port 1 --rdzv-endpoint h:2", ""},
        {"--master-addr h --master-port 1 --standalone", ""},
        {"--master-addr h --master-port 1 --rdzv-backend dtrun --rdzv-id x", ""},
    }));
    CAPTURE(typed);
    const Options options = torch_options(typed + " t.py");
    CHECK(show(options.assignments) == assignments);
    CHECK(options.torch_store == (assignments.empty() ? TorchStore::agent : TorchStore::rank0));
    if (!assignments.empty()) CHECK(torch_warnings(typed + " t.py").empty());
}

TEST_CASE("--rdzv-backend dtrun is one node of a daemon's job", "[launcher][torchrun]") {
    const Options options = torch_options(
        "--rdzv-backend dtrun --rdzv-endpoint head:29400 --rdzv-id train --nnodes 2:4 "
        "--nproc-per-node 3 t.py");
    REQUIRE(options.join);
    CHECK(options.join->daemon.address == "head:29400");
    CHECK(options.join->daemon.job == "train");
    CHECK(options.join->ranks_min == 6);
    CHECK(options.join->ranks_max == 12);
    CHECK(options.world_size == 3);
    CHECK_FALSE(options.shape.any());
    CHECK(torch_error("--rdzv-backend dtrun t.py") ==
          "--rdzv-backend dtrun: which job of the daemon? --rdzv-id NAME");
    const std::string joins = "--rdzv-backend dtrun --rdzv-id x ";
    CHECK(torch_options(joins + "t.py", {"PET_MAX_RESTARTS=2"}).join->limits.rank_failure_limit ==
          2);
    CHECK(torch_options(joins + "t.py").join->limits.rank_failure_limit == 0);
    CHECK_THAT(torch_error(joins + "--init-timeout 9 t.py"),
               Contains("--init-timeout has no effect"));
    CHECK(torch_options(joins + "--elastic-timeout 7 t.py").join->limits.timeout == 7s);
    CHECK_THAT(torch_error("--rdzv-backend dtrun --rdzv-id x -H a,b t.py"),
               Contains("leave -H out"));
    const auto here = plan::machine_facts(Environment{});
    CHECK(torch_options(joins + "--nproc-per-node cpu t.py").world_size == here.cpus);
}

TEST_CASE("--nnodes MIN:MAX of named hosts is an elastic job, counted in hosts",
          "[launcher][torchrun][elastic]") {
    const Options options = torch_options(
        "--nnodes 2:4 --nproc-per-node 2 --max-restarts 3 --rdzv-conf join_timeout=30 -H a,b,c "
        "t.py");
    REQUIRE(options.elastic);
    CHECK(options.shape.elastic);
    CHECK(options.elastic->rank_failure_limit == 3);
    CHECK(options.max_restarts == 3);  // TORCHELASTIC_MAX_RESTARTS
    CHECK(options.elastic->timeout == 30s);
    CHECK_FALSE(options.start_timeout);
    CHECK(options.stdin_target.kind == StdinTarget::Kind::none);
    CHECK(torch_options("--nnodes 2:4 -H a,b t.py").elastic->rank_failure_limit == 0);
    CHECK(torch_options("-H a,b t.py", {"PET_NNODES=1:2"}).elastic);
    const Environment job = {"SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n[1-3]", "SLURM_JOB_NUM_NODES=3",
                             "SLURM_TASKS_PER_NODE=1(x3)", "SLURM_JOB_CPUS_PER_NODE=4(x3)"};
    CHECK(torch_options("--nnodes 1:2 t.py", job).elastic);
    CHECK_FALSE(torch_options("--nnodes 1:2 t.py").elastic);  // this machine alone
    CHECK_FALSE(torch_options("--nnodes 2:2 -H a,b t.py").elastic);
    CHECK_FALSE(torch_options("--nnodes 1:2 --standalone t.py").elastic);
    const auto [typed, message] = GENERATE(table<std::string, std::string>({
        {"--nnodes 2 -H a,b --failure-limit 3 t.py",
         "--failure-limit is for elastic jobs: write --nnodes MIN:MAX, and name the hosts"},
        {"--nnodes 1:2 -H a,b --map-by node t.py",
         "--nnodes 1:2: an elastic job fills host by host; leave out --map-by"},
        {"--nnodes 1:2 -H a,b --stdin all t.py",
         "--nnodes 1:2: ranks of an elastic job have no standard input; leave out --stdin"},
        {"--nnodes 1:2 -H a,b --keep-going t.py",
         "--nnodes 1:2 and --keep-going exclude each other: an elastic job goes on with a new "
         "world "
         "when a rank fails"},
    }));
    CHECK(torch_error(typed) == message);
}

TEST_CASE("The same command on every node is one node of a job that one of them serves",
          "[launcher][torchrun][elastic]") {
    const Options options = torch_options(
        "--nnodes 1:2 --nproc-per-node 2 --rdzv-id 100 --rdzv-backend c10d --rdzv-endpoint h:29400 "
        "--max-restarts 2 --rdzv-conf last_call_timeout=5,join_timeout=60,is_host=False t.py");
    REQUIRE(options.join);
    const JoinOptions& join = *options.join;
    CHECK(join.by_hand);
    CHECK(join.daemon.address == "h:29400");
    CHECK(join.daemon.job == "100");
    CHECK(options.run_id == "100");
    CHECK(join.ranks_min == 2);
    CHECK(join.ranks_max == 4);
    CHECK(options.world_size == 2);
    CHECK(join.limits.rank_failure_limit == 2);
    CHECK(join.limits.timeout == 60s);
    CHECK(options.start_timeout == 60s);
    CHECK(join.last_call == 5s);
    CHECK(join.serves == false);
    CHECK(options.notes.empty());
    CHECK(torch_options("--nnodes 2 --rdzv-endpoint h t.py").join->daemon.job == "none");
    CHECK_FALSE(torch_options("--nnodes 2 --rdzv-endpoint h t.py").join->serves);
    CHECK_THAT(torch_error("--nnodes 2 --rdzv-endpoint h:0 t.py"), Contains("all nodes must know"));
    CHECK(torch_error("--nnodes 1:2 --rdzv-endpoint h --spares 1 t.py") ==
          "--spares has no effect where nodes enter a job by themselves, only in one that a single "
          "dtrun launches; leave it out");
    CHECK(torch_error("--nnodes 2 --rdzv-conf is_host=maybe t.py") ==
          "--rdzv-conf: is_host: 'maybe' is neither true nor false");
    CHECK_FALSE(torch_options("--nnodes 2 --rdzv-endpoint h -H a,b t.py").join);
    CHECK_FALSE(torch_options("--nnodes 1 --rdzv-endpoint h t.py").join);
    CHECK_FALSE(torch_options("--nnodes 1:2 --rdzv-backend etcd --rdzv-endpoint h t.py").join);
}

TEST_CASE("Nodes that meet at --master-addr have their places, and their store there",
          "[launcher][torchrun]") {
    const Options options =
        torch_options("--nnodes 2 --node-rank 1 --master-addr h --master-port 29777 t.py");
    REQUIRE(options.join);
    CHECK(options.join->by_hand);
    CHECK(options.join->node_rank == 1);
    CHECK(options.join->serves == false);
    CHECK(options.join->daemon.address == "h:30777");  // beside the store
    CHECK(show(options.assignments) == "MASTER_ADDR=h MASTER_PORT=29777");
    CHECK(options.torch_store == TorchStore::rank0);
    const auto first = torch_options("--nnodes 2 --node-rank 0 --master-addr ::1 t.py").join;
    CHECK(first->serves == true);
    CHECK(first->daemon.address == "[::1]:30500");
    CHECK(
        torch_options("--nnodes 2 --master-addr h --master-port 65000 t.py").join->daemon.address ==
        "h:64000");
    CHECK_FALSE(torch_options("--nnodes 2 --master-addr h t.py").join->serves);
}

TEST_CASE("dtrun's own flags work in torchrun's place", "[launcher][torchrun]") {
    const Options options = torch_options(
        "-H a:2,b:2 --oversubscribe -x A=1 --ssh-port 2200 --plan --map-by node --store proxy "
        "--contract slurm --stdin none t.py");
    CHECK(options.hosts == "a:2,b:2");
    CHECK(options.oversubscribe);
    CHECK(options.export_vars == Strings{"A=1"});
    CHECK(options.ssh_port == 2200);
    CHECK(options.plan == PlanFormat::text);
    CHECK(options.map_by == MapBy::node);
    CHECK(options.torch_store == TorchStore::proxy);
    CHECK(options.contracts == Strings{"slurm"});
    CHECK(options.stdin_target.kind == StdinTarget::Kind::none);
}

TEST_CASE("torchrun's own names may be abbreviated, dtrun's may not", "[launcher][torchrun]") {
    CHECK(torch_options("--max 2 t.py").max_restarts == 2);
    CHECK(torch_options("--nproc_per 2 t.py").shape.number == 2);
    CHECK(torch_error("--master x t.py") ==
          "--master is short for --master-addr and --master-port; write more of it");
    CHECK(torch_error("--encr t.py") == "unknown option --encr; did you mean --encrypt?");
    CHECK(torch_error("--verb t.py") == "unknown option --verb; did you mean --verbose?");
}

TEST_CASE("torchrun's mistakes are answered with what would be right", "[launcher][torchrun]") {
    const auto [typed, message] = GENERATE(table<std::string, std::string>({
        {"",
         "no script to run; usage: dtrun torchrun [options] [--] script [args...] (dtrun torchrun "
         "--help tells more)"},
        {"--nnodes 0 t.py", "--nnodes: '0' is neither N nor MIN:MAX, of at least 1"},
        {"--nnodes 3:2 t.py", "--nnodes: '3:2' is neither N nor MIN:MAX, of at least 1"},
        {"--nnodes 1:2:3 t.py", "--nnodes: '1:2:3' is neither N nor MIN:MAX, of at least 1"},
        {"--nproc-per-node xpu t.py",
         "--nproc-per-node: 'xpu' is neither auto, gpu, cpu nor a number from 1 to 65536; dtrun "
         "counts no other devices"},
        {"--nproc-per-node 0 t.py",
         "--nproc-per-node: '0' is neither auto, gpu, cpu nor a number from 1 to 65536; dtrun "
         "counts no other devices"},
        {"--rdzv-endpoint a:x t.py",
         "--rdzv-endpoint: 'a:x' is not HOST, HOST:PORT or [IPV6]:PORT"},
        {"--rdzv-endpoint 'a b' t.py",
         "--rdzv-endpoint: 'a b' is not HOST, HOST:PORT or [IPV6]:PORT"},
        {"--rdzv-endpoint a:65536 t.py",
         "--rdzv-endpoint: 'a:65536' is not HOST, HOST:PORT or [IPV6]:PORT"},
        {"--rdzv-conf a t.py", "--rdzv-conf: 'a' is not KEY=VALUE,KEY=VALUE"},
        {"--rdzv-conf timeout=x t.py",
         "--rdzv-conf: timeout: 'x' is not a number of seconds from 0.001 to 86400"},
        {"-r 4 t.py",
         "-r: '4' is neither 0 (none), 1 (stdout), 2 (stderr) or 3 (both), nor "
         "LOCAL-RANK:VALUE,... such as 0:1,1:3"},
        {"--tee 0:1,1 t.py",
         "--tee: '0:1,1' is neither 0 (none), 1 (stdout), 2 (stderr) or 3 (both), nor "
         "LOCAL-RANK:VALUE,... such as 0:1,1:3"},
        {"--local-ranks-filter 0,x t.py",
         "--local-ranks-filter: '0,x' is not a list of local ranks such as 0,1,2"},
        {"--no-python -m t.py", "--no-python and --module exclude each other"},
        {"--start-method x t.py", "--start-method: 'x' is not one of spawn, fork and forkserver"},
        {"--event-log-handler console t.py",
         "--event-log-handler: 'console' is a handler of torchrun's own events, which dtrun does "
         "not have; only null"},
        {"--logs-specs mine t.py",
         "--logs-specs: 'mine' is a plug-in of torchrun's own; dtrun writes the files itself; only "
         "default"},
        {"--signals-to-handle TERM t.py",
         "--signals-to-handle: 'TERM' is not a signal's name, as SIGTERM is"},
        {"--numa-binding cores t.py",
         "--numa-binding: 'cores' is not one of node, socket, exclusive and core-complex"},
        {"--virtual-local-rank t.py",
         "--virtual-local-rank is refused: LOCAL_RANK is a rank's index on its host, and every "
         "rank there sees the same GPUs"},
        {"--duplicate-stdout-filters a t.py",
         "--duplicate-stdout-filters is refused: dtrun copies no lines; grep the files of --tee"},
        {"--standalone -H a t.py", "--standalone is this machine alone; leave -H out"},
        {"--standalone --nnodes 2 t.py", "--standalone is one node, not --nnodes 2"},
        {"-np 2 t.py", "-np is refused: say --nnodes and --nproc-per-node"},
        {"--num-proc 2 t.py", "--num-proc is refused: say --nnodes and --nproc-per-node"},
        {"--output-dir d t.py",
         "--output-dir is refused: say --log-dir, with --redirects or --tee"},
        {"--output_filename=d t.py",
         "--output-filename is refused: say --log-dir, with --redirects or --tee"},
        {"--max-restarts 1001 t.py", "--max-restarts: '1001' is not a whole number from 0 to 1000"},
        {"--nprocs 2 t.py", "unknown option --nprocs; see dtrun torchrun --help"},
        {"--max-restarts 1 --keep-going t.py",
         "--keep-going and --max-restarts exclude each other; give one of them"},
    }));
    CAPTURE(typed);
    CHECK(torch_error(typed) == message);
}

TEST_CASE("Strings without effect are told once the hosts are found, not before an error of theirs",
          "[launcher][torchrun]") {
    const auto command = parse_typed("torchrun --nnodes 2 --local-addr h t.py");
    REQUIRE(command.has_value());
    CHECK(command->warnings.empty());
    REQUIRE(command->options.notes.size() == 1);
    CHECK(command->options.notes[0].starts_with("--local-addr has no effect"));
}

TEST_CASE("What says that the command runs on every node is kept for the hosts",
          "[launcher][torchrun]") {
    const HostShape second = torch_options("--nnodes 2 --node_rank=1 t.py").shape;
    CHECK(second.not_first);
    CHECK_THAT(second.one_command, Contains("dtrun torchrun --nnodes 2 -H HOST1,HOST2,...") &&
                                       Contains("--rdzv-endpoint ONE-OF-THEM"));
    CHECK(torch_options("--standalone --node-rank 1 t.py").shape.not_first == false);
    CHECK(torch_options("--rdzv-endpoint h:1 --master-addr g t.py").shape.meets_at == "h");
    CHECK(torch_options("--rdzv-endpoint [fe80::1]:1 t.py").shape.meets_at == "fe80::1");
    CHECK(torch_options("--master-addr g t.py").shape.meets_at == "g");
    CHECK(torch_options("--standalone --master-addr g t.py").shape.meets_at.empty());
}

TEST_CASE("The help of torchrun and deepspeed fits 80 columns", "[launcher][torchrun][deepspeed]") {
    CHECK(parse_typed("torchrun --help")->asked == Ask::help);
    CHECK(parse_typed("deepspeed -h")->asked == Ask::help);
    for (const std::string& text : {torchrun_help(), deepspeed_help()}) {
        for (const std::string_view line : split(text, '\n')) {
            CAPTURE(line);
            CHECK(line.size() <= 80);
            CHECK_FALSE(line.ends_with(' '));
        }
    }
    CHECK_THAT(torchrun_help(), Contains("--nproc-per-node N|auto|gpu|cpu") &&
                                    Contains("-r, --redirects STREAMS") &&
                                    Contains("--numa-binding MODE"));
    CHECK_THAT(deepspeed_help(),
               Contains("-i, --include FILTER") && Contains("--autotuning: the autotuner"));
}
