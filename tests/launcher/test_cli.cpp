#include "base/environment.h"
#include "base/fd.h"
#include "launcher/cli/foreign_rows.h"
#include "launcher/commands/info_command.h"
#include "launcher/output/line_prefix.h"
#include "launcher/plan/exit_code.h"
#include "rendezvous/wire/modes.h"
#include "tests/launcher/cli_support.h"
#include "tests/support/catch.h"

#include <dtrun_version.h>
#include <algorithm>
#include <cstdlib>

using namespace dtrun;
using namespace dtrun::commands;
using namespace dtrun::plan;
using namespace dtrun::cli;
using namespace dtrun::output;
using namespace std::chrono_literals;
using Catch::Contains;
using Catch::StartsWith;
using Strings = std::vector<std::string>;

TEST_CASE("a flag's path that begins with ~ is in the home, where no shell has said so", "[cli]") {
    const char* const home = std::getenv("HOME");
    const std::string before = home == nullptr ? "" : home;
    set_variable("HOME", "/home/me", IfSet::replace);
    CHECK(options_of("--output-dir=~/runs p").output_dir == "/home/me/runs");
    CHECK(options_of("--hostfile ~/hosts p").hostfile == "/home/me/hosts");
    CHECK(options_of("--wdir=~ p").wdir == "/home/me");
    CHECK(options_of("--output-dir=./~/runs p").output_dir == "./~/runs");
    CHECK(options_of("--output-dir=~other/runs p").output_dir == "~other/runs");
    CHECK(options_of("-x A=~/b p ~/c").program == Strings{"p", "~/c"});
    CHECK(options_of("p", {"DTRUN_OPTIONS=--output-dir ~/runs"}).output_dir == "/home/me/runs");
    unset_variable("HOME");
    CHECK(options_of("--output-dir=~/runs p").output_dir == "~/runs");
    if (home != nullptr) set_variable("HOME", before, IfSet::replace);
}

TEST_CASE("words about restarts need restarts", "[cli]") {
    CHECK(options_of("--max-restarts 3 --restart-delay 5 --min-uptime 60 x").min_uptime ==
          std::chrono::seconds(60));
    CHECK(error_of("--min-uptime 60 x") ==
          "--min-uptime says when ranks start again; add --max-restarts N");
    CHECK(error_of("--restart-delay 1 x") ==
          "--restart-delay says when ranks start again; add --max-restarts N");
    CHECK(options_of("-np 2 --min-np 1 --restart-delay 2 x").restart_delay ==
          std::chrono::seconds(2));
}

TEST_CASE("the command line ends at the first word that is no option", "[launcher][cli]") {
    const auto [typed, program] = GENERATE(table<std::string, Strings>({
        {"prog", {"prog"}},
        {"run prog", {"prog"}},
        {"-np 2 prog -np 3 --help", {"prog", "-np", "3", "--help"}},
        {"prog -- x", {"prog", "--", "x"}},
        {"-- prog", {"prog"}},
        {"-- -prog -x", {"-prog", "-x"}},
        {"-- run", {"run"}},
        {"run run", {"run"}},
        {"run -- help", {"help"}},
        {"--verbose -- --verbose", {"--verbose"}},
        {"- a", {"-", "a"}},
        {"prog '' 'a b' \"c\nd\"", {"prog", "", "a b", "c\nd"}},
        {"A=1 prog B=2", {"prog", "B=2"}},
        {"./a=b/prog", {"./a=b/prog"}},
        {"-- A=1 -prog", {"-prog"}},
        {"1=2", {"1=2"}},
    }));
    CAPTURE(typed);
    CHECK(options_of(typed).program == program);
}

TEST_CASE("a ':' with -np behind it begins the next program", "[launcher][cli]") {
    const Options options =
        options_of("-x A=1 -np 1 C=0 ./a 5 : -np 2 -x B=2 --wdir /w C=3 ./b -np 7 : -n 3 ./c");
    REQUIRE(options.parts.size() == 3);
    CHECK(options.world_size == 6);
    CHECK(options.program == Strings{"./a", "5"});
    CHECK(options.export_vars == Strings{"A=1"});
    CHECK(options.parts[0].argv == Strings{"./a", "5"});
    CHECK(options.parts[0].ranks == 1);
    CHECK(show(options.parts[0].assignments) == "C=0");
    CHECK(options.parts[1].argv == Strings{"./b", "-np", "7"});
    CHECK(options.parts[1].ranks == 2);
    CHECK(options.parts[1].wdir == "/w");
    CHECK(options.parts[1].export_vars == Strings{"B=2"});
    CHECK(show(options.parts[1].assignments) == "C=3");
    CHECK(options.parts[2].argv == Strings{"./c"});
    // Any other ':' is an argument; to mpirun it is none.
    for (const char* typed : {"./a :", "./a : -x", "./a -np : 2", "./a -np 1", "awk -F : x"})
        CHECK(options_of(typed).parts.empty());
    CHECK(options_of("mpirun -host g -n 1 ./a : -host h -n 1 ./b").parts.size() == 2);
    CHECK(error_of("mpirun -n 1 ./a :") ==
          "no program to run; usage: dtrun mpirun [options] program [args...] [: [options] "
          "program...]... (dtrun --help tells more)");
}

TEST_CASE("VAR=VALUE words before the program are kept in order", "[launcher][cli]") {
    const Options options = options_of("-np 1 A=1 B.c-d= _E='x=y z' A=2 prog F=3");
    CHECK(show(options.assignments) == "A=1 B.c-d= _E=x=y z A=2");
    CHECK(options.program == Strings{"prog", "F=3"});
}

