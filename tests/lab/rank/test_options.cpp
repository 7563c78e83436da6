#include "lab/rank/options.h"
#include "tests/support/catch.h"

#include <sstream>

using namespace dtrun::collectives;
using namespace dtrun::lab;
using namespace dtrun::lab::rank;

namespace {

dtrun::Result<RankOptions> parse(const std::string& line) {
    std::istringstream stream(line);
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    const std::vector<std::string_view> views(words.begin(), words.end());
    return parse_options(views);
}

std::string error_of(const std::string& line) {
    const auto options = parse(line);
    return options ? "none" : options.error().message;
}

}  // namespace

TEST_CASE("a sweep's options are read", "[lab][rank]") {
    const auto options = parse(
        "sweep --backend gloo --ops allreduce,reduce-scatter --sizes 4,1048576 --dtypes f32,bf16 "
        "--compress none,fp8-e4m3 --iters 7 --warmup 0 --seconds 0.5 --check 0 "
        "--in-place 1");
    REQUIRE(options.has_value());
    CHECK(options->command == Command::sweep);
    CHECK(options->backend == "gloo");
    CHECK(options->sweep.ops == std::vector{CollectiveOp::allreduce, CollectiveOp::reduce_scatter});
    CHECK(options->sweep.sizes == std::vector<std::size_t>{4, 1'048'576});
    CHECK(options->sweep.dtypes == std::vector{DType::f32, DType::bf16});
    CHECK(options->sweep.formats == std::vector<std::optional<Format>>{std::nullopt, Format::e4m3});
    CHECK(options->sweep.iters == 7);
    CHECK(options->sweep.warmup == 0);
    CHECK(options->sweep.seconds == 0.5);
    CHECK_FALSE(options->sweep.check);
    CHECK(options->sweep.in_place);
}

TEST_CASE("options of pairs are read", "[lab][rank]") {
    const auto options = parse("pairs --backend gloo --iters 50 --seconds 0.02");
    REQUIRE(options.has_value());
    CHECK(options->command == Command::pairs);
    CHECK(options->backend == "gloo");
    CHECK(options->pairs.iters == 50);
    CHECK(options->pairs.seconds == 0.02);
    CHECK(all_pairs(3) ==
          std::vector<std::pair<std::uint32_t, std::uint32_t>>{{0, 1}, {0, 2}, {1, 2}});
    CHECK(all_pairs(1).empty());
}

TEST_CASE("a program's words stand behind its options", "[lab][rank]") {
    const auto train = parse("train --backend mpi -- python3 --model cnn");
    REQUIRE(train.has_value());
    CHECK(train->command == Command::train);
    CHECK(train->script.words == std::vector<std::string>{"python3", "--model", "cnn"});
    CHECK(parse("")->command == Command::help);
    const auto script = parse("script --step-regex (.*) --backend mpi -- train --ops -- x");
    REQUIRE(script.has_value());
    CHECK(script->script.words == std::vector<std::string>{"train", "--ops", "--", "x"});
    CHECK(script->script.backend == "mpi");
    CHECK(script->script.step_regex == "(.*)");
    CHECK(parse("facts --backends gloo,mpi")->backends.size() == 2);
}

TEST_CASE("wrong options are quoted", "[lab][rank]") {
    CHECK(error_of("swoop") ==
          "no command \"swoop\": backends, facts, sweep, train, pairs or script");
    CHECK(error_of("sweep --iters") == "--iters: what?");
    CHECK(error_of("sweep --iters 0") == "--iters \"0\": a number from 1 to 1000000 is wanted");
    CHECK(error_of("sweep --sizes 4,x") == "--sizes: \"x\" is no number of bytes");
    CHECK(error_of("sweep --seconds nan") ==
          "--seconds \"nan\": a number from 0 to 86400 is wanted");
    CHECK(error_of("sweep --epochs 3") == "sweep has no option --epochs");
    CHECK(error_of("pairs --sizes 4") == "pairs has no option --sizes");
    CHECK(error_of("train --ops allreduce") ==
          "a program has no option --ops; it stands behind --");
    CHECK(error_of("train") == "train: which program?");
    CHECK(error_of("script --") == "script: which program?");
    CHECK(error_of("sweep --ops sum").starts_with("--ops: no operation \"sum\": allreduce, "));
    CHECK(error_of("sweep --dtypes f8").starts_with("--dtypes: no type \"f8\": f32, f64, "));
    CHECK(error_of("sweep --compress zip") != "none");
}

TEST_CASE("8 bits have error feedback unless they are unscaled", "[lab][rank]") {
    const auto feedback = [](std::string_view name) { return parse_algorithm(name)->feedback; };
    CHECK(parse_algorithm("serial")->serial);
    CHECK_FALSE(parse_algorithm("parallel")->format.has_value());
    for (const char* name : {"int8", "fp8-e4m3", "fp8-e5m2", "fp16-ef", "fp8-e4m3-unscaled-ef"})
        CHECK(feedback(name));
    for (const char* name : {"fp16", "bf16", "fp8-e4m3-unscaled", "int8-noef", "parallel"})
        CHECK_FALSE(feedback(name));
    const auto algorithm = parse_algorithm("int8-noef-stochastic");
    CHECK(algorithm->stochastic);
    CHECK_FALSE(algorithm->feedback);
    CHECK(algorithm->format == Format::int8);
    CHECK(algorithm->name == "int8-noef-stochastic");
    CHECK(parse_algorithm("int8-stochastic-ef")->feedback);
}
