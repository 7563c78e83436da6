#include "launcher/commands/check_build.h"

#include "base/process/command_output.h"
#include "base/strings.h"
#include "launcher/cli/command.h"

#include <dtrun_version.h>
#include <fmt/format.h>
#include <algorithm>
#include <future>
#include <optional>

namespace dtrun::commands {
namespace {

/// Packages are asked for by what is installed: importing all of them takes many seconds.
constexpr const char* kAsk = R"(
import sys
sys.path[:] = [folder for folder in sys.path if folder]  # not what lies in this directory
from importlib.metadata import version
for package in "torch", "tensorflow", "mxnet", "horovod", "deepspeed":
    try:
        print(package, version(package))
    except Exception:
        pass
)";
constexpr std::chrono::seconds kAskLimit{10};

/// What there is to say of one thing: whether it is there, and what else.
std::string row(std::string_view name, bool is_there, std::string_view more) {
    if (more.empty()) return fmt::format("    [{}] {}\n", is_there ? "X" : " ", name);
    return fmt::format("    [{}] {:<14} {}\n", is_there ? "X" : " ", name, more);
}

/// The version of a package; empty: it is not installed.
std::string_view version_in(std::string_view packages, std::string_view name) {
    for (const std::string_view line : split(packages, '\n'))
        if (line.starts_with(name) && line.substr(name.size()).starts_with(' '))
            return line.substr(name.size() + 1);
    return {};
}

std::string frameworks(std::string_view packages) {
    const std::string_view torch = version_in(packages, "torch");
    std::string text = row("PyTorch", !torch.empty(), torch);
    const bool has_horovod = !version_in(packages, "horovod").empty();
    for (const auto& [name, package] :
         {std::pair<std::string_view, std::string_view>{"TensorFlow", "tensorflow"},
          {"MXNet", "mxnet"}}) {
        const std::string_view version = version_in(packages, package);
        const bool is_usable = !version.empty() && has_horovod;
        text += row(name, is_usable,
                    version.empty() || is_usable
                        ? std::string(version)
                        : fmt::format("{}, which needs Horovod itself", version));
    }
    return text;
}

std::string controllers(std::span<const doctor::BackendHere> backends) {
    const auto version = [&](std::string_view name) {
        const auto found = std::ranges::find(backends, name, &doctor::BackendHere::name);
        return found != backends.end() ? found->version : "";
    };
    const std::string library = version("mpi"), pmix = version("pmix");
    const std::string mpi =
        library.empty()            ? "no MPI library here"
        : !pmix.empty()            ? fmt::format("{}, started by libpmix {}", library, pmix)
        : library.starts_with('O') ? fmt::format("{}, for which libpmix is missing", library)
                                   : fmt::format("{}, started by PMI", library);
    return row("MPI", !library.empty(), mpi) + row("Gloo", true, "dtrun serves its store");
}

}  // namespace

std::string check_build_text(const Result<std::vector<doctor::BackendHere>>& backends,
                             std::string_view packages) {
    std::string text = "dtrun v" DTRUN_VERSION ":\n\nAvailable Frameworks:\n";
    text += frameworks(packages);
    text += "\nAvailable Controllers:\n";
    text += controllers(backends ? std::span<const doctor::BackendHere>(*backends)
                                 : std::span<const doctor::BackendHere>());
    text += "\nAvailable Tensor Operations:\n";
    if (!backends) text += fmt::format("    {}\n", backends.error().message);
    for (const doctor::BackendHere& backend :
         backends ? *backends : std::vector<doctor::BackendHere>()) {
        if (backend.name == "pmix") continue;
        const std::string why = doctor::why_not(backend);
        const bool has_both = !why.empty() && !backend.version.empty();
        text += row(backend.title, why.empty(),
                    fmt::format("{}{}{}", backend.version, has_both ? ": " : "", why));
    }
    const std::string_view horovod = version_in(packages, "horovod");
    return text +
           (horovod.empty()
                ? "\nHorovod is not installed; --horovod-shim has its interface for PyTorch.\n"
                : fmt::format("\nHorovod {} is installed; --horovod-shim would take its "
                              "place for PyTorch.\n",
                              horovod));
}

int run_check_build() {
    auto backends = std::async(std::launch::async, doctor::ask_backends);
    std::string packages;
    for (const char* const python : {"python3", "python"}) {
        const auto said = command_output({python, "-c", kAsk}, Captured::out_alone, kAskLimit);
        if (!said) continue;
        packages = said->text;
        break;
    }
    return cli::print(check_build_text(backends.get(), packages));
}

}  // namespace dtrun::commands
