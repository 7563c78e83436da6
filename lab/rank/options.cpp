#include "lab/rank/options.h"

#include "base/strings.h"

#include <charconv>

namespace dtrun::lab::rank {

const char* const kUsage =
    "dtrun-bench-rank is what `dtrun bench` runs on every slot. Rank 0 prints a line of JSON for\n"
    "each thing that it finds out.\n"
    "  dtrun-bench-rank backends\n"
    "  dtrun-bench-rank facts [--backends NAME,...] [--python FILE]\n"
    "  dtrun-bench-rank sweep [--backend NAME] [--ops allreduce,...] [--sizes BYTES,...]\n"
    "      [--dtypes f32,...] [--compress none,fp16,...] [--iters N] [--warmup N] [--seconds S]\n"
    "      [--check 0|1] [--in-place 0|1] [--compress-auto 0|1]\n"
    "  dtrun-bench-rank pairs [--backend NAME] [--iters N] [--seconds S]\n"
    "  dtrun-bench-rank script [--backend NAME] [--step-regex REGEX] [--accuracy-regex REGEX]\n"
    "      [--compress FORMAT] -- PROGRAM [ARGUMENT...]\n"
    "  dtrun-bench-rank train [--backend NAME] -- PYTHON [ARGUMENT of torch/trainer.py...]\n";

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
    const auto bytes = to_int(text, 0, static_cast<long long>(kBytesMax));
    if (!bytes) return fail(Errc::invalid_input, "\"{}\" is no number of bytes", text);
    return static_cast<std::size_t>(*bytes);
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
    if (flag == "--iters")
        return parse_number(flag, value, 1, kIterationsMax, sweep.iters.emplace());
    if (flag == "--warmup") return parse_number(flag, value, 0, kIterationsMax, sweep.warmup);
    if (flag == "--check") return parse_number(flag, value, 0, 1, sweep.check);
    if (flag == "--in-place") return parse_number(flag, value, 0, 1, sweep.in_place);
    if (flag == "--compress-auto") return parse_number(flag, value, 0, 1, sweep.compress_auto);
    if (flag == "--seconds") return parse_real(flag, value, 0, 86'400, sweep.seconds);
    return fail(Errc::invalid_input, "sweep has no option {}", flag);
}

Result<void> parse_pairs_flag(std::string_view flag, std::string_view value, PairsOptions& pairs) {
    if (flag == "--iters") return parse_number(flag, value, 1, kIterationsMax, pairs.iters);
    if (flag == "--seconds") return parse_real(flag, value, 0, 86'400, pairs.seconds);
    return fail(Errc::invalid_input, "pairs has no option {}", flag);
}

Result<void> parse_script_flag(std::string_view flag, std::string_view value,
                               ScriptOptions& script) {
    for (const auto& [name, member] : {std::pair("--backend", &ScriptOptions::backend),
                                       {"--step-regex", &ScriptOptions::step_regex},
                                       {"--accuracy-regex", &ScriptOptions::accuracy_regex},
                                       {"--compress", &ScriptOptions::compress}})
        if (flag == name) {
            script.*member = value;
            return {};
        }
    return fail(Errc::invalid_input, "a program has no option {}; it stands behind --", flag);
}

Result<void> parse_flag(std::string_view flag, std::string_view value, RankOptions& options) {
    if (options.command == Command::facts) {
        if (flag == "--python") {
            options.python = value;
            return {};
        }
        if (flag != "--backends") return fail(Errc::invalid_input, "facts has no option {}", flag);
        for (const std::string_view name : split(value, ',')) options.backends.emplace_back(name);
        return {};
    }
    if (options.is_program()) return parse_script_flag(flag, value, options.script);
    if (flag == "--backend") {
        options.backend = value;
        return {};
    }
    if (options.command == Command::pairs) return parse_pairs_flag(flag, value, options.pairs);
    return parse_sweep_flag(flag, value, options.sweep);
}

Result<Command> parse_command(std::string_view word) {
    constexpr std::pair<std::string_view, Command> kCommands[] = {
        {"--help", Command::help},           {"facts", Command::facts},
        {"version-of", Command::version_of}, {"sweep", Command::sweep},
        {"train", Command::train},           {"pairs", Command::pairs},
        {"script", Command::script},         {"backends", Command::backends},
    };
    for (const auto& [name, command] : kCommands)
        if (name == word) return command;
    return fail(Errc::invalid_input,
                "no command \"{}\": backends, facts, sweep, train, pairs or script", word);
}

}  // namespace

Result<RankOptions> parse_options(Words words) {
    RankOptions options;
    options.sweep.ops = {CollectiveOp::allreduce};
    options.sweep.sizes = {1u << 20};
    options.sweep.dtypes = {DType::f32};
    options.sweep.formats = {std::nullopt};
    if (words.empty()) return options;
    const auto command = parse_command(words.front());
    if (!command) return std::unexpected(command.error());
    options.command = *command;
    if (*command == Command::help || *command == Command::backends) return options;
    if (*command == Command::version_of) {
        if (words.size() != 2) return fail(Errc::invalid_input, "version-of: one name is wanted");
        options.library = words[1];
        return options;
    }
    for (std::size_t i = 1; i < words.size(); i += 2) {
        if (options.is_program() && words[i] == "--") {
            options.script.words.assign(words.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                        words.end());
            break;
        }
        if (i + 1 == words.size()) return fail(Errc::invalid_input, "{}: what?", words[i]);
        if (auto done = parse_flag(words[i], words[i + 1], options); !done)
            return std::unexpected(done.error());
    }
    if (options.is_program() && options.script.words.empty())
        return fail(Errc::invalid_input, "{}: which program?", words.front());
    return options;
}

}  // namespace dtrun::lab::rank
