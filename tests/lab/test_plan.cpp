#include "base/strings.h"
#include "lab/names.h"
#include "lab/plan/flags.h"
#include "lab/plan/plan.h"
#include "tests/launcher/cli_support.h"
#include "tests/support/catch.h"

#include <fmt/ranges.h>

using namespace dtrun;
using namespace dtrun::lab;
using namespace std::chrono_literals;
using Catch::Contains;
using Catch::StartsWith;

namespace {

/// What stands behind `dtrun`.
Result<ParsedBench> parse(std::string_view typed) {
    const std::vector<std::string> words = shell_words(typed).value();
    return parse_bench(Words(words).subspan(1));
}

ParsedBench bench_of(std::string_view typed) {
    auto parsed = parse(typed);
    INFO(message_of(parsed));
    REQUIRE(parsed.has_value());
    REQUIRE(parsed->asked == Ask::nothing);
    return *parsed;
}

std::string sizes_of(std::string_view text) {
    const auto sizes = parse_sizes(text);
    return sizes ? fmt::format("{}", fmt::join(*sizes, " ")) : sizes.error().message;
}

LabPlaces places_of(std::initializer_list<int> slots, bool any_slots = false) {
    LabPlaces places;
    int number = 1;
    for (const int count : slots) {
        Host& host = places.hosts.emplace_back();
        host.name = fmt::format("s{}", number++);
        host.slots = count;
        places.slots_default_max = std::max(places.slots_default_max, count);
    }
    places.any_slots = any_slots;
    return places;
}

/// "sweep mpi 2x4" of every run, or the error.
std::string plan_of(std::string_view typed, const LabPlaces& places,
                    const std::vector<std::string>& backends = {"mpi"},
                    bool oversubscribe = false) {
    const auto runs = plan_runs(bench_of(typed).own, places, backends, oversubscribe);
    if (!runs) return runs.error().message;
    std::string text;
    for (const LabRun& run : *runs)
        text += fmt::format("{}{} {} {}x{}", text.empty() ? "" : ", ", run.words.front(),
                            run.algorithm.empty() ? run.backend : run.backend + " " + run.algorithm,
                            run.hosts, run.slots);
    return text;
}

/// The value that a flag has in a run.
std::string value_of(const LabRun& run, std::string_view flag) {
    const auto at = std::ranges::find(run.words, flag);
    return at == run.words.end() ? "" : *(at + 1);
}

}  // namespace