TEST_CASE("everything has the documented default", "[launcher][cli]") {
    const Options options = options_of("prog");
    CHECK_FALSE(options.world_size);
    CHECK(options.hosts.empty());
    CHECK(options.hostfile.empty());
    CHECK(options.map_by == MapBy::slot);
    CHECK_FALSE(options.oversubscribe);
    CHECK(options.plan == PlanFormat::none);
    CHECK_FALSE(options.no_env);
    CHECK(options.mpi == MpiMode::automatic);
    CHECK_FALSE(options.mpirun);
    CHECK(options.tuning_env.empty());
    CHECK(options.ssh_port == 0);
    CHECK_FALSE(options.accept_new_host_keys);
    CHECK(options.connect_timeout == 10s);
    CHECK_FALSE(options.start_timeout);
    CHECK_FALSE(options.tag);
    CHECK_FALSE(options.timestamps);
    CHECK(options.quiet_ranks.empty());
    CHECK(options.only_ranks.empty());
    CHECK(options.stdin_target == StdinTarget{StdinTarget::Kind::rank, 0});
    CHECK(options.verbosity == log::Level::normal);
    CHECK(options.grace == 5s);
    CHECK_FALSE(options.keep_going);
}

TEST_CASE("the number of ranks has every spelling of horovodrun", "[launcher][cli]") {
    const std::string typed = GENERATE("-np 16", "-np=16", "-n 16", "-n16", "-n=16", "--np 16",
                                       "--np=16", "--num-proc 16", "--num-proc=16", "--num_proc 16",
                                       "--num-p 16", "-np 2 -np 16", "-np 16 -n 16");
    CAPTURE(typed);
    CHECK(options_of(typed + " prog").world_size == 16);
}

TEST_CASE("of hosts that are given twice it is told which count", "[launcher][cli]") {
    const auto warnings = [](std::string_view typed) { return parse_typed(typed)->warnings; };
    CHECK(warnings("-H a:1 -H b:2 p") == Strings{"-H b:2 counts, and not -H a:1 before it"});
    CHECK(warnings("-H a:1 -H b:2 -H c:1 p") ==
          Strings{"-H c:1 counts, and not -H a:1, -H b:2 before it"});
    CHECK(warnings("-H a:1 -H a:1 p").empty());
    CHECK(warnings("-n 1 -H a p : -n 1 -H b q").empty());
}

TEST_CASE("text options have every spelling", "[launcher][cli]") {
    using Member = std::string Options::*;
    const auto [typed, member] = GENERATE(table<std::string, Member>({
        {"-H a:1,b:2", &Options::hosts},
        {"-H=a:1,b:2", &Options::hosts},
        {"-Ha:1,b:2", &Options::hosts},
        {"--hosts a:1,b:2", &Options::hosts},
        {"--hosts=a:1,b:2", &Options::hosts},
        {"-hosts a:1,b:2", &Options::hosts},
        {"-H x -H a:1,b:2", &Options::hosts},
        {"-hostfile a:1,b:2", &Options::hostfile},
        {"-hostfile=a:1,b:2", &Options::hostfile},
        {"-hostf a:1,b:2", &Options::hostfile},
        {"--hostfile a:1,b:2", &Options::hostfile},
        {"--hostf=a:1,b:2", &Options::hostfile},
        {"--include a:1,b:2", &Options::include},
        {"--exclude a:1,b:2", &Options::exclude},
        {"--wdir a:1,b:2", &Options::wdir},
        {"-wdir a:1,b:2", &Options::wdir},
        {"-i a:1,b:2", &Options::ssh_identity_file},
        {"-ia:1,b:2", &Options::ssh_identity_file},
        {"--ssh-identity-file a:1,b:2", &Options::ssh_identity_file},
        {"--ssh-i=a:1,b:2", &Options::ssh_identity_file},
        {"--ssh-command a:1,b:2", &Options::ssh_command},
        {"--output-filename a:1,b:2", &Options::output_dir},
        {"--output-dir=a:1,b:2", &Options::output_dir},
        {"--output a:1,b:2", &Options::output_dir},
    }));
    CAPTURE(typed);
    CHECK(options_of(typed + " prog").*member == "a:1,b:2");
}

TEST_CASE("switches have every spelling", "[launcher][cli]") {
    using Member = bool Options::*;
    const auto [typed, member] = GENERATE(table<std::string, Member>({
        {"--oversubscribe", &Options::oversubscribe},
        {"--no-env", &Options::no_env},
        {"--no_env", &Options::no_env},
        {"--accept-new-host-keys", &Options::accept_new_host_keys},
        {"--timestamps", &Options::timestamps},
        {"--prefix-output-with-timestamp", &Options::timestamps},
        {"-prefix-timestamp", &Options::timestamps},
        {"-prefix-t", &Options::timestamps},
        {"--prefix-o", &Options::timestamps},
        {"--keep-going", &Options::keep_going},
    }));
    CAPTURE(typed);
    CHECK(options_of(typed + " prog").*member);
}

