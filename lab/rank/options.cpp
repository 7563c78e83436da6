#include "lab/rank/options.h"

#include "base/strings.h"

#include <charconv>
#include <limits>

namespace dtrun::lab::rank {

const char* const kUsage =
    "dtrun-bench-rank is what `dtrun bench` runs on every slot. Rank 0 prints a line of JSON for\n"
    "each thing that it finds out.\n"
    "  dtrun-bench-rank facts [--backends NAME,...]\n"
    "  dtrun-bench-rank sweep [--backend NAME] [--ops allreduce,...] [--sizes BYTES,...]\n"
    "      [--dtypes f32,...] [--compress none,fp16,...] [--iters N] [--warmup N] [--seconds S]\n"
    "      [--check 0|1]\n"
    "  dtrun-bench-rank train [--backend NAME] [--algorithm serial|parallel|fp16|int8|...]\n"
    "      [--model mlp|cnn] [--epochs N] [--global-batch N] [--seed N] [--data DIR]\n"
    "      [--loss-scale X]\n";

namespace {

using Words = std::span<const std::string_view>;

/// The items of a list, each parsed; at least one.
template <class T, class F>
Result<void> parse_list(std::string_view flag, std::string_view text, F parse,
                        std::vector<T>& items) {
    items.clear();
    for (const std::string_view item : split(text, ',')) {
        auto parsed = parse(item);
        if (!parsed) return fail(parsed.error(), "{}", flag);
        items.push_back(*parsed);
    }
    return {};
}

Result<std::size_t> parse_size(std::string_view text) {
    const auto bytes = to_int(text, 0, 1ll << 46);
    if (!bytes) return fail(Errc::invalid_input, "\"{}\" is no number of bytes", text);
    return static_cast<std::size_t>(*bytes);
}

Result<std::optional<Format>> parse_compression(std::string_view name) {
    if (name == "none") return std::nullopt;
    auto format = collectives::parse_format(name);
    if (!format) return std::unexpected(format.error());
    return *format;
}

template <class T>
Result<void> parse_number(std::string_view flag, std::string_view text, long long min,
                          long long max, T& number) {
    const auto parsed = to_int(text, min, max);
    if (!parsed)
        return fail(Errc::invalid_input, "{} \"{}\": a number from {} to {} is wanted", flag, text,
                    min, max);
    number = static_cast<T>(*parsed);
    return {};
}

Result<void> parse_real(std::string_view flag, std::string_view text, double min, double max,
                        double& number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() ||
        !(number >= min && number <= max))
        return fail(Errc::invalid_input, "{} \"{}\": a number from {} to {} is wanted", flag, text,
                    min, max);
    return {};
}

Result<void> parse_sweep_flag(std::string_view flag, std::string_view value, SweepOptions& sweep) {
    if (flag == "--ops") return parse_list(flag, value, parse_op, sweep.ops);
    if (flag == "--sizes") return parse_list(flag, value, parse_size, sweep.sizes);
    if (flag == "--dtypes") return parse_list(flag, value, parse_dtype, sweep.dtypes);
    if (flag == "--compress") return parse_list(flag, value, parse_compression, sweep.formats);
    if (flag == "--iters") return parse_number(flag, value, 1, 1'000'000, sweep.iters.emplace());
    if (flag == "--warmup") return parse_number(flag, value, 0, 1'000'000, sweep.warmup);
    if (flag == "--check") return parse_number(flag, value, 0, 1, sweep.check);
    if (flag == "--seconds") return parse_real(flag, value, 0, 86'400, sweep.seconds);
    return fail(Errc::invalid_input, "sweep has no option {}", flag);
}

Result<void> parse_train_flag(std::string_view flag, std::string_view value, RankOptions& options) {
    TrainOptions& train = options.train;
    if (flag == "--epochs") return parse_number(flag, value, 1, 1'000'000, train.epochs);
    if (flag == "--global-batch")
        return parse_number(flag, value, 1, 1'000'000, train.global_batch);
    if (flag == "--seed")
        return parse_number(flag, value, 0, std::numeric_limits<long long>::max(), train.seed);
    if (flag == "--loss-scale") return parse_real(flag, value, 1e-6, 1e6, train.loss_scale);
    if (flag == "--data") {
        options.data = value;
        return {};
    }
    if (flag == "--algorithm") {
        auto algorithm = parse_algorithm(value);
        if (!algorithm) return std::unexpected(algorithm.error());
        options.algorithm = std::move(*algorithm);
        return {};
    }
    if (flag != "--model") return fail(Errc::invalid_input, "train has no option {}", flag);
    const auto model = parse_model(value);
    if (!model) return std::unexpected(model.error());
    train.model = *model;
    return {};
}

Result<void> parse_flag(std::string_view flag, std::string_view value, RankOptions& options) {
    if (options.command == Command::facts) {
        if (flag != "--backends") return fail(Errc::invalid_input, "facts has no option {}", flag);
        for (const std::string_view name : split(value, ',')) options.backends.emplace_back(name);
        return {};
    }
    if (flag == "--backend") {
        options.backend = value;
        return {};
    }
    return options.command == Command::sweep ? parse_sweep_flag(flag, value, options.sweep)
                                             : parse_train_flag(flag, value, options);
}

Result<Command> parse_command(std::string_view word) {
    constexpr std::pair<std::string_view, Command> kCommands[] = {
        {"--help", Command::help}, {"facts", Command::facts}, {"version-of", Command::version_of},
        {"sweep", Command::sweep}, {"train", Command::train},
    };
    for (const auto& [name, command] : kCommands)
        if (name == word) return command;
    return fail(Errc::invalid_input, "no command \"{}\": facts, sweep or train", word);
}

/// Takes `suffix` from the end of a name.
bool take(std::string_view& name, std::string_view suffix) {
    if (!name.ends_with(suffix)) return false;
    name.remove_suffix(suffix.size());
    return true;
}

}  // namespace

Result<Algorithm> parse_algorithm(std::string_view name) {
    Algorithm algorithm;
    algorithm.name = name;
    algorithm.serial = name == "serial";
    if (algorithm.serial || name == "parallel") return algorithm;
    std::string_view rest = name;
    algorithm.stochastic = take(rest, "-stochastic");
    const bool without = take(rest, "-noef");
    const bool with = !without && take(rest, "-ef");
    algorithm.stochastic = take(rest, "-stochastic") || algorithm.stochastic;
    const auto format = collectives::parse_format(rest);
    if (!format)
        return fail(Errc::invalid_input,
                    "no algorithm \"{}\": serial, parallel, or a compression such as fp16 or "
                    "fp8-e4m3, with -ef, -noef or -stochastic behind it",
                    name);
    algorithm.format = *format;
    const bool by_default =
        *format == Format::e4m3 || *format == Format::e5m2 || *format == Format::int8;
    algorithm.feedback = with || (by_default && !without);
    return algorithm;
}

Result<RankOptions> parse_options(Words words) {
    RankOptions options;
    options.sweep.ops = {Op::allreduce};
    options.sweep.sizes = {1u << 20};
    options.sweep.dtypes = {DType::f32};
    options.sweep.formats = {std::nullopt};
    options.algorithm.name = "parallel";
    if (words.empty()) return options;
    const auto command = parse_command(words.front());
    if (!command) return std::unexpected(command.error());
    options.command = *command;
    if (*command == Command::help) return options;
    if (*command == Command::version_of) {
        if (words.size() != 2) return fail(Errc::invalid_input, "version-of: one name is wanted");
        options.library = words[1];
        return options;
    }
    for (std::size_t i = 1; i < words.size(); i += 2) {
        if (i + 1 == words.size()) return fail(Errc::invalid_input, "{}: what?", words[i]);
        if (auto done = parse_flag(words[i], words[i + 1], options); !done)
            return std::unexpected(done.error());
    }
    return options;
}

}  // namespace dtrun::lab::rank
