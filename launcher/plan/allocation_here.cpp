#include "launcher/plan/allocation_here.h"

#include "base/fd.h"
#include "base/process/command_output.h"

namespace dtrun::plan {
namespace {

/// Standard output of a program that exits 0; its standard error is ours.
Result<std::string> output_of(const std::vector<std::string>& words) {
    auto ended = command_output(words, Captured::out);
    if (!ended) return std::unexpected(ended.error());
    if (ended->status != 0) return fail(Errc::invalid_input, "{} failed", words[0]);
    return std::move(ended->text);
}

}  // namespace

bool has_allocation(EnvironmentView environment) {
    const auto allocation = allocation_here(environment);
    return !allocation || allocation->has_value();
}

Result<std::optional<Allocation>> slurm_here(EnvironmentView environment) {
    if (!find_variable(environment, "SLURM_JOB_ID") && !find_variable(environment, "SLURM_JOBID"))
        return std::nullopt;
    return allocation_here(environment);
}

Result<std::optional<Allocation>> allocation_here(EnvironmentView environment) {
    AllocationInput input;
    input.variable = [environment](std::string_view name) {
        return find_variable(environment, name);
    };
    input.file = [](const std::string& path) { return read_file(path); };
    input.command = output_of;
    return find_allocation(input);
}

}  // namespace dtrun::plan
