#include "launcher/cli/documentation.h"

#include "base/own_program.h"
#include "base/text_layout.h"

#include <fmt/format.h>
#include <filesystem>
#include <string_view>
#include <utility>

namespace dtrun::cli {

namespace {

constexpr std::size_t kPageColumn = 30;  // where it says what a page is for

/// Pages in the order in which somebody new has need of them; docs/index.md has all.
constexpr std::pair<std::string_view, std::string_view> kPages[] = {
    {"guide/first-steps.md", "ranks on this machine, on two hosts, with torch"},
    {"guide/from-horovodrun.md",
     "and from-torchrun, from-mpirun, from-srun, from-deepspeed: old command, new command"},
    {"guide/ssh-and-keys.md", "logging in without being asked"},
    {"guide/slurm.md", "in a Slurm job: no host list, no ssh"},
    {"guide/it-does-not-start.md", "error messages, and what to do"},
    {"guide/it-fails.md", "the failure report, exit codes, debugging"},
    {"guide/it-hangs.md", "where each rank is, and who waits for whom"},
    {"guide/see-jobs.md", "watching a job in a terminal or a browser"},
    {"guide/come-back.md", "jobs that outlive your terminal"},
    {"guide/elastic.md", "hosts that come and go"},
    {"guide/daemon.md", "ranks that are not started together"},
    {"guide/programs.md", "the library for C++ and Python"},
    {"guide/labs.md", "the course's labs"},
    {"guide/administrators.md", "installing it for everybody"},
    {"index.md", "all pages"},
};

/// "share/doc/dtrun/html/index.html", which `./dev docs` makes, beside the pages; empty if it is not there.
std::string site_beside(const std::string& folder) {
    const std::filesystem::path above = std::filesystem::path(folder).parent_path();
    for (const char* const place : {"html/index.html", "build/docs/html/index.html"}) {
        std::error_code ignored;
        if (std::filesystem::exists(above / place, ignored)) return (above / place).string();
    }
    return "";
}

}  // namespace

std::optional<std::string> documentation_of(const std::string& program) {
    const std::filesystem::path prefix = std::filesystem::path(program).parent_path().parent_path();
    // Installed below it, or built in build/release of the sources.
    for (const std::filesystem::path& folder :
         {prefix / "share/doc/dtrun/docs", prefix.parent_path().parent_path() / "docs"}) {
        std::error_code ignored;
        if (std::filesystem::exists(folder / "guide/first-steps.md", ignored))
            return folder.string();
    }
    return std::nullopt;
}

std::string docs_help() {
    const Result<std::string> program = own_program();
    const auto folder = program ? documentation_of(*program) : std::nullopt;
    std::string text;
    if (folder) {
        text = fmt::format(
            "The documentation of this dtrun is Markdown, readable in any pager:\n  {}\n", *folder);
        if (const std::string site = site_beside(*folder); !site.empty())
            text += fmt::format("and, for a browser, with search:\n  {}\n", site);
        const auto examples = std::filesystem::path(*folder).parent_path() / "examples";
        std::error_code ignored;
        if (std::filesystem::exists(examples / "train.py", ignored))
            text +=
                fmt::format("Example programs (begin with train.py):\n  {}\n", examples.string());
    } else {
        text =
            "This dtrun was installed without its documentation. docs/ of its sources has\nthese "
            "pages.\n";
    }
    text += "\n";
    for (const auto& [page, what] : kPages)
        text += two_columns(std::string(page), std::string(what), kPageColumn);
    text += "\nAll options: `dtrun help all`; those of another command: `dtrun help COMMAND`.\n";
    return text;
}

}  // namespace dtrun::cli