TEST_CASE("lists add up and scalars keep the last value", "[launcher][cli]") {
    const Options options = options_of(
        "-x A -xB=1 -x=C --env-file e --env-file f --network-interface eth0,ib0 "
        "--network-interfaces=eth1 --network-interface eth0 --only-ranks 0 --only-ranks 2-3 "
        "--quiet-ranks 3 --tag rank --tag host --grace 1 --grace 0.25 --map-by node prog");
    CHECK(options.export_vars == Strings{"A", "B=1", "C"});
    CHECK(options.env_files == Strings{"e", "f"});
    CHECK(options.network_interfaces == Strings{"eth0", "ib0", "eth1"});
    CHECK(options.only_ranks.contains(0));
    CHECK_FALSE(options.only_ranks.contains(1));
    CHECK(options.only_ranks.contains(3));
    CHECK(options.quiet_ranks.largest() == 3);
    CHECK(options.tag == Tag::host);
    CHECK(options.grace == 250ms);
    CHECK(options.map_by == MapBy::node);
}

TEST_CASE("other words for what adds up add up, too", "[launcher][cli]") {
    const Options options =
        options_of("--mca a 1 -mca b 2 -x C=3 --env D=4 -genv E 5 -genvlist F -envlist G prog");
    CHECK(options.export_vars ==
          Strings{"OMPI_MCA_a=1", "OMPI_MCA_b=2", "C=3", "D=4", "E=5", "F", "G"});
}

TEST_CASE("an alias's word is replaced by the same word, and a default by any", "[launcher][cli]") {
    CHECK(options_of("-np 4 -np 2 p").world_size == 2);
    CHECK(options_of("--tag rank --tag none p").tag == Tag::none);
    const Environment caller = {"DTRUN_OPTIONS=-np=4 --tag=rank", "DTRUN_CONFIG="};
    CHECK(options_of("-n 2 p", caller).world_size == 2);
    CHECK(options_of("p", caller).world_size == 4);
}

TEST_CASE("--tag, --stdin, --plan and verbosity take their words", "[launcher][cli]") {
    CHECK(options_of("--tag none p").tag == Tag::none);
    CHECK(options_of("--tag rank p").tag == Tag::rank);
    CHECK(options_of("--tag rank-host p").tag == Tag::rank_host);
    CHECK(options_of("--tag=horovod p").tag == Tag::horovod);
    CHECK(options_of("--stdin none p").stdin_target.kind == StdinTarget::Kind::none);
    CHECK(options_of("--stdin all p").stdin_target.kind == StdinTarget::Kind::all);
    CHECK(options_of("--stdin 7 p").stdin_target == StdinTarget{StdinTarget::Kind::rank, 7});
    CHECK(options_of("--plan p").plan == PlanFormat::text);
    CHECK(options_of("--plan=text p").plan == PlanFormat::text);
    CHECK(options_of("--plan=json p").plan == PlanFormat::json);
    CHECK(options_of("--plan -- json").program == Strings{"json"});
    CHECK(options_of("--quiet p").verbosity == log::Level::quiet);
    CHECK(options_of("--verbose p").verbosity == log::Level::verbose);
    CHECK(options_of("--verb p").verbosity == log::Level::verbose);
    CHECK(options_of("--debug p").verbosity == log::Level::debug);
}

