#include "lab/rank/steps.h"
#include "lab/report/steps.h"
#include "lab/report/text.h"
#include "lab/report/training.h"
#include "lab/report/training_tables.h"
#include "lab/step_regex.h"
#include "tests/lab/lab_support.h"
#include "tests/support/catch.h"

using namespace dtrun;
using namespace dtrun::lab;
using Catch::Contains;
using Unit = StepRegex::Unit;

namespace {

/// The number that an expression finds, or why it is none.
std::string found(std::string_view regex, std::string_view line) {
    const auto parsed = StepRegex::parse(regex);
    if (!parsed) return parsed.error().message;
    const auto value = parsed->find(line);
    return value ? fmt::format("{} {}", *value, static_cast<int>(parsed->unit())) : "nothing";
}

StepsRecord told(int rank, std::uint64_t steps, double step_ms) {
    StepsRecord record;
    record.rank = rank;
    record.source = "progress";
    record.steps = steps;
    record.step_ms = step_ms;
    record.seconds = static_cast<double>(steps) * step_ms / 1e3;
    return record;
}

TrainRecord script(int ranks, int batch) {
    TrainRecord run;
    run.backend = kOwnBackend;
    run.algorithm = "parallel";
    run.model = "python3 train.py";
    run.ranks = run.slots_per_host = ranks;
    run.global_batch = batch;
    return run;
}

/// Numbers of a program's output, a millisecond apart.
std::vector<rank::Printed> printed(std::initializer_list<double> values) {
    std::vector<rank::Printed> all;
    for (const double value : values)
        all.push_back({value, static_cast<std::int64_t>(all.size() + 1) * 1'000'000});
    return all;
}

std::string error_of(const std::vector<StepsRecord>& ranks, std::string_view regex = "") {
    TrainRecord run = script(2, 0);
    const auto done = add_steps(run, ranks, regex);
    return done ? "" : done.error().message;
}

}  // namespace

TEST_CASE("a step's time is found by a group whose name is the unit", "[lab][steps]") {
    CHECK(found("took ([0-9.]+) s", "step 7 took 0.25 s") == "0.25 0");
    CHECK(found("(?<ms>[0-9.]+) ?ms", "12.5ms") == "12.5 1");
    CHECK(found(R"((\w+): (?P<samples_per_s>[\d,.]+) img/s)", "rate: 1,234.5 img/s") == "1234.5 4");
    CHECK(found(R"((?:step|it) (?=\d)(?<steps_per_s>\d+))", "it 3") == "3 3");
    CHECK(found(R"(\([(](\d+)\))", "((5)") == "5 0");  // neither of the first two is a group
    CHECK(found("([a-z]+)", "step") == "nothing");
    CHECK(found("([0-9.]+)", "0.0") == "nothing");
    CHECK(found("took ([0-9.]+)", std::string(10'000'000, 'x') + "took 1") == "nothing");
}

TEST_CASE("an expression that cannot mean a step is refused with what would", "[lab][steps]") {
    CHECK_THAT(found("took [0-9.]+ s", ""),
               Contains("has no group: put the number in parentheses"));
    CHECK_THAT(found("(step) ([0-9.]+)", ""),
               Contains("has 2 groups: give the one with the number"));
    CHECK_THAT(found("(?<hours>[0-9.]+)", ""),
               Contains("a group is called 'hours': units are seconds, ms"));
    CHECK_THAT(found("(?<ms>1) (?<us>2)", ""), Contains("two groups have a unit"));
    CHECK_THAT(found("took ([0-9.]+", ""), Contains("is no regular expression: "));
}

TEST_CASE("marks become times of steps, and a program's own go before dtrun.torch's",
          "[lab][steps]") {
    const std::string torch = "torch 1 1000000\ntorch 2 3000000\n";
    StepsRecord record = rank::steps_of_marks(torch);
    CHECK(record.source == "torch");
    CHECK(record.steps == 1);
    CHECK(record.step_ms == 2);
    // Every tenth step is told of, and the number falls when the program begins anew.
    record = rank::steps_of_marks(torch +
                                  "progress 10 0\nprogress 20 50000000\nprogress 0 60000000\n"
                                  "progress 10 90000000\nprogress x\n");
    CHECK(record.source == "progress");
    CHECK(record.steps == 20);
    CHECK(record.step_ms == 3);  // of 5 and 3, without the first half
    CHECK(record.seconds == Approx(0.09));
    CHECK(rank::steps_of_marks("progress 1 5\n").source.empty());
    CHECK(rank::steps_of_marks("").source.empty());
}

