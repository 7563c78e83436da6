#include "launcher/cli/horovod_flags.h"

#include "base/strings.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cmath>
#include <optional>

namespace dtrun::cli {

namespace {

using enum HorovodSetting::Form;

// clang-format off
constexpr HorovodSetting kSettings[] = {
    {.variable = "HOROVOD_FUSION_THRESHOLD", .form = megabytes, .flags = "--fusion-threshold-mb",
     .key = "params.fusion_threshold_mb",
     .help = "size in MB of the buffer in which small tensors are fused; 0: no fusion"},
    {.variable = "HOROVOD_CYCLE_TIME", .form = decimal, .flags = "--cycle-time-ms",
     .key = "params.cycle_time_ms", .help = "time between two rounds of fusion, ms"},
    {.variable = "HOROVOD_CACHE_CAPACITY", .form = whole, .flags = "--cache-capacity",
     .key = "params.cache_capacity", .help = "number of tensor names to cache; 0: none"},
    {.variable = "HOROVOD_HIERARCHICAL_ALLREDUCE", .form = yes_no,
     .flags = "--hierarchical-allreduce", .flags_no = "--no-hierarchical-allreduce",
     .key = "params.hierarchical_allreduce", .help = "reduce inside each host first"},
    {.variable = "HOROVOD_HIERARCHICAL_ALLGATHER", .form = yes_no,
     .flags = "--hierarchical-allgather", .flags_no = "--no-hierarchical-allgather",
     .key = "params.hierarchical_allgather", .help = "gather inside each host first"},
    {.variable = "HOROVOD_TORUS_ALLREDUCE", .form = yes_no, .flags = "--torus-allreduce",
     .flags_no = "--no-torus-allreduce", .key = "params.torus_allreduce",
     .help = "reduce along rows and columns of hosts"},
    {.variable = "HOROVOD_AUTOTUNE", .form = yes_no, .flags = "--autotune",
     .flags_no = "--no-autotune", .key = "autotune.enabled",
     .help = "let Horovod search for the best settings"},
    {.variable = "HOROVOD_AUTOTUNE_LOG", .form = text, .flags = "--autotune-log-file",
     .key = "autotune.log_file", .needs = "HOROVOD_AUTOTUNE", .help = "CSV of what was tried"},
    {.variable = "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", .form = whole,
     .flags = "--autotune-warmup-samples", .key = "autotune.warmup_samples",
     .needs = "HOROVOD_AUTOTUNE", .help = "samples dropped at the start"},
    {.variable = "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", .form = whole,
     .flags = "--autotune-steps-per-sample", .key = "autotune.steps_per_sample",
     .needs = "HOROVOD_AUTOTUNE", .help = "steps in one sample"},
    {.variable = "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", .form = whole,
     .flags = "--autotune-bayes-opt-max-samples", .key = "autotune.bayes_opt_max_samples",
     .needs = "HOROVOD_AUTOTUNE", .help = "samples before the search ends"},
    {.variable = "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", .form = fraction,
     .flags = "--autotune-gaussian-process-noise", .key = "autotune.gaussian_process_noise",
     .needs = "HOROVOD_AUTOTUNE", .help = "expected noise of a sample, 0 to 1"},
    {.variable = "HOROVOD_TIMELINE", .form = text, .flags = "--timeline-filename",
     .key = "timeline.filename", .help = "JSON trace that rank 0 writes"},
    {.variable = "HOROVOD_TIMELINE_MARK_CYCLES", .form = yes_no, .flags = "--timeline-mark-cycles",
     .flags_no = "--no-timeline-mark-cycles", .key = "timeline.mark_cycles",
     .needs = "HOROVOD_TIMELINE", .help = "mark the rounds in the trace"},
    {.variable = "HOROVOD_STALL_CHECK_DISABLE", .form = yes_no, .flags = "--no-stall-check",
     .flags_no = "--stall-check", .key_no = "stall_check.enabled",
     .help = "do not warn about ranks that wait for another"},
    {.variable = "HOROVOD_STALL_CHECK_TIME_SECONDS", .form = whole,
     .flags = "--stall-check-warning-time-seconds", .key = "stall_check.warning_time_seconds",
     .help = "time until that warning, s"},
    {.variable = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", .form = whole,
     .flags = "--stall-check-shutdown-time-seconds", .key = "stall_check.shutdown_time_seconds",
     .help = "time until a stalled job ends, s; 0: never"},
    {.variable = "HOROVOD_MPI_THREADS_DISABLE", .form = yes_no, .flags = "--mpi-threads-disable",
     .flags_no = "--no-mpi-threads-disable", .key = "library_options.mpi_threads_disable",
     .help = "do not ask MPI for thread support"},
    {.variable = "HOROVOD_NUM_NCCL_STREAMS", .form = whole, .flags = "--num-nccl-streams",
     .key = "library_options.num_nccl_streams", .help = "NCCL streams"},
    {.variable = "HOROVOD_THREAD_AFFINITY", .form = whole, .flags = "--thread-affinity",
     .key = "library_options.thread_affinity", .help = "CPU of Horovod's own thread"},
    {.variable = "HOROVOD_GLOO_TIMEOUT_SECONDS", .form = whole, .flags = "--gloo-timeout-seconds",
     .key = "library_options.gloo_timeout_seconds",
     .help = "how long Gloo waits for a rank, s; Gloo's own default is 30"},
    {.variable = "HOROVOD_LOG_LEVEL", .form = level, .flags = "--log-level",
     .key = "logging.level", .help = "TRACE, DEBUG, INFO, WARNING, ERROR or FATAL"},
    {.variable = "HOROVOD_LOG_HIDE_TIME", .form = yes_no, .flags = "--log-without-timestamp --log-hide-timestamp",
     .flags_no = "--log-with-timestamp --no-log-hide-timestamp",
     .key = "logging.hide_timestamp", .key_no = "logging.with_timestamp",
     .help = "no time in Horovod's log lines"},
};
// clang-format on

Result<std::string> multiple_of(std::string_view text, long long max, long long factor) {
    const auto number = to_int(text, 0, max);
    if (!number || text.starts_with('-'))
        return fail(Errc::invalid_input, "'{}' is not a whole number from 0 to {}", text, max);
    return fmt::to_string(*number * factor);
}

Result<std::string> decimal_number(std::string_view text, double max) {
    double number = 0;
    const char* const end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, number);
    const bool in_range = std::isfinite(number) && number >= 0 && number <= max;
    if (error != std::errc{} || stopped != end || !in_range || text.starts_with('-')) {
        if (std::isinf(max)) return fail(Errc::invalid_input, "'{}' is not a number >= 0", text);
        return fail(Errc::invalid_input, "'{}' is not a number from 0 to {}", text, max);
    }
    std::string value = fmt::to_string(number);
    if (value.find_first_of(".e") == std::string::npos) value += ".0";
    return value;
}

Result<std::string> log_level(std::string_view text) {
    constexpr std::string_view kLevels[] = {"TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"};
    std::string level(text);
    for (char& c : level)
        if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    if (std::ranges::find(kLevels, level) == std::end(kLevels))
        return fail(Errc::invalid_input,
                    "'{}' is not one of TRACE, DEBUG, INFO, WARNING, ERROR and FATAL", text);
    return level;
}

bool is_on(const HorovodValues& values, std::string_view variable) {
    const auto value = values.find(variable);
    return value != values.end() && value->second != "0";
}

std::string_view flag_of(std::string_view variable) {
    return std::ranges::find(kSettings, variable, &HorovodSetting::variable)->flags;
}

}  // namespace

