#include "launcher/doctor/backends_here.h"

#include "base/own_program.h"
#include "base/process/command_output.h"
#include "base/strings.h"

namespace dtrun::doctor {
namespace {

constexpr const char* kRankProgram = "dtrun-bench-rank";
constexpr std::chrono::seconds kLimit{20};

}  // namespace

Result<std::vector<BackendHere>> ask_backends() {
    const auto program = program_beside(kRankProgram);
    if (!program) return std::unexpected(program.error());
    const auto said = command_output({*program, "backends"}, Captured::out_alone, kLimit);
    if (!said) return std::unexpected(said.error());
    std::vector<BackendHere> backends;
    for (const std::string_view line : split(said->text, '\n')) {
        const auto fields = split(line, '\t');
        if (fields.size() == 4)
            backends.push_back({std::string(fields[0]), std::string(fields[1]),
                                std::string(fields[2]), std::string(fields[3])});
    }
    if (said->status != 0 || backends.empty())
        return fail(Errc::internal, "{} fails with exit code {}", *program, said->status);
    return backends;
}

std::string why_not(const BackendHere& backend) {
    if (backend.version.empty()) return "no such library here";
    const bool needs_plugin = backend.name != "dtrun" && backend.name != "pmix";
    return needs_plugin && backend.plugin.empty() ? "no plug-in of dtrun for it here" : "";
}

}  // namespace dtrun::doctor