TEST_CASE("what a program prints is taken in its unit, without the first steps", "[lab][steps]") {
    const auto values = printed({900, 9, 8, 7, 900, 7, 6, 5});
    CHECK(rank::steps_of_output(Unit::ms, values).step_ms == 6);
    CHECK(rank::steps_of_output(Unit::seconds, values).step_ms == 6'000);
    CHECK(rank::steps_of_output(Unit::us, values).seconds == Approx(1842e-6));
    CHECK(rank::steps_of_output(Unit::steps_per_s, printed({0, 4, 4})).step_ms == 250);
    CHECK(rank::steps_of_output(Unit::samples_per_s, values).samples_per_s == 6);
    CHECK(rank::steps_of_output(Unit::rank_samples_per_s, values).rank_samples_per_s == 6);
    CHECK(rank::steps_of_output(Unit::ms, {}).source.empty());
    CHECK(rank::median_of_steps(std::vector<double>{3}) == 3);
    CHECK(rank::median_of_steps(std::vector<double>{9, 9, 2, 1}) == 1);
    CHECK(rank::median_of_steps(std::vector<double>{9, 9, 9, 9, 9, 1, 2, 3, 8, 1}) == 2);
    CHECK(std::isnan(rank::median_of_steps({})));
}

TEST_CASE("counts that a program prints become times, by when it printed them", "[lab][steps]") {
    StepsRecord record =
        rank::steps_of_output(Unit::samples, printed({0, 640, 1'280, 0, 640, 1'280, 1'920}));
    CHECK(record.source == "output");
    CHECK(record.rank_samples_per_s == Approx(640e3));
    CHECK(std::isnan(record.step_ms));
    CHECK(record.steps == 5);  // an epoch's begin is none
    CHECK(record.seconds == Approx(0.006));
    record = rank::steps_of_output(Unit::steps, printed({10, 20, 30, 0, 10}));
    CHECK(record.step_ms == Approx(0.1));
    CHECK(record.steps == 30);
    CHECK(rank::steps_of_output(Unit::steps, printed({10})).source.empty());
}

TEST_CASE("what the usual examples print is known", "[lab][steps]") {
    const auto usual = [](std::string_view line, Unit unit) {
        for (const StepRegex& each : StepRegex::usual())
            if (const auto value = each.find(line); value && each.unit() == unit) return *value;
        return -1.0;
    };
    CHECK(usual("Train Epoch: 1 [0/30000 (0%)]\tLoss: 2.31", Unit::samples) == 0);
    CHECK(usual("Train Epoch: 12 [640/30000 (2%)]\tLoss: 2.31", Unit::samples) == 640);
    CHECK(usual("Test set: Average loss: 0.05", Unit::samples) == -1);
    CHECK(usual("Epoch 1:  45%|\u2588\u258c  | 211/469 [00:05<00:06, 38.29it/s, loss=0.3]",
                Unit::steps) == 211);
    CHECK(usual("211/469 [=====>........] - ETA: 1s - loss: 0.31", Unit::steps) == 211);
    CHECK(usual("\x1b[1m 12/469\x1b[0m \x1b[37m\u2501\u2501\x1b[0m \x1b[1m4s\x1b[0m 10ms/step - "
                "loss: 2.3",
                Unit::steps) == 12);
    CHECK(usual("Epoch: [0][  10/5005]\tTime 0.3 ( 0.5)\tAcc@1   0.39 ( 0.20)", Unit::steps) == 10);
    CHECK(usual("took 5/6 [s] - done", Unit::steps) == -1);
    const auto accuracy = [](std::string_view line) {
        return AccuracyRegex::usual().find(line).value_or(-1);
    };
    CHECK(accuracy("Test set: Average loss: 0.0523, Accuracy: 98.35%") == Approx(0.9835));
    CHECK(accuracy("Accuracy: 9835/10000 (98%)") == Approx(0.9835));
    CHECK(accuracy("val_acc=0.9835") == Approx(0.9835));
    CHECK(accuracy(" * Acc@1 76.1 Acc@5 93.0") == Approx(0.761));
    CHECK(accuracy("The accuracy is 97 %") == Approx(0.97));
    CHECK(accuracy("Accuracy: tensor(0.9812)") == Approx(0.9812));
    CHECK(accuracy("accuracy 1.0") == 1);
    CHECK(accuracy("accuracy: 9.7656e-04") == Approx(0.00097656));
    CHECK(accuracy("Accuracy of plane : 60 %") == -1);  // a class
    // What is of a test goes before what is of training, and a bar of training has none.
    CHECK(accuracy("loss 0.2 acc 0.95 val_loss 0.3 val_acc 0.96") == 0.96);
    CHECK(accuracy("Epoch 3: Train Acc: 95.1%, Test Acc: 96.2%") == Approx(0.962));
    CHECK(accuracy("Accuracy of the network on the 10000 test images: 97 %") == Approx(0.97));
    CHECK(accuracy("469/469 [=====] - 3s 6ms/step - accuracy: 0.93 - val_accuracy: 0.96") == 0.96);
    CHECK(accuracy("Validate Epoch  #1: 50%|##  | 3/6 [00:00<00:00, 9it/s, accuracy=75.2]") ==
          Approx(0.752));
    CHECK(accuracy("Epoch 1: 50%|##  | 3/6 [00:00<00:00, 9it/s, acc=75.2]") == -1);
    for (const char* const none : {"train accuracy: 99%", "accumulate 4", "accelerator 0",
                                   "accuracy: unknown", "accuracy: 980"})
        CHECK(accuracy(none) == -1);
    const auto own = AccuracyRegex::parse("right: ([0-9]+)");
    REQUIRE(own.has_value());
    CHECK(own->find("train: Right: 75 %") == 0.75);
    CHECK_FALSE(AccuracyRegex::parse("right").has_value());
    CHECK_FALSE(AccuracyRegex::parse("(").has_value());
}

TEST_CASE("what ranks say of their batch, compression and accuracy reaches the report",
          "[lab][steps]") {
    StepsRecord record = rank::steps_of_marks(
        "backend gloo\ncompression int8\ntorch 1 1000000000\nsamples 32\ntorch 2 3000000000\n");
    CHECK(record.batch == 32);
    CHECK(record.compression == "int8");
    rank::add_accuracies(record,
                         std::vector<rank::Printed>{{0.9, 3'000'000'000}, {0.97, 6'000'000'000}});
    REQUIRE(record.epochs.size() == 2);
    CHECK(record.epochs[1].seconds == Approx(5));
    StepsRecord second = record;
    second.rank = 1;
    second.epochs.clear();
    TrainRecord run = script(2, 0);
    REQUIRE(add_steps(run, std::vector{second, record}, ""));
    CHECK(run.global_batch == 64);
    CHECK(run.backend == "gloo");
    CHECK(run.samples_per_s == Approx(32));
    CHECK(run.accuracy == 0.97);
    CHECK(run.by_epoch.size() == 2);
    CHECK(check_compression(std::vector{record}, "int8").has_value());
    CHECK(check_compression(std::vector{record}, "").has_value());
    const auto other = check_compression(std::vector{record, second}, "fp16");
    REQUIRE_FALSE(other.has_value());
    CHECK_THAT(other.error().message, Contains("gradients of rank 0 were not sent as fp16"));
    // Each of two ranks has what one alone had.
    const std::vector<TrainRecord> alone{script(1, 32)};
    CHECK(scaling_by_batch(run, alone) == "weak");
    CHECK(scaling_by_batch(script(2, 32), alone) == "strong");
    CHECK(scaling_by_batch(run, {}) == "strong");
    CHECK(scaling_by_batch(alone[0], alone) == "strong");
}

TEST_CASE("a program's step is the mean of the ranks that tell of steps", "[lab][steps]") {
    const StepsRecord silent;
    TrainRecord run = script(4, 512);
    REQUIRE(add_steps(run, std::vector{told(0, 100, 10), silent, told(2, 95, 30)}, ""));
    CHECK(run.step_ms == 20);
    CHECK(run.samples_per_s == 25'600);
    CHECK(run.seconds == Approx(2.85));
    StepsRecord rate = told(0, 10, kUnknown);
    rate.rank_samples_per_s = 100;
    run = script(4, 0);
    REQUIRE(add_steps(run, std::vector{rate}, "r"));
    CHECK(run.samples_per_s == 400);
    CHECK(std::isnan(run.step_ms));
    run = script(4, 200);
    REQUIRE(add_steps(run, std::vector{rate}, "r"));
    CHECK(run.step_ms == 500);
    // What it prints as a record of its own is not changed.
    run.step_ms = 7;
    REQUIRE(add_steps(run, std::vector{silent}, ""));
    CHECK(run.step_ms == 7);
}

TEST_CASE("a program without steps, and ranks that do not agree, are errors", "[lab][steps]") {
    StepsRecord silent;
    silent.lines = 12;
    CHECK_THAT(error_of({silent, silent}),
               Contains("it told of no two steps: call Worker.progress"));
    CHECK(error_of({silent, silent}, "t (.*)") ==
          "--step-regex 't (.*)' is found in none of the 24 lines that its ranks printed");
    CHECK(error_of({told(0, 100, 1), told(1, 57, 1)}) ==
          "its ranks do not agree: rank 0 told of 100 steps, and rank 1 of 57");
}

TEST_CASE("reports have a program's steps and speed-up, and nothing of what it does not tell",
          "[lab][steps]") {
    LabReport report;
    for (const int ranks : {1, 2, 4}) {
        report.train.push_back(script(ranks, 0));
        report.train.back().step_ms = 12.0 / ranks + 1;
    }
    const std::string text = terminal_summary(report, false);
    CHECK_THAT(text, Contains("python3 train.py. Times of a step are medians") &&
                         Contains("13.00 ms") && Contains("250.0 steps/s") && Contains("3.25"));
    CHECK_THAT(text, !Contains("accuracy") && !Contains("samples") && !Contains("epoch"));
    TerminalRows rows;
    CHECK_THAT(rows.train(report.train[0]), Contains("\n# python3 train.py, seed 1\n"));
    for (TrainRecord& run : report.train) {
        run.samples_per_s = 1e3 * run.ranks;
        run.step_ms = kUnknown;
    }
    CHECK(scaling_of(report, "parallel").back().speedup == Approx(4));
    CHECK_THAT(terminal_summary(report, false), Contains("4000 samples/s") && Contains("100 %"));
}