TEST_CASE("sizes are numbers, ranges with factors, and lists of both", "[lab]") {
    CHECK(sizes_of("4..1K:x4") == "4 16 64 256 1024");
    CHECK(sizes_of("4..1000:x4") == "4 16 64 256 1000");
    CHECK(sizes_of("1K..4K") == "1024 2048 4096");
    CHECK(sizes_of("64M, 4,1k,4") == "4 1024 67108864");
    CHECK(sizes_of("1G..1G:x2") == "1073741824");
    CHECK(sizes_of("4K..1K") == "'4K..1K' runs backwards");
    CHECK(sizes_of("0") == "'0' is not a number of bytes such as 4, 64K or 16M");
    CHECK(sizes_of("K") == "'K' is not a number of bytes such as 4, 64K or 16M");
    CHECK(sizes_of("4..") == "'' is not a number of bytes such as 4, 64K or 16M");
    CHECK(sizes_of("99999999999G") ==
          "'99999999999G' is not a number of bytes such as 4, 64K or 16M");
    CHECK_THAT(sizes_of("4..1K:4"), Contains("grows by a factor from 2 to 1024"));
    CHECK_THAT(sizes_of("4..1K:x1"), Contains("grows by a factor from 2 to 1024"));
    CHECK(short_bytes(4) == "4");
    CHECK(short_bytes(1'536) == "1.5K");
    CHECK(short_bytes(64.0 * (1 << 20)) == "64M");
}

TEST_CASE("dtrun bench without options measures the usual things", "[lab]") {
    const BenchCommand bench = bench_of("bench").own;
    CHECK(bench.backends.empty());
    CHECK(bench.ops == std::vector<std::string>{"allreduce"});
    CHECK(bench.sizes.empty());
    CHECK_FALSE((bench.train || bench.explain || bench.compare));
    CHECK((bench.check && bench.sweep));
    CHECK(plan_of("bench", places_of({4}, true), {"mpi", "gloo"}) ==
          "sweep mpi 1x2, sweep gloo 1x2, sweep mpi 1x4, sweep gloo 1x4");
    CHECK(plan_of("bench", places_of({1}, true)) == "sweep mpi 1x1");
    CHECK(plan_of("bench", places_of({1}, true), {}).empty());
}

TEST_CASE("rows share a minute unless the user gives them a time", "[lab]") {
    const auto seconds_of = [](std::string_view typed, const LabPlaces& places) {
        return value_of(plan_runs(bench_of(typed).own, places, {"mpi"}, false)->front(),
                        "--seconds");
    };
    CHECK(seconds_of("bench --sizes 1K", places_of({2}, true)) == "1");
    CHECK(seconds_of("bench --sizes 1..1G", places_of({2, 2, 2, 2})) == "0.258");
    CHECK(seconds_of("bench --seconds 2.5", places_of({2})) == "2.5");
    CHECK(seconds_of("bench --iters 20", places_of({2})).empty());
    CHECK(seconds_of("bench --iters 20 --seconds 3", places_of({2})) == "3");
}

TEST_CASE("every number of hosts is combined with every number of slots", "[lab]") {
    const LabPlaces four = places_of({4, 4, 4, 4});
    CHECK(plan_of("bench --hosts 1,4 --slots 2", four) == "sweep mpi 1x2, sweep mpi 4x2");
    CHECK(plan_of("bench --hosts 2", places_of({4, 3})) == "sweep mpi 2x1, sweep mpi 2x2");
    CHECK(plan_of("bench --slots 1", places_of({4, 4, 4})) == "sweep mpi 2x1, sweep mpi 3x1");
    CHECK(plan_of("bench --hosts 5", four) ==
          "--hosts 5: there are 4; name more with -H or --hostfile");
    CHECK(plan_of("bench --slots 8", four) ==
          "--slots 8: s1 has 4; give it more, as in -H s1:8, or --oversubscribe");
    CHECK(plan_of("bench --hosts 1 --slots 8", four, {"mpi"}, true) == "sweep mpi 1x8");
    CHECK(plan_of("bench --hosts 2 --slots 8", places_of({1, 1}, true)) == "sweep mpi 2x8");
}

TEST_CASE("training is run alone once, and then in every shape", "[lab]") {
    CHECK(
        plan_of("bench --train --no-sweep --compress none,int8", places_of({2}), {"mpi", "gloo"}) ==
        "train mpi serial 1x1, train mpi parallel 1x2, train gloo parallel 1x2, "
        "train mpi int8 1x2, train gloo int8 1x2");
    CHECK(plan_of("bench --train --no-sweep --compress int8", places_of({2})) ==
          "train mpi serial 1x1, train mpi parallel 1x2, train mpi int8 1x2");
    CHECK(plan_of("bench --train --no-sweep --algorithms serial,fp8-e4m3-noef", places_of({2})) ==
          "train mpi serial 1x1, train mpi fp8-e4m3-noef 1x2");
    // What computes on a GPU is compared with a GPU that is alone.
    CHECK(plan_of("bench --train --no-sweep --algorithms parallel", places_of({2}),
                  {"nccl", "mpi", "gloo"}) ==
          "train nccl serial 1x1, train mpi serial 1x1, train nccl parallel 1x2, "
          "train mpi parallel 1x2, train gloo parallel 1x2");
    CHECK(plan_of("bench --train --no-sweep --algorithms parallel", places_of({1}), {"nccl"}) ==
          "train nccl serial 1x1");
    const auto runs = plan_runs(
        bench_of("bench --train --no-sweep --data /d --epochs 7 --model cnn --global-batch 64 "
                 "--loss-scale 0.0625 --python /v/python --algorithms int8-stochastic")
            .own,
        places_of({2}), {"mpi"}, false);
    REQUIRE(runs.has_value());
    CHECK(fmt::format("{}", fmt::join(runs->back().words, " ")) ==
          "train --backend mpi -- /v/python --model cnn --epochs 7 --global-batch 64 --scaling "
          "strong --seed 1 --loss-scale 0.0625 --data /d --compression int8 --error-feedback "
          "--stochastic");
    const auto on_gpu = plan_runs(bench_of("bench --train --no-sweep --algorithms parallel").own,
                                  places_of({2}), {"nccl"}, false);
    CHECK(on_gpu->front().words.back() == "--gpu");
    CHECK(on_gpu->front().algorithm == "serial");
}

TEST_CASE("every seed trains everything, one after the other", "[lab]") {
    CHECK(
        plan_of("bench --train --no-sweep --seeds 2 --seed 7 --algorithms int8", places_of({2})) ==
        "train mpi serial 1x1, train mpi int8 1x2, train mpi serial 1x1, train mpi int8 1x2");
    const auto runs = plan_runs(
        bench_of(
            "bench --train --no-sweep --seeds 2 --seed 7 --algorithms int8 --scaling strong,weak")
            .own,
        places_of({2}), {"mpi"}, false);
    REQUIRE(runs.has_value());
    std::vector<std::string> said;
    for (const LabRun& run : *runs)
        said.push_back(value_of(run, "--seed") + " " + run.algorithm + " " +
                       value_of(run, "--scaling"));
    CHECK(said == std::vector<std::string>{"7 serial strong", "7 int8 strong", "7 int8 weak",
                                           "8 serial strong", "8 int8 strong", "8 int8 weak"});
}

TEST_CASE("a program is run alone in every shape, with one rank too", "[lab]") {
    CHECK(plan_of("bench -- python3 train.py", places_of({2, 2}), {"own"}) ==
          "script own serial 1x1, script own parallel 1x2, script own parallel 2x1, "
          "script own parallel 2x2");
    const auto runs = plan_runs(
        bench_of("bench --slots 2 --backends mpi,gloo --seeds 2 --step-regex '([0-9]+)' -- a "
                 "--seed={seed} {backend}-{backend} '{c} d' --train")
            .own,
        places_of({2}), {"mpi", "gloo"}, false);
    REQUIRE(runs.has_value());
    REQUIRE(runs->size() == 4);
    CHECK(fmt::format("{}", fmt::join(runs->back().words, " ")) ==
          "script --backend gloo --step-regex ([0-9]+) -- a --seed=2 gloo-gloo {c} d --train");
    const std::vector<std::string> launch = launch_words(runs->back(), {}, "", "/x/rank");
    CHECK(std::ranges::find(launch, "--only-ranks") == launch.end());
    CHECK(bench_of("bench -- a 'b c'").own.program_text == "a 'b c'");
}

TEST_CASE("a program's gradients are compressed by dtrun.torch, or by words of its own", "[lab]") {
    const auto runs = plan_runs(
        bench_of("bench --slots 1,2 --backends mpi,gloo --algorithms none,int8,'16 bits=--fp16 x' "
                 "--accuracy-regex 'a (.)' -- /v/bin/python3 t.py")
            .own,
        places_of({2}), {"mpi", "gloo"}, false);
    REQUIRE(runs.has_value());
    std::vector<std::string> said;
    for (const LabRun& run : *runs)
        said.push_back(fmt::format("{} {} {}", run.backend, run.algorithm, run.ranks()));
    CHECK(said == std::vector<std::string>{"mpi serial 1", "mpi parallel 2", "gloo parallel 2",
                                           "mpi int8 2", "gloo int8 2", "mpi 16 bits 2",
                                           "gloo 16 bits 2"});
    CHECK(fmt::format("{}", fmt::join(runs->at(3).words, " ")) ==
          "script --backend mpi --accuracy-regex a (.) --compress int8 -- /v/bin/python3 t.py");
    CHECK(runs->back().compress.empty());
    CHECK(runs->back().words.back() == "x");
    CHECK(facts_run(bench_of("bench -- /v/bin/python3 t.py").own, 1, {}).words ==
          std::vector<std::string>{"facts", "--python", "/v/bin/python3"});
    CHECK(facts_run(bench_of("bench -- ./train").own, 2, {}).words ==
          std::vector<std::string>{"facts"});
}

TEST_CASE("pairs are measured once, on as many hosts as there are", "[lab]") {
    CHECK(plan_of("bench --no-sweep --pairs hosts", places_of({4, 4, 4}), {"mpi", "gloo"}) ==
          "pairs mpi 3x1, pairs gloo 3x1");
    CHECK(plan_of("bench --no-sweep --pairs ranks", places_of({4, 4})) == "pairs mpi 2x4");
    CHECK(plan_of("bench --no-sweep --pairs ranks --slots 1,2", places_of({4, 4})) ==
          "pairs mpi 2x2");
    CHECK(plan_of("bench --pairs hosts", places_of({4})) ==
          "--pairs hosts: there is only one; name more with -H or --hostfile, or measure its ranks "
          "with --pairs ranks");
    CHECK_THAT(plan_of("bench --pairs ranks", places_of({1})),
               StartsWith("--pairs ranks: there is"));
    const auto seconds_of = [](std::string_view typed, const LabPlaces& places) {
        return value_of(plan_runs(bench_of(typed).own, places, {"mpi"}, false)->front(),
                        "--seconds");
    };
    CHECK(seconds_of("bench --no-sweep --pairs hosts", places_of({1, 1})) == "0.1");
    CHECK(seconds_of("bench --no-sweep --pairs ranks", places_of({16, 16})) == "0.027");
    CHECK(seconds_of("bench --no-sweep --pairs ranks", places_of({64, 64})) == "0.01");
    CHECK(seconds_of("bench --no-sweep --pairs ranks --seconds 2", places_of({64, 64})) == "2");
}

TEST_CASE("speeds of networks and accuracies are written as people write them", "[lab]") {
    CHECK(*parse_line_rate("25gbit") == 25'000);
    CHECK(*parse_line_rate("2.5 Gbit/s") == 2'500);
    CHECK(*parse_line_rate("100mbit") == 100);
    for (const char* const wrong :
         {"", "gbit", "1", "0gbit", "-1gbit", "1 kbit", "1gbits", "nangbit"})
        CHECK_FALSE(parse_line_rate(wrong).has_value());
    CHECK(*parse_accuracy("95%") == Approx(0.95));
    CHECK(*parse_accuracy("97.5 %") == Approx(0.975));
    CHECK(*parse_accuracy("0.95") == 0.95);
    for (const char* const wrong : {"", "%", "0", "95", "101%", "-1%", "nan"})
        CHECK_FALSE(parse_accuracy(wrong).has_value());
}

TEST_CASE("each run is a dtrun torchrun with the user's flags", "[lab]") {
    const ParsedBench command = bench_of(
        "bench -H s1:4,s2:4 -x A=b --ssh-port 2222 --encrypt --mpi pmix --include s1 --verbose "
        "--network-interface=eth1");
    CHECK(command.options.hosts == "s1:4,s2:4");
    LabRun run;
    run.hosts = 1;
    run.slots = 4;
    run.words = {"sweep", "--backend", "mpi"};
    const auto words = launch_words(run, command.own, "", "/x/rank");
    CHECK(fmt::format("{}", fmt::join(words, " ")) ==
          "torchrun --no-python --nnodes 1 --nproc-per-node 4 --grace 5 --no-record -H s1:4,s2:4 "
          "-x A=b "
          "--ssh-port 2222 --encrypt --mpi=pmix --include s1 --verbose --network-interfaces eth1 "
          "--tag none --only-ranks 0 --stdin none -- /x/rank sweep --backend mpi");
    CHECK(words.front() == "torchrun");
    const auto parsed = frontends::parse_torchrun(Words(words).subspan(1), {});
    REQUIRE(parsed.has_value());
    CHECK(parsed->options.shape.number == 4);
    CHECK(parsed->options.ssh_port == 2222);
    CHECK(parsed->options.program.front() == "/x/rank");

    const ParsedBench from_file = bench_of("bench --hostfile h");
    CHECK(from_file.own.launch.empty());
    const auto with_file = launch_words(run, from_file.own, "/dev/fd/7", "r");
    CHECK_THAT(fmt::format("{}", fmt::join(with_file, " ")), Contains("--hostfile /dev/fd/7 "));
}

TEST_CASE("dtrun bench says what would be right", "[lab][cli]") {
    const auto [typed, expected] = GENERATE(table<std::string, std::string>({
        {"bench --hosts s1:4", "--hosts: 's1:4' is not a whole number from 1 to"},
        {"bench --ops allredcue", "--ops: 'allredcue' is not one of allreduce, "},
        {"bench --dtypes f8", "--dtypes: 'f8' is not one of f32, "},
        {"bench --compare a b --csv c", "--compare writes no file but that of --html; leave out"},
        {"bench --compress int4", "--compress: 'int4' is not one of none, "},
        {"bench --algorithms adam", "--algorithms: 'adam' is neither serial, parallel nor one of"},
        {"bench --backends mpi,,gloo", "--backends: a name is missing in 'mpi,,gloo'"},
        {"bench --backends ../x", "--backends: '../x' is not the name of a backend"},
        {"bench --sizes big", "--sizes: 'big' is not a number of bytes"},
        {"bench --model gpt", "--model: 'gpt' is neither mlp nor cnn"},
        {"bench --loss-scale 0", "--loss-scale: '0' is not a number from 0.000001 to 1000000"},
        {"bench --loss-scale 1/8", "--loss-scale: '1/8' is not a number from 0.000001"},
        {"bench --slots 0", "--slots: '0' is not a whole number from 1 to 65536"},
        {"bench -H a --hostfile b", "-H and --hostfile exclude each other"},
        {"bench --include a --exclude b", "--include and --exclude exclude each other"},
        {"bench --mpi mpirun", "--mpi mpirun: dtrun bench starts the ranks itself"},
        {"bench --no-sweep", "--no-sweep without --train or --pairs leaves nothing to do"},
        {"bench --no-sweep --train --in-place",
         "--in-place is for the sweep; leave out --no-sweep"},
        {"bench --seeds 5", "--seeds is for training; add --train"},
        {"bench --python p", "--python is for training; add --train"},
        {"bench --target-accuracy 95%", "--target-accuracy is for training; add --train"},
        {"bench --target-accuracy 95", "--target-accuracy: '95' is not an accuracy such as 95%"},
        {"bench --train --seeds 5 --seed 999999", "--seeds 5: the last would be above 1000000"},
        {"bench --scaling weka", "--scaling: 'weka' is not one of strong and weak"},
        {"bench --pairs all", "--pairs: 'all' is not one of hosts and ranks"},
        {"bench --line-rate 25", "--line-rate: '25' is not the speed of a network such as 25gbit"},
        {"bench --data d", "--data is for training; add --train"},
        {"bench a.json",
         "'a.json' is no option, and a program to measure stands behind --: dtrun bench -- "
         "a.json; "},
        {"bench --",
         "which program? it stands behind --; usage: dtrun bench [options] [-- PROGRAM"},
        {"bench --step-regex 'took [0-9]+' -- a", "--step-regex: 'took [0-9]+' has no group"},
        {"bench --step-regex '([0-9]+)'", "--step-regex looks at what a program prints; name it"},
        {"bench --train -- a b", "-- a: a program is measured alone; leave out --train and"},
        {"bench --pairs ranks -- a", "-- a: a program is measured alone; leave out --train and"},
        {"bench --data d -- a", "--data is for training; add --train"},
        {"bench --algorithms int4 -- a", "--algorithms: 'int4' is neither serial, parallel nor"},
        {"bench --algorithms int8-noef -- a",
         "--algorithms: 'int8-noef': gradients of a program that trains with dtrun.torch can be"},
        {"bench --algorithms int8= -- a", "--algorithms: 'int8=': write a name and words"},
        {"bench --train --algorithms int8=--b", "--algorithms 'int8=--b' adds words to a program"},
        {"bench --accuracy-regex 'acc' -- a", "--accuracy-regex: 'acc' has no group"},
        {"bench --accuracy-regex '(.)'", "--accuracy-regex looks at what a program prints; name"},
        {"bench --compare a b -- c", "--compare runs nothing; leave out -- c"},
        {"bench --scaling strong,weak -- a", "--scaling: a program's is strong (all ranks share"},
        {"bench -- a {backend}", "{backend} in the program's words is one of --backends; name"},
        {"bench --from a --compare",
         "--from writes reports of what was measured before; leave out"},
        {"bench --from a -H s1", "--from writes reports of what was measured before; leave out"},
        {"bench --from a -- c", "--from writes reports of what was measured before; leave out the"},
        {"bench -np 2", "-np is no flag of dtrun: ranks are --slots on each of --hosts"},
        {"bench --no-train", "--no-train is no flag of dtrun: it trains only with --train"},
        {"bench --compare a.json", "--compare takes two files that --json has written"},
        {"bench --compare a b c", "--compare takes two files that --json has written"},
        {"bench --backendz mpi", "unknown option --backendz; did you mean --backends?"},
        {"bench --encr", "unknown option --encr; did you mean --encrypt?"},
        {"bench --wrong", "unknown option --wrong; see dtrun bench --help"},
        {"bench --ssh-port 0", "--ssh-port: '0' is not a whole number from 1 to 65535"},
    }));
    CAPTURE(typed);
    CHECK_THAT(message_of(parse(typed)), StartsWith(expected));
}

TEST_CASE("two reports to compare may stand before or behind options", "[lab][cli]") {
    for (const char* const typed : {"bench --compare a b --html h", "bench a --html h b --compare",
                                    "bench --html h a --compare b"}) {
        CAPTURE(typed);
        const BenchCommand bench = bench_of(typed).own;
        CHECK(bench.compare);
        CHECK(bench.files == std::vector<std::string>{"a", "b"});
        CHECK(bench.html == "h");
    }
}

TEST_CASE("the help of dtrun bench fits 80 columns", "[lab]") {
    CHECK(parse("bench --help")->asked == Ask::help);
    const std::string help = bench_help();
    for (const std::string_view line : split(help, '\n')) {
        CAPTURE(line);
        CHECK(line.size() <= 80);
    }
    for (const auto* names :
         {&operation_names(), &type_names(), &compression_names(), &backend_names()})
        for (const std::string& name : *names) CHECK_THAT(help, Contains(name));
}