std::span<const HorovodSetting> horovod_settings() {
    return kSettings;
}

Result<std::string> horovod_value(const HorovodSetting& setting, std::string_view written) {
    switch (setting.form) {
        case whole:
            return multiple_of(written, INT_MAX, 1);
        case megabytes:
            return multiple_of(written, (1LL << 43) - 1, 1 << 20);
        case decimal:
            return decimal_number(written, INFINITY);
        case fraction:
            return decimal_number(written, 1);
        case level:
            return log_level(written);
        case yes_no:
            if (written == "true") return "1";
            if (written == "false") return "0";
            return fail(Errc::invalid_input, "'{}' is neither true nor false", written);
        case text:
            break;
    }
    if (written.empty()) return fail(Errc::invalid_input, "the value is empty");
    return std::string(written);
}

HorovodEnvironment horovod_environment(const HorovodValues& values) {
    HorovodEnvironment environment;
    if (const auto controller = values.find(kHorovodController); controller != values.end()) {
        environment.variables.emplace_back(*controller);
        environment.variables.emplace_back(kHorovodCpuOperations, controller->second);
    }
    for (const HorovodSetting& setting : kSettings) {
        const auto value = values.find(setting.variable);
        if (value == values.end()) continue;
        if (setting.needs.empty() || is_on(values, setting.needs))
            environment.variables.emplace_back(*value);
        else
            environment.warnings.push_back(
                fmt::format("{} has no effect without {}", setting.flags, flag_of(setting.needs)));
    }
    return environment;
}

}  // namespace dtrun::cli