TEST_CASE("ports and times take the whole documented range", "[launcher][cli]") {
    CHECK(options_of("-p 1 x").ssh_port == 1);
    CHECK(options_of("-p65535 x").ssh_port == 65'535);
    CHECK(options_of("--ssh-port=22 x").ssh_port == 22);
    CHECK(options_of("--ssh-p 22 x").ssh_port == 22);
    CHECK(options_of("--grace 0 x").grace == 0ms);
    CHECK(options_of("--grace .5 x").grace == 500ms);
    CHECK(options_of("--connect-timeout 0.001 x").connect_timeout == 1ms);
    CHECK(options_of("--connect-timeout 86400 x").connect_timeout == 24h);
    CHECK(options_of("--wait-for-hosts 300 x").wait_for_hosts == 300s);
    CHECK(options_of("--report all/%j.json x").show.report == "all/%j.json");
    CHECK(options_of("torchrun --wait-for-hosts 0 x").wait_for_hosts == 0s);
    CHECK(options_of("--start-timeout 90 x").start_timeout == 90s);
    CHECK(options_of("--start 1e2 x").start_timeout == 100s);
}

TEST_CASE("--start-timeout wins over HOROVOD_START_TIMEOUT", "[launcher][cli]") {
    const Environment caller = {"HOROVOD_START_TIMEOUT=60"};
    CHECK(options_of("p", caller).start_timeout == 60s);
    CHECK(options_of("--start-timeout 5 p", caller).start_timeout == 5s);
    CHECK_FALSE(options_of("p", {"HOROVOD_START_TIMEOUT="}).start_timeout);
    CHECK(error_of("p", {"HOROVOD_START_TIMEOUT=soon"}) ==
          "HOROVOD_START_TIMEOUT (in the environment): 'soon' is not a number of seconds from "
          "0.001 to 86400");
}

TEST_CASE("a wrong value names the flag and the range", "[launcher][cli]") {
    const auto [typed, message] = GENERATE(table<std::string, std::string>({
        {"-np 0 p", "-np: '0' is not a whole number from 1 to 16777216"},
        {"-np -1 p", "-np: '-1' is not a whole number from 1 to 16777216"},
        {"-np=-1 p", "-np: '-1' is not a whole number from 1 to 16777216"},
        {"--num-pr 4x p", "--num-proc: '4x' is not a whole number from 1 to 16777216"},
        {"-n ' 4' p", "-n: ' 4' is not a whole number from 1 to 16777216"},
        {"-p 0 p", "-p: '0' is not a whole number from 1 to 65535"},
        {"-p 65536 p", "-p: '65536' is not a whole number from 1 to 65535"},
        {"--grace -1 p", "--grace: '-1' is not a number of seconds from 0 to 86400"},
        {"--grace 86401 p", "--grace: '86401' is not a number of seconds from 0 to 86400"},
        {"--grace nan p", "--grace: 'nan' is not a number of seconds from 0 to 86400"},
        {"--grace 5s p", "--grace: '5s' is not a number of seconds from 0 to 86400"},
        {"--connect-timeout 0 p",
         "--connect-timeout: '0' is not a number of seconds from 0.001 to 86400"},
        {"--start-timeout inf p",
         "--start-timeout: 'inf' is not a number of seconds from 0.001 to 86400"},
        {"--map-by board p",
         "--map-by: 'board' is not one of slot, node, core, l3, numa, socket and gpu"},
        {"--map-by core:PE=x p", "--map-by: 'x' is not a whole number from 1 to 65536"},
        {"--map-by slot:NOLOCAL p", "--map-by: 'NOLOCAL' is neither PE=CORES nor OVERSUBSCRIBE"},
        {"--bind-to board p",
         "--bind-to: 'board' is not one of none, core, share, l3, numa, socket, gpu and auto"},
        {"--cpus-per-rank 0 p", "--cpus-per-rank: '0' is not a whole number from 1 to 65536"},
        {"--binding-args '--bind-to board' p",
         "--binding-args: --bind-to: 'board' is not one of none, core, share, l3, numa, socket, "
         "gpu "
         "and auto"},
        {"--binding-args 'x' p", "--binding-args: 'x' is for mpirun only (--mpi mpirun)"},
        {"--tag all p",
         "--tag: 'all' is not one of none, rank, host, rank-host and horovod, nor a form such as "
         "'{host}:{rank} {time}'"},
        {"--plan=xml p", "--plan: 'xml' is neither text nor json"},
        {"--stdin -1 p", "--stdin: '-1' is neither none, all nor a rank from 0 to 16777215"},
        {"--stdin one p", "--stdin: 'one' is neither none, all nor a rank from 0 to 16777215"},
        {"--only-ranks 5-3 p", "--only-ranks: range 5-3 runs backwards"},
        {"--quiet-ranks 1,x p",
         "--quiet-ranks: 'x' is not a rank from 0 to 16777215 or a range of them such as 3-5"},
        {"--network-interfaces eth0, p",
         "--network-interfaces: a name is missing in 'eth0,'; write eth0,eth1"},
        {"--ssh-command \"ssh 'x\" p", "--ssh-command: a quote in ssh 'x is never closed"},
        {"--ssh-command ' ' p", "--ssh-command: the command is blank"},
        {"-x =3 p", "-x: the variable has no name"},
        {"-x 'A B=1' p", "-x: 'A B' is not a variable's name"},
        {"-x RANK=3 p", "-x: RANK is dtrun's own (each rank's place in the job) and cannot be set"},
        {"-x DTRUN_JOB p", "-x: DTRUN_JOB is dtrun's own (reserved for dtrun) and cannot be set"},
        {"LOCAL_RANK=0 p",
         "LOCAL_RANK=...: LOCAL_RANK is dtrun's own (each rank's place in the job) and cannot be "
         "set"},
    }));
    CAPTURE(typed);
    CHECK(error_of(typed) == message);
}

TEST_CASE("a wrong option says what would be right", "[launcher][cli]") {
    const auto [typed, message] = GENERATE(table<std::string, std::string>({
        {"--hostss a p", "unknown option --hostss; did you mean --hosts?"},
        {"--time_stamps p", "unknown option --time-stamps; did you mean --timestamps?"},
        {"--foo p", "unknown option --foo; see dtrun --help"},
        {"-np 2 \u2013gloo p",
         "'\u2013gloo' begins with a dash that a web page or a word processor has made long: write "
         "--gloo"},
        {"-np 2 \u2013-gloo p",
         "'\u2013-gloo' begins with a dash that a web page or a word processor has made long: "
         "write "
         "--gloo"},
        {"\u2013H a p",
         "'\u2013H' begins with a dash that a web page or a word processor has made long: write "
         "-H"},
        {"-np\uff1d4 p", "unknown option -np\uff1d4: \uff1d is not the keyboard's =; write -np=4"},
        {"--num\uff0dproc 4 p",
         "unknown option --num\uff0dproc: \uff0d is not the keyboard's -; write --num-proc"},
        {"\uff0dnp 4 p",
         "'\uff0dnp' begins with a dash that a web page or a word processor has made long: write "
         "-np or --np"},
        {"-np \uff14 p",
         "-np: '\uff14' is not a whole number from 1 to 16777216: \uff14 is not the keyboard's 4; "
         "write 4"},
        {"-np 2 python3\u00a0train.py",
         "'python3\u00a0train.py' is taken for the program: a blank in it is not the keyboard's "
         "but "
         "U+00A0; write python3 train.py"},
        {"-np 2 A\uff1d1 p",
         "'A\uff1d1' is taken for the program: \uff1d is not the keyboard's =; write A=1"},
        {"-npp 2 p", "unknown option -npp; did you mean -np?"},
        {"-nP 2 p", "unknown option -nP; did you mean -np?"},
        {"--gpuss 1 p", "unknown option --gpuss; see dtrun --help"},  // --gpus is no flag either
        {"--hotss a p", "unknown option --hotss; did you mean --hosts?"},
        {"\u2014np 2 p",
         "'\u2014np' begins with a dash that a web page or a word processor has made long: write "
         "-np or --np"},
        {"--foo=bar p", "unknown option --foo; see dtrun --help"},
        {"--=3 p", "unknown option --; see dtrun --help"},
        {"-z p", "unknown option -z; see dtrun --help"},
        {"-5 p", "unknown option -5; see dtrun --help"},
        {"-vv p", "unknown option -vv; did you mean -v?"},
        {"--log-file f p",
         "--log-file is no flag of dtrun: write --output-dir DIR: a file for each rank's stdout "
         "and "
         "stderr"},
        {"--timelin x p",
         "--timelin is short for --timeline-filename and --timeline-mark-cycles; write more of it"},
        {"--plan json p", "--plan: write --plan=json (or -- before a program of that name)"},
        {"--min-np 1 --standby 4 p",
         "--standby: write --standby=4 (or -- before a program of that name)"},
        {"-np2x p", "unknown option -np2x; see dtrun --help"},
        {"'echo hi; hostname'",
         "'echo hi; hostname' is a line for a shell, not a program: write sh -c 'echo hi; "
         "hostname'"},
        {"'sh -x'", "'sh -x' is one word for dtrun: write it without the quotes"},
        {"'/bin/sh /tmp/x.sh'",
         "'/bin/sh /tmp/x.sh' is one word for dtrun: write it without the quotes"},
        {"-np", "-np needs a value: -np N"},
        {"--hosts", "--hosts needs a value: --hosts HOSTS"},
        {"-H --verbose p", "-H needs a value: -H HOSTS (with '=' if it begins with a dash)"},
        {"-H= p", "-H: the value is empty"},
        {"-H '' p", "-H: the value is empty"},
        {"--gloo=1 p", "--gloo takes no value"},
        {"A=1 --verbose p",
         "--verbose stands after A=...; options go before, and -- before a program that begins "
         "with a dash"},
        {"-np 2 -n 3 p", "-np 2 and -n 3 are one option of dtrun; give it once"},
        {"--wdir /a --cwd /b p", "--wdir /a and --cwd /b are one option of dtrun; give it once"},
        {"-N 4 --ntasks-per-node=1 p",
         "-N 4 and --ntasks-per-node 1 are one option of dtrun; give it once: srun's -N, a number "
         "of nodes, is what -H, --hostfile or the allocation say"},
        {"-H a --hostfile b p", "-H and --hostfile exclude each other; give one of them"},
        {"--include a --exclude b p",
         "--include and --exclude exclude each other; give one of them"},
        {"-np 4 -H a:1 b:1 prog",
         "'b:1' is a host, not a program: -H takes one word without blanks; write -H a:1,b:1"},
        {"-H a:1, u@b:1, c:2 prog",
         "'u@b:1,' is a host, not a program: -H takes one word without blanks; write -H "
         "a:1,u@b:1,c:2"},
        {"--hosts a --hostfile b p", "--hosts and --hostfile exclude each other; give one of them"},
        {"join h --job j --hosts a p", "unknown option --hosts; see dtrun join --help"},
        {"join h --min-np 4 --max-np 2 p", "--max-np 2 is less than --min-np 4"},
        {"join h --max-np 2 p", "--max-np needs --min-np"},
        {"join h --min-np 0 p", "--min-np: '0' is not a whole number from 1 to 16777216"},
        {"serve now", "'now': dtrun serve takes options only"},
        {"serve --listen foo:1",
         "--listen: 'foo' is not a numeric address such as 10.0.0.1 or [::1]"},
        {"serve --heartbeat-timeout 0.5",
         "--heartbeat-timeout: '0.5' is not a number of seconds from 1 to 86400"},
        {"store",
         "dtrun store what? get, set, create, compare-set, append, add, push, pop, length, wait, "
         "watch, ls, count, rm, lock or drop"},
        {"store put k",
         "there is no 'put', but get, set, create, compare-set, append, add, push, pop, length, "
         "wait, watch, ls, count, rm, lock or drop; see dtrun store --help"},
        {"store set k", "usage: dtrun store set [options] KEY VALUE|-"},
        {"store get k --value v", "get has no --value; see dtrun store --help"},
        {"status a b", "usage: dtrun status [options] [HOST[:PORT]]"},
    }));
    CAPTURE(typed);
    CHECK(error_of(typed) == message);
}

TEST_CASE("stores, contracts and restarts have their words", "[launcher][cli]") {
    const Options plain = options_of("prog");
    CHECK(plain.torch_store == TorchStore::agent);
    CHECK(plain.contracts.empty());
    CHECK(plain.max_restarts == 0);
    CHECK_FALSE(plain.init_timeout);
    CHECK_FALSE(plain.shape.any());
    const Options options = options_of(
        "--store rank0 --contract slurm,jax --contract mxnet --max-restarts 1000 --init-timeout "
        "2.5 "
        "prog");
    CHECK(options.torch_store == TorchStore::rank0);
    CHECK(options.contracts == Strings{"slurm", "jax", "mxnet"});
    CHECK(options.max_restarts == 1000);
    CHECK(options.init_timeout == 2500ms);
    CHECK(options_of("--store proxy prog").torch_store == TorchStore::proxy);
    CHECK(error_of("--store me prog") == "--store: 'me' is not one of agent, rank0 and proxy");
    CHECK_THAT(error_of("--contract slurn prog"), Contains("--contract: ") && Contains("slurn"));
    CHECK(error_of("--max-restarts 1001 prog") ==
          "--max-restarts: '1001' is not a whole number from 0 to 1000");
    CHECK(error_of("--init-timeout 0 prog") ==
          "--init-timeout: '0' is not a number of seconds from 0.001 to 86400");
    CHECK(error_of("--max-restarts 1 --keep-going prog") ==
          "--keep-going and --max-restarts exclude each other; give one of them");
}

TEST_CASE("only names of horovodrun's own flags may be abbreviated", "[launcher][cli]") {
    const auto [typed, message] = GENERATE(table<std::string, std::string>({
        {"--encr", "unknown option --encr; did you mean --encrypt?"},
        {"--accept", "unknown option --accept; did you mean --accept-new-host-keys?"},
        {"--inc=a", "unknown option --inc; did you mean --include?"},
        {"--timest", "unknown option --timest; did you mean --timestamps?"},
        {"-time",
         "--time: 'prog' is not a time of at most 24 hours such as 30 (minutes), 1:30:00 or 0-12; "
         "--timeout takes seconds"},
        {"join --job j --verb", "unknown option --verb; did you mean --verbose?"},
        {"serve --deb", "unknown option --deb; did you mean --debug?"},
        {"deepspeed --encr", "unknown option --encr; did you mean --encrypt?"},
    }));
    CAPTURE(typed);
    CHECK(error_of(typed + " prog") == message);
    CHECK(options_of("--verb prog").verbosity == log::Level::verbose);
}

TEST_CASE("what a row names are flags of its own table, and no name is there twice",
          "[launcher][cli]") {
    const auto check = [](std::span<const Flag> flags) {
        std::vector<std::string_view> names;
        std::vector<std::string_view> first;
        for (const Flag& flag : flags) {
            first.push_back(flag.first_name());
            for (const std::string_view list : {flag.names, flag.also})
                for (const std::string_view name : split(list, ' '))
                    if (!name.empty()) names.push_back(name);
        }
        std::ranges::sort(names);
        const auto twice = std::ranges::adjacent_find(names);
        CHECK((twice == names.end() ? "" : *twice) == "");
        for (const Flag& flag : flags) {
            CAPTURE(flag.names);
            if (!flag.excludes.empty())
                for (const std::string_view name : split(flag.excludes, ' '))
                    CHECK(std::ranges::find(first, name) != first.end());
            if (!flag.argparse.empty())
                for (const std::string_view name : split(flag.argparse, ' '))
                    CHECK(std::ranges::binary_search(names, name));
            CHECK((flag.refused.empty() || flag.help.empty()));
        }
    };
    check(run_flags().flags());
    check(frontends::torchrun_flags().flags());
    check(frontends::deepspeed_flags().flags());
    check(hosts_flags().flags());
}

TEST_CASE("dtrun contracts tells all of them, or one", "[launcher][cli]") {
    const auto text = [](std::vector<std::string> words) { return parse_contracts(words).value(); };
    CHECK_THAT(text({}), Contains("deepspeed") && Contains("slurm"));
    CHECK(text({}) == contracts_help());
    CHECK(text({"--help"}) == contracts_help());
    CHECK_THAT(text({"deepspeed"}), Contains("CROSS_RANK") && Contains("devices"));
    CHECK_THAT(text({"none"}), Contains("dtrun's own variables"));
    CHECK_THAT(error_of("contracts deepsped"), Contains("did you mean deepspeed?"));
    CHECK_THAT(error_of("contracts nne"), Contains("did you mean none?"));
    CHECK(error_of("contracts a b") == "usage: dtrun contracts [NAME]");
}

TEST_CASE("a missing program is answered with the usage", "[launcher][cli]") {
    const std::string typed = GENERATE("", "run", "-np 4", "-np 4 A=1", "--", "--plan");
    CAPTURE(typed);
    CHECK(error_of(typed) ==
          "no program to run; usage: dtrun [run] [options] [VAR=VALUE...] program [args...] "
          "(dtrun --help tells more)");
}

TEST_CASE("ranks of a daemon's job are asked for with the daemon first", "[launcher][cli]") {
    const Options options = options_of(
        "join s1:99 --job train -np 4 --min-np 8 --max-np 16 --encrypt --last-call 1.5 "
        "--heartbeat-timeout 5 A=1 prog --job x");
    REQUIRE(options.join.has_value());
    CHECK(options.join->daemon.address == "s1:99");
    CHECK(options.join->daemon.job == "train");
    CHECK(options.join->ranks_min == 8);
    CHECK(options.join->ranks_max == 16);
    CHECK(options.join->last_call == std::chrono::milliseconds(1'500));
    CHECK(options.encrypt);
    CHECK(options.heartbeat_timeout == std::chrono::seconds(5));
    CHECK(options.world_size == 4);
    CHECK(options.program == Strings{"prog", "--job", "x"});
    CHECK(options_of("join --job j prog").join->daemon.address.empty());
    const auto limits =
        options_of(
            "join --job j --min-np 2 --max-np 8 --allowed-np 8,4 --elastic-timeout 9 "
            "--reset-limit 3 --max-restarts 2 p")
            .join->limits;
    CHECK(limits.allowed == std::vector{4, 8});
    CHECK(limits.timeout == 9s);
    CHECK(limits.reset_limit == 3);
    CHECK(limits.rank_failure_limit == 2);
    CHECK_FALSE(options_of("join --job j p").join->limits.rank_failure_limit);
    CHECK(error_of("join --job j --min-np 5 --max-np 7 --allowed-np 4,8 p") ==
          "--allowed-np has no number from 5 to 7");
    CHECK_FALSE(options_of("prog").join.has_value());
}

TEST_CASE("store commands take options and operands in any order", "[launcher][cli]") {
    const auto command = [](std::string_view typed) {
        const std::vector<std::string> words = shell_words(typed).value();
        const auto parsed = parse_store(words);
        REQUIRE(parsed.has_value());
        return parsed->own;
    };
    const StoreCommand set = command("set --job j k v --server h:1");
    CHECK(set.verb.op == Op::set);
    CHECK(set.daemon.job == "j");
    CHECK(set.daemon.address == "h:1");
    CHECK(set.operands == Strings{"k", "v"});
    CHECK(command("--job j set k v").daemon.job == "j");
    CHECK(command("--job j --timeout 3 wait k").operands == Strings{"k"});
    CHECK(command("ls -0").nul);
    CHECK(command("drop --job j").verb.op == Op::drop);
    CHECK(command("add k -- -5").operands == Strings{"k", "-5"});
    CHECK(command("wait a b c --timeout 2").timeout == std::chrono::seconds(2));
    CHECK(command("ls").operands.empty());
    CHECK(command("set k v --ttl 60").verb.op == Op::put);
    CHECK(command("lock k --job j tail -f --job x").operands ==
          Strings{"k", "tail", "-f", "--job", "x"});
    const auto status = parse_status(std::vector<std::string>{"h", "--json"});
    REQUIRE(status.has_value());
    CHECK(status->own.daemon.address == "h");
    CHECK(status->own.json);
}

TEST_CASE("words that only resemble hosts are programs", "[launcher][cli]") {
    const std::string program = GENERATE("b", "./b:1", "b:x", ":1");
    CHECK(options_of("-H a:1 " + program).program == Strings{program});
    CHECK(options_of("b:1").program == Strings{"b:1"});
    CHECK(options_of("-H a:1 -- b:1").program == Strings{"b:1"});
}

TEST_CASE("--jsrun is refused with the reason", "[launcher][cli]") {
    CHECK_THAT(error_of("--jsrun prog"),
               Catch::StartsWith("--jsrun is refused: dtrun starts the ranks itself;"));
}

TEST_CASE("flags of elastic jobs are those of horovodrun, and dtrun's own", "[launcher][cli]") {
    CHECK_FALSE(options_of("-np 2 prog").elastic);
    const auto options = options_of(
        "-np 4 --min-num-proc 2 --max-np 8 --elastic-timeout 30 --reset-limit 3 --failure-limit 9 "
        "--blacklist-cooldown-range 1 20 --allowed-np 2,8,4 prog -x");
    REQUIRE(options.elastic);
    const plan::ElasticOptions& elastic = *options.elastic;
    CHECK(elastic.ranks_min == 2);
    CHECK(elastic.ranks_max == 8);
    CHECK(elastic.timeout == 30s);
    CHECK(elastic.reset_limit == 3);
    CHECK(elastic.failure_limit == 9);
    CHECK(elastic.cooldown_min == 1s);
    CHECK(elastic.cooldown_max == 20s);
    CHECK(elastic.allowed == std::vector{2, 4, 8});
    CHECK(options.stdin_target.kind == StdinTarget::Kind::none);
    CHECK(options.program == Strings{"prog", "-x"});
    CHECK(options_of("--min-np 2 --blacklist-cooldown-range=1,2 p").elastic->cooldown_max == 2s);
    CHECK(elastic.standby == std::nullopt);
    CHECK(options_of("--min-np 2 --standby=3 p").elastic->standby == 3);
    const auto kept = options_of("--min-np 2 --standby --preload torch,a.b_2 --preload x p");
    CHECK(kept.elastic->standby == 0);
    CHECK(kept.elastic->preload == Strings{"torch", "a.b_2", "x"});
    CHECK(options_of("--health-check ok p").health_check == "ok");
    CHECK_FALSE(options_of("--on-hang report p").kill_hung);
    CHECK(options_of("--on-hang kill p").kill_hung);
}

TEST_CASE("flags of elastic jobs that contradict each other are named", "[launcher][cli]") {
    const auto [typed, message] = GENERATE(table<std::string, std::string>({
        {"--max-np 4", "--max-np needs --min-np"},
        {"--min-np 4 --max-np 2", "--max-np 2 is less than --min-np 4"},
        {"-np 9 --min-np 4 --max-np 8", "-np 9 is more than --max-np 8"},
        {"-np 3 --min-np 4", "-np 3 is less than --min-np 4"},
        {"--min-np 4 --max-np 7 --allowed-np 2,8", "--allowed-np has no number from 4 to 7"},
        {"--min-np 2 --blacklist-cooldown-range 4 2",
         "--blacklist-cooldown-range: '4 2' is not two numbers of seconds from 1 to 3600, the "
         "smaller one first"},
        {"--min-np 2 --blacklist-cooldown-range 4",
         "--blacklist-cooldown-range: '4 prog' is not two numbers of seconds from 1 to 3600, the "
         "smaller one first"},
        {"--standby", "--standby needs --min-np"},
        {"--min-np 2 --standby=0", "--standby: '0' is not a whole number from 1 to 65536"},
        {"--min-np 2 --preload torch",
         "--preload needs --standby: it says what processes that are kept ready import"},
        {"--min-np 2 --standby --preload torch,2x",
         "--preload: '2x' is not the name of a Python module"},
        {"--min-np 2 --standby --preload torch.",
         "--preload: 'torch.' is not the name of a Python module"},
        {"--min-np 2 --keep-going",
         "--min-np and --keep-going exclude each other: an elastic job goes on with a new world "
         "when a rank fails"},
        {"--min-np 2 --stdin 0",
         "--min-np: ranks of an elastic job have no standard input; leave out --stdin"},
    }));
    CAPTURE(typed);
    CHECK(error_of(typed + " prog") == message);
}

TEST_CASE("--help, --version and --check-build win from where they stand", "[launcher][cli]") {
    const auto [typed, asked] = GENERATE(table<std::string, Ask>({
        {"--help", Ask::help},
        {"-h", Ask::help},
        {"run --help", Ask::help},
        {"join h --help", Ask::help},
        {"-np 4 --help --wrong", Ask::help},
        {"-H a --hostfile b --help", Ask::help},
        {"-v", Ask::version},
        {"--version", Ask::version},
        {"--vers", Ask::version},
        {"-cb", Ask::check_build},
        {"--check-build", Ask::check_build},
        {"--check", Ask::check_build},
    }));
    CAPTURE(typed);
    const auto command = parse_typed(typed);
    REQUIRE(command);
    CHECK(command->asked == asked);
}

TEST_CASE("what is asked for is a text of whole lines", "[launcher][cli]") {
    CHECK_THAT(text_of(Ask::version, join_help), StartsWith("dtrun " DTRUN_VERSION " ("));
    CHECK(text_of(Ask::help, join_help) == join_help());
}

TEST_CASE("help fits 80 columns and shows examples before options", "[launcher][cli]") {
    const std::string help = run_help({});
    for (const std::string& text :
         {help, all_flags_help(), horovod_help(), words_help(), exit_codes_help(),
          frontends::mpirun_help(), join_help(), serve_help(), store_help(), status_help(),
          stacks_help(), attach_help(), logs_help(), jobs_help(), environment_help(), info_help(),
          contracts_help(), parse_contracts(std::vector<std::string>{"all"}).value()}) {
        for (const std::string_view line : split(text, '\n')) {
            CAPTURE(line);
            CHECK(line.size() <= 80);
            CHECK_FALSE(line.ends_with(' '));
        }
    }
    CHECK(help.find("Examples:") < help.find("-np, -n, --np, --num-proc N"));
    CHECK_THAT(help, Contains("--tag FORM") && !Contains("--grace"));
    CHECK_THAT(all_flags_help(), Contains("--grace SECONDS") && Contains("(default: 5)"));
    CHECK_THAT(all_flags_help(), !Contains("--mca") && !Contains("--autotune"));
    CHECK_THAT(horovod_help(), Contains("--no-hierarchical-allreduce"));
    CHECK_THAT(horovod_help(), Contains("Refused flags of horovodrun:\n"));
    CHECK_THAT(words_help(), Contains("--host, -host") && Contains("--mca, -mca"));
}

TEST_CASE("a row is all that a command needs to be found, listed and explained",
          "[launcher][cli]") {
    const auto run = [](Words, EnvironmentView) { return 0; };
    const auto help_a = [] { return std::string("usage: a\n"); };
    const auto help_t = [] { return std::string("'topic'\n.a\\b\n"); };
    const Command commands[] = {{"run", "", run, help_a},
                                {"serve", "waits", run, help_a},
                                {"topic", "tells", nullptr, help_t}};
    using Strings = std::vector<std::string>;
    CHECK(find_command(commands, Strings{"serve", "x"}) == &commands[1]);
    CHECK(find_command(commands, Strings{"topic"}) == nullptr);
    CHECK(find_command(commands, Strings{"server"}) == nullptr);
    CHECK(find_command(commands, Strings{}) == nullptr);
    CHECK(command_rows(commands) ==
          "  dtrun serve              waits\n  dtrun help topic         tells\n");
    CHECK_THAT(run_help(commands), Contains("of its own:\n  dtrun serve              waits\n"));
    CHECK(help_on(commands, Strings{}) == "usage: a\n");
    CHECK(help_on(commands, Strings{"topic"}) == help_t());
    CHECK(help_on(commands, Strings{"srve"}).error().message ==
          "no help on 'srve'; did you mean serve?; there is help on run, serve and topic");
}

TEST_CASE("docs/EXIT_CODES.md has the exit codes of --help, in the same words", "[launcher][cli]") {
    const std::string document = read_file(DTRUN_EXIT_CODES_MD).value();
    std::string expected;
    for (const ExitCodeRow& row : kExitCodes) {
        CHECK((row.code == kExitSignalBase ? "128+n" : std::to_string(row.code)) == row.written);
        expected += fmt::format("| {} | {} | {} |\n", row.written, row.name, row.when);
    }
    std::string text = document;
    std::erase(text, '`');
    CHECK_THAT(text, Contains("|---|---|---|\n| a rank's own |"));
    CHECK_THAT(text, Contains(expected + "\n"));
}

TEST_CASE("RankSet reads ranks and ranges", "[launcher][cli]") {
    const RankSet ranks = RankSet::parse("0, 3-5,4,9-9").value();
    std::string contained;
    for (int rank = 0; rank < 12; ++rank)
        if (ranks.contains(rank)) contained += fmt::format("{} ", rank);
    CHECK(contained == "0 3 4 5 9 ");
    CHECK(ranks.largest() == 9);
    CHECK_FALSE(ranks.contains(-1));
    CHECK(RankSet().largest() == -1);
    for (const char* text : {"", ",", "1,", "-1", "1-", "1--2", "a", "0-16777216", "1 2", "-0"}) {
        CAPTURE(text);
        CHECK_FALSE(RankSet::parse(text));
    }
}
