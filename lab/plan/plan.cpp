#include "lab/plan/plan.h"

#include "base/strings.h"
#include "lab/names.h"
#include "lab/records.h"
#include "launcher/cli/flags.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

namespace dtrun::lab {
namespace {

using std::string_view;
using Numbers = std::vector<int>;

constexpr std::size_t kSizesMax = 256;
constexpr string_view kDefaultSizes = "1K..16M:x4";
constexpr int kDefaultBatch = 256;
/// Duration of a default sweep, starts of programs not counted.
constexpr double kDefaultSeconds = 40;
constexpr double kPairMinMs = 10;
constexpr double kPairMaxMs = 100;
constexpr std::chrono::milliseconds kRowMin{50};
constexpr std::chrono::milliseconds kRowMax{1'000};

Result<void> add_range(std::vector<std::uint64_t>& sizes, string_view item, std::size_t dots) {
    const std::size_t colon = item.find(':');
    const auto first = cli::parse_bytes(item.substr(0, dots), kBytesMax);
    if (!first) return std::unexpected(first.error());
    const auto last =
        cli::parse_bytes(item.substr(dots + 2, colon - std::min(colon, dots + 2)), kBytesMax);
    if (!last) return std::unexpected(last.error());
    std::uint64_t factor = 2;
    if (colon != string_view::npos) {
        const string_view factor_text = item.substr(colon + 1);
        const auto number =
            factor_text.starts_with('x') ? to_int(factor_text.substr(1), 2, 1'024) : std::nullopt;
        if (!number)
            return fail(Errc::invalid_input,
                        "'{}': a range grows by a factor from 2 to 1024, as in 4..64M:x4", item);
        factor = static_cast<std::uint64_t>(*number);
    }
    if (*first > *last) return fail(Errc::invalid_input, "'{}' runs backwards", item);
    for (std::uint64_t bytes = *first; bytes < *last; bytes *= factor) sizes.push_back(bytes);
    sizes.push_back(*last);
    return {};
}

/// 1, 2, 4, ... below `max`, and `max`.
Numbers doubling(int max) {
    Numbers numbers;
    for (int number = 1; number < max; number *= 2) numbers.push_back(number);
    numbers.push_back(max);
    return numbers;
}

int slots_of(const Host& host) {
    return host.slot_ids.empty() ? host.slots : static_cast<int>(host.slot_ids.size());
}

struct Shape {
    int hosts;
    int slots;
    int ranks() const { return hosts * slots; }
};

Result<void> check_shape(const Shape& shape, const LabPlaces& places, bool oversubscribe) {
    const auto there = static_cast<int>(places.hosts.size());
    if (shape.hosts > there)
        return fail(Errc::invalid_input, "--hosts {}: there {} {}; name more with -H or --hostfile",
                    shape.hosts, there == 1 ? "is only" : "are", there);
    if (places.any_slots || oversubscribe) return {};
    for (int i = 0; i < shape.hosts; ++i) {
        const Host& host = places.hosts[static_cast<std::size_t>(i)];
        if (slots_of(host) < shape.slots)
            return fail(Errc::invalid_input,
                        "--slots {}: {} has {}; give it more, as in -H {}:{}, or --oversubscribe",
                        shape.slots, host.name, slots_of(host), host.name, shape.slots);
    }
    return {};
}

/// Shapes that the user asked for must all be possible; of the default ones, only the possible ones
/// are taken.
Result<std::vector<Shape>> plan_shapes(const BenchCommand& command, const LabPlaces& places,
                                       bool oversubscribe) {
    const Numbers hosts =
        command.hosts.empty() ? doubling(static_cast<int>(places.hosts.size())) : command.hosts;
    const Numbers slots =
        command.slots.empty() ? doubling(places.slots_default_max) : command.slots;
    std::vector<Shape> shapes;
    for (const int host_count : hosts)
        for (const int slot_count : slots) {
            const Shape shape{host_count, slot_count};
            const auto possible = check_shape(shape, places, oversubscribe);
            if (possible)
                shapes.push_back(shape);
            else if (!command.slots.empty() || host_count > std::ssize(places.hosts))
                return std::unexpected(possible.error());
        }
    return shapes;
}

std::chrono::milliseconds row_time(const BenchCommand& command, std::size_t rows) {
    if (command.seconds) return *command.seconds;
    const double each = kDefaultSeconds / static_cast<double>(std::max<std::size_t>(rows, 1));
    const std::chrono::milliseconds time(static_cast<long long>(each * 1'000));
    return std::clamp(time, kRowMin, kRowMax);
}

void add_sweep(std::vector<LabRun>& runs, const BenchCommand& command,
               const std::vector<Shape>& all, const std::vector<std::string>& backends) {
    std::vector<Shape> shapes;
    std::ranges::copy_if(all, std::back_inserter(shapes),
                         [](const Shape& shape) { return shape.ranks() > 1; });
    if (shapes.empty()) shapes = all;  // one rank says nothing about a network, but was asked for
    const auto sizes = command.sizes.empty() ? *parse_sizes(kDefaultSizes) : command.sizes;
    const auto compress =
        command.compress.empty() ? std::vector<std::string>{"none"} : command.compress;
    const std::size_t rows = shapes.size() * backends.size() * sizes.size() * command.ops.size() *
                             command.dtypes.size() * compress.size();
    const std::string seconds =
        fmt::format("{}", static_cast<double>(row_time(command, rows).count()) / 1e3);
    for (const Shape& shape : shapes)
        for (const std::string& backend : backends) {
            LabRun& run = runs.emplace_back();
            run.backend = backend;
            run.hosts = shape.hosts;
            run.slots = shape.slots;
            run.words = {"sweep",
                         "--backend",
                         backend,
                         "--ops",
                         fmt::format("{}", fmt::join(command.ops, ",")),
                         "--sizes",
                         fmt::format("{}", fmt::join(sizes, ",")),
                         "--dtypes",
                         fmt::format("{}", fmt::join(command.dtypes, ",")),
                         "--compress",
                         fmt::format("{}", fmt::join(compress, ",")),
                         "--check",
                         command.check ? "1" : "0"};
            const auto add = [&run](const char* flag, const std::string& value) {
                run.words.insert(run.words.end(), {flag, value});
            };
            if (command.iters) add("--iters", std::to_string(*command.iters));
            if (command.in_place) add("--in-place", "1");
            if (command.compress_auto) add("--compress-auto", "1");
            if (command.warmup) add("--warmup", std::to_string(*command.warmup));
            if (!command.iters || command.seconds) add("--seconds", seconds);
        }
}

/// Seconds for each of the three measurements of a pair.
double pair_time(const BenchCommand& command, int ranks, std::size_t backends) {
    if (command.seconds) return static_cast<double>(command.seconds->count()) / 1e3;
    const double measurements = 1.5 * ranks * (ranks - 1) * static_cast<double>(backends);
    const double each_ms = std::round(kDefaultSeconds * 1e3 / std::max(measurements, 1.0));
    return std::clamp(each_ms, kPairMinMs, kPairMaxMs) / 1e3;
}

/// Pairs are measured once for each backend, on as many hosts as there are.
Result<void> add_pairs(std::vector<LabRun>& runs, const BenchCommand& command,
                       const std::vector<Shape>& shapes, const std::vector<std::string>& backends) {
    Shape largest{1, 1};
    for (const Shape& shape : shapes) {
        largest.hosts = std::max(largest.hosts, shape.hosts);
        if (shape.hosts == largest.hosts) largest.slots = shape.slots;
    }
    if (command.pairs == BenchCommand::Pairs::hosts) {
        if (largest.hosts < 2)
            return fail(Errc::invalid_input,
                        "--pairs hosts: there is only one; name more with -H or --hostfile, or "
                        "measure its ranks with --pairs ranks");
        largest.slots = 1;
    }
    if (largest.ranks() < 2)
        return fail(Errc::invalid_input, "--pairs ranks: there is only one; give more --slots");
    const std::string seconds =
        fmt::format("{}", pair_time(command, largest.ranks(), backends.size()));
    for (const std::string& backend : backends) {
        LabRun& run = runs.emplace_back();
        run.kind = LabRun::Kind::pairs;
        run.backend = backend;
        run.hosts = largest.hosts;
        run.slots = largest.slots;
        run.words = {"pairs", "--backend", backend, "--seconds", seconds};
        if (command.iters)
            run.words.insert(run.words.end(), {"--iters", std::to_string(*command.iters)});
    }
    return {};
}

/// How gradients travel, in words of the trainer.
std::vector<std::string> gradient_words(const std::string& name) {
    const Algorithm algorithm = parse_algorithm(name).value();
    std::vector<std::string> words;
    if (algorithm.format) words = {"--compression", std::string(name_of(algorithm.format))};
    if (algorithm.feedback) words.emplace_back("--error-feedback");
    if (algorithm.stochastic) words.emplace_back("--stochastic");
    return words;
}

LabRun train_run(const BenchCommand& command, const Shape& shape, const std::string& backend,
                 const std::string& algorithm, const std::string& scaling, int seed) {
    LabRun run;
    run.kind = LabRun::Kind::train;
    run.backend = backend;
    run.algorithm = algorithm;
    run.seed = seed;
    run.hosts = shape.hosts;
    run.slots = shape.slots;
    run.words = {"train", "--backend", backend, "--", command.python};
    const auto add = [&run](const char* flag, const std::string& value) {
        if (!value.empty()) run.words.insert(run.words.end(), {flag, value});
    };
    add("--model", command.model);
    add("--epochs", std::to_string(command.epochs));
    add("--global-batch", std::to_string(command.global_batch.value_or(kDefaultBatch)));
    add("--scaling", scaling);
    add("--seed", std::to_string(seed));
    add("--loss-scale", command.loss_scale);
    add("--data", command.data);
    std::ranges::copy(gradient_words(algorithm), std::back_inserter(run.words));
    if (computes_on_gpu(backend)) run.words.emplace_back("--gpu");
    return run;
}

/// Algorithms besides "serial", which is always run. Unless --algorithms names them,
/// "parallel" is among them, for speed-up.
std::vector<std::string> algorithms_of(const BenchCommand& command) {
    std::vector<std::string> algorithms = command.algorithms;
    if (algorithms.empty() && command.compress.empty()) algorithms = {"parallel", "fp16", "int8"};
    if (algorithms.empty()) {
        algorithms = command.compress;
        std::erase(algorithms, "none");
        algorithms.insert(algorithms.begin(), "parallel");
    }
    std::ranges::replace(algorithms, "none", "parallel");
    std::erase(algorithms, "serial");
    return algorithms;
}

std::vector<std::string> scaling_of(const BenchCommand& command) {
    return command.scaling.empty() ? std::vector<std::string>{"strong"} : command.scaling;
}

/// Backends of serial runs: one for all that compute on processors, and each that does on GPUs.
std::vector<std::string> serial_backends(const std::vector<std::string>& backends) {
    std::vector<std::string> serial;
    bool has_cpu = false;
    for (const std::string& backend : backends) {
        const bool on_gpu = computes_on_gpu(backend);
        if (on_gpu || !has_cpu) serial.push_back(backend);
        has_cpu |= !on_gpu;
    }
    return serial;
}

/// A serial run gives T(1) for all others that compute on the same, so no backend is run with a
/// single rank. It is that of weak scaling too. Seeds come one after the other, so that an interrupted lab has whole ones.
void add_training(std::vector<LabRun>& runs, const BenchCommand& command,
                  const std::vector<Shape>& shapes, const std::vector<std::string>& backends) {
    for (int seed = command.seed; seed < command.seed + command.seeds; ++seed) {
        for (const std::string& backend : serial_backends(backends))
            runs.push_back(train_run(command, {1, 1}, backend, "serial", "strong", seed));
        for (const std::string& scaling : scaling_of(command))
            for (const std::string& algorithm : algorithms_of(command))
                for (const Shape& shape : shapes)
                    for (const std::string& backend : backends)
                        if (shape.ranks() > 1)
                            runs.push_back(
                                train_run(command, shape, backend, algorithm, scaling, seed));
    }
}

std::string replaced(std::string text, string_view name, string_view value) {
    for (std::size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += value.size())
        text.replace(at, name.size(), value);
    return text;
}

LabRun script_run(const BenchCommand& command, const Shape& shape, const std::string& backend,
                  const ProgramAlgorithm& algorithm, int seed) {
    LabRun run;
    run.kind = LabRun::Kind::script;
    run.backend = backend;
    run.algorithm = algorithm.name;
    run.compress = algorithm.compress;
    run.seed = seed;
    run.hosts = shape.hosts;
    run.slots = shape.slots;
    run.words = {"script"};
    const auto add = [&run](const char* flag, const std::string& value) {
        if (!value.empty()) run.words.insert(run.words.end(), {flag, value});
    };
    if (backend != kOwnBackend) add("--backend", backend);
    add("--step-regex", command.step_regex);
    add("--accuracy-regex", command.accuracy_regex);
    add("--compress", algorithm.compress);
    run.words.emplace_back("--");
    for (const std::string& word : command.program)
        run.words.push_back(
            replaced(replaced(word, "{backend}", backend), "{seed}", std::to_string(seed)));
    std::ranges::copy(algorithm.words, std::back_inserter(run.words));
    return run;
}

/// Algorithms of a program, besides the one with a single rank.
std::vector<ProgramAlgorithm> program_algorithms(const BenchCommand& command) {
    std::vector<ProgramAlgorithm> algorithms;
    for (const std::string& item : command.algorithms)
        algorithms.push_back(
            parse_program_algorithm(item).value());  // which the command line has checked
    std::erase_if(algorithms, [](const ProgramAlgorithm& each) { return each.name == "serial"; });
    if (algorithms.empty()) algorithms.push_back({"parallel", {}, ""});
    return algorithms;
}

/// One rank is the serial run and gives T(1) to the others, so it is run, too, where it is among the shapes.
void add_script(std::vector<LabRun>& runs, const BenchCommand& command,
                const std::vector<Shape>& shapes, const std::vector<std::string>& backends) {
    const auto alone = [](const Shape& shape) { return shape.ranks() == 1; };
    for (int seed = command.seed; seed < command.seed + command.seeds; ++seed) {
        if (std::ranges::any_of(shapes, alone))
            for (const std::string& backend : serial_backends(backends))
                runs.push_back(script_run(command, {1, 1}, backend, {"serial", {}, ""}, seed));
        for (const ProgramAlgorithm& algorithm : program_algorithms(command))
            for (const std::string& backend : backends)
                for (const Shape& shape : shapes)
                    if (!alone(shape))
                        runs.push_back(script_run(command, shape, backend, algorithm, seed));
    }
}

}  // namespace

Result<std::vector<std::uint64_t>> parse_sizes(string_view text) {
    std::vector<std::uint64_t> sizes;
    for (const string_view part : split(text, ',')) {
        const string_view item = trim(part);
        if (const std::size_t dots = item.find(".."); dots != string_view::npos) {
            if (auto done = add_range(sizes, item, dots); !done)
                return std::unexpected(done.error());
            continue;
        }
        const auto bytes = cli::parse_bytes(item, kBytesMax);
        if (!bytes) return std::unexpected(bytes.error());
        sizes.push_back(*bytes);
    }
    std::ranges::sort(sizes);
    sizes.erase(std::ranges::unique(sizes).begin(), sizes.end());
    if (sizes.size() > kSizesMax)
        return fail(Errc::invalid_input, "{} sizes; {} are enough", sizes.size(), kSizesMax);
    return sizes;
}

Result<double> parse_line_rate(string_view text) {
    std::string lower(text);
    std::ranges::transform(lower, lower.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
    string_view rest = lower;
    if (rest.ends_with("/s")) rest.remove_suffix(2);
    double factor = 0;
    for (const auto& [unit, mbit] : {std::pair<string_view, double>{"gbit", 1'000}, {"mbit", 1}})
        if (rest.ends_with(unit)) {
            factor = mbit;
            rest.remove_suffix(unit.size());
            break;
        }
    double rate = 0;
    const string_view number = trim(rest);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), rate);
    if (factor == 0 || error != std::errc() || end != number.data() + number.size() ||
        !(rate * factor >= 1 && rate * factor <= 1e8))
        return fail(Errc::invalid_input,
                    "'{}' is not the speed of a network such as 25gbit or 100mbit", text);
    return rate * factor;
}

Result<double> parse_accuracy(string_view text) {
    const bool is_percent = text.ends_with('%');
    const string_view number = trim(is_percent ? text.substr(0, text.size() - 1) : text);
    double accuracy = 0;
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), accuracy);
    if (is_percent) accuracy /= 100;
    if (error != std::errc() || end != number.data() + number.size() ||
        !(accuracy > 0 && accuracy <= 1))
        return fail(Errc::invalid_input, "'{}' is not an accuracy such as 95% or 0.95", text);
    return accuracy;
}

Result<ProgramAlgorithm> parse_program_algorithm(string_view item) {
    const std::size_t equals = item.find('=');
    ProgramAlgorithm algorithm{std::string(trim(item.substr(0, equals))), {}, ""};
    if (algorithm.name == "none") algorithm.name = "parallel";
    if (equals != string_view::npos) {
        for (const string_view word : split(item.substr(equals + 1), ' '))
            if (!word.empty()) algorithm.words.emplace_back(word);
        if (algorithm.name.empty() || algorithm.words.empty())
            return fail(Errc::invalid_input,
                        "'{}': write a name and words of the program, as in int8=--bit8-allreduce",
                        item);
        return algorithm;
    }
    if (algorithm.name == "serial" || algorithm.name == "parallel") return algorithm;
    // The compressors that dtrun.torch has itself.
    constexpr string_view kOwn[] = {"fp16", "bf16", "int8", "fp8-e4m3"};
    if (std::ranges::find(kOwn, algorithm.name) == std::end(kOwn))
        return fail(Errc::invalid_input,
                    "'{}': gradients of a program that trains with dtrun.torch can be {}; others "
                    "are told by words of the program: {}=--its-flag",
                    item, fmt::join(kOwn, ", "), algorithm.name);
    algorithm.compress = algorithm.name;
    return algorithm;
}

std::string short_bytes(double bytes) {
    constexpr string_view kLetters[] = {"", "K", "M", "G", "T"};
    std::size_t letter = 0;
    while (bytes >= 1'024 && letter + 1 < std::size(kLetters)) {
        bytes /= 1'024;
        ++letter;
    }
    return fmt::format("{:.4g}{}", bytes, kLetters[letter]);
}

LabRun facts_run(const BenchCommand& command, int hosts, const std::vector<std::string>& backends) {
    LabRun run;
    run.kind = LabRun::Kind::facts;
    run.hosts = hosts;
    run.words = {"facts"};
    if (!backends.empty())
        run.words.insert(run.words.end(),
                         {"--backends", fmt::format("{}", fmt::join(backends, ","))});
    // The Python that trains is the one whose packages are told.
    const std::string& program = command.program.empty() ? command.python : command.program.front();
    if (program.substr(program.rfind('/') + 1).starts_with("python"))
        run.words.insert(run.words.end(), {"--python", program});
    return run;
}

Result<std::vector<LabRun>> plan_runs(const BenchCommand& command, const LabPlaces& places,
                                      const std::vector<std::string>& backends,
                                      bool oversubscribe) {
    const auto shapes = plan_shapes(command, places, oversubscribe);
    if (!shapes) return std::unexpected(shapes.error());
    std::vector<LabRun> runs;
    if (backends.empty() || shapes->empty()) return runs;
    if (!command.program.empty()) {
        add_script(runs, command, *shapes, backends);
        return runs;
    }
    if (command.sweep) add_sweep(runs, command, *shapes, backends);
    if (command.pairs != BenchCommand::Pairs::none)
        if (auto done = add_pairs(runs, command, *shapes, backends); !done)
            return std::unexpected(done.error());
    if (command.train) add_training(runs, command, *shapes, backends);
    return runs;
}

std::vector<std::string> launch_words(const LabRun& run, const BenchCommand& command,
                                      const std::string& hostfile,
                                      const std::string& rank_program) {
    std::vector<std::string> words{"torchrun",         "--no-python",
                                   "--nnodes",         std::to_string(run.hosts),
                                   "--nproc-per-node", std::to_string(run.slots),
                                   "--grace",          "5",
                                   "--no-record"};
    if (!hostfile.empty()) words.insert(words.end(), {"--hostfile", hostfile});
    words.insert(words.end(), command.launch.begin(), command.launch.end());
    words.insert(words.end(), {"--tag", "none"});
    // Of a program each rank is heard: any of them may fail, or tell of its steps.
    if (!run.is_program()) words.insert(words.end(), {"--only-ranks", "0"});
    words.insert(words.end(), {"--stdin", "none", "--", rank_program});
    words.insert(words.end(), run.words.begin(), run.words.end());
    return words;
}

}  // namespace dtrun::lab
