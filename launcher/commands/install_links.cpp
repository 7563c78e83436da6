#include "launcher/commands/install_links.h"

#include "base/ids.h"
#include "base/log.h"
#include "base/own_program.h"
#include "base/strings.h"
#include "base/suggest.h"
#include "launcher/cli/command.h"
#include "launcher/cli/help.h"
#include "launcher/cli/other_names.h"
#include "launcher/cli/setters.h"
#include "launcher/commands/ask_job.h"

#include <fmt/format.h>
#include <unistd.h>
#include <filesystem>
#include <system_error>

namespace dtrun::commands {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLinksUsage = "usage: dtrun install-links [options] NAME...";

constexpr std::string_view kLinks = R"(usage: dtrun install-links [options] NAME...
       dtrun install-links --remove [options] [NAME...]

Makes links to dtrun under the names of other launchers, for scripts that call
those: called by such a name, dtrun takes that launcher's flags. Installing
dtrun makes no links, since the launchers themselves may be there.

  horovodrun                         dtrun run
  torchrun                           dtrun torchrun
  deepspeed                          dtrun deepspeed
  mpirun, mpiexec, orterun,
  mpiexec.hydra, mpirun.openmpi      dtrun mpirun

Whatever else has such a name in that folder is kept, unless --force is given.

Exit code: 0; 200 an argument is wrong, or a link cannot be made or removed.
)";

std::vector<std::string> all_names() {
    std::vector<std::string> names;
    for (const cli::OtherName& other : cli::kOtherNames) names.emplace_back(other.name);
    return names;
}

/// Both lead to the same file, which is there.
bool is_same(const fs::path& one, const fs::path& other) {
    std::error_code absent;
    return fs::equivalent(one, other, absent) && !absent;
}

bool is_own_link(const LinkPlace& place, const fs::path& link) {
    std::error_code absent;
    return fs::is_symlink(fs::symlink_status(link, absent)) && is_same(link, place.program);
}

Result<void> replace(const LinkPlace& place, const fs::path& link) {
    const fs::path made = fs::path(place.folder) / fmt::format(".dtrun-link-{:016x}", random_id());
    std::error_code error;
    fs::create_symlink(place.target, made, error);
    if (!error) fs::rename(made, link, error);
    if (!error) return {};
    std::error_code ignored;
    fs::remove(made, ignored);
    return fail(Errc::denied, "{}: {}", link.string(), error.message());
}

}  // namespace

LinkPlace link_place(const std::string& program, const std::string& folder,
                     plan::EnvironmentView environment) {
    LinkPlace place{folder, program, program};
    if (folder.empty()) {
        place.folder = fs::path(program).parent_path();
        for (const std::string_view each :
             split(plan::find_variable(environment, "PATH").value_or(""), ':')) {
            if (each.empty() || !is_same(fs::path(each) / "dtrun", program)) continue;
            place.folder = each;
            break;
        }
    }
    if (is_same(fs::path(place.folder) / "dtrun", program)) place.target = "dtrun";
    return place;
}

Result<std::string> make_link(const LinkPlace& place, std::string_view name, bool force) {
    const fs::path link = fs::path(place.folder) / name;
    std::error_code error;
    if (!fs::is_directory(place.folder, error))
        return fail(Errc::not_found, "{}: no such folder", place.folder);
    const fs::file_status there = fs::symlink_status(link, error);
    if (!fs::exists(there)) {
        fs::create_symlink(place.target, link, error);
        if (error) return fail(Errc::denied, "{}: {}", link.string(), error.message());
        return fmt::format("{} leads to {}", link.string(), place.target);
    }
    if (is_own_link(place, link)) return fmt::format("{} leads to dtrun already", link.string());
    if (!force)
        return fail(Errc::denied,
                    "{} is there and is not dtrun's; --force replaces it, --dir DIR makes the link "
                    "elsewhere",
                    link.string());
    if (is_same(link, place.program) || fs::is_directory(there))
        return fail(Errc::denied, "{} is {}, which no link replaces", link.string(),
                    fs::is_directory(there) ? "a folder" : "dtrun itself");
    if (auto done = replace(place, link); !done) return std::unexpected(done.error());
    return fmt::format("{} leads to {}, in place of what was there", link.string(), place.target);
}

Result<std::string> remove_link(const LinkPlace& place, std::string_view name) {
    const fs::path link = fs::path(place.folder) / name;
    std::error_code error;
    if (!fs::exists(fs::symlink_status(link, error)))
        return fmt::format("{} is not there", link.string());
    if (!is_own_link(place, link))
        return fail(Errc::denied, "{} is not a link to this dtrun, and stays", link.string());
    fs::remove(link, error);
    if (error) return fail(Errc::denied, "{}: {}", link.string(), error.message());
    return fmt::format("{} is removed", link.string());
}

std::string hidden_by(const LinkPlace& place, std::string_view name,
                      plan::EnvironmentView environment) {
    for (const std::string_view folder :
         split(plan::find_variable(environment, "PATH").value_or(""), ':')) {
        if (is_same(folder, place.folder)) return "";
        const fs::path other = fs::path(folder) / name;
        if (::access(other.c_str(), X_OK) == 0 && !is_same(other, place.program))
            return fmt::format("{} is {} before {}, in PATH", name, other.string(), place.folder);
    }
    return fmt::format("{} is not in PATH", place.folder);
}

const cli::FlagTable<ParsedLinks>& links_flags() {
    using Own = decltype(ParsedLinks::own);
    static const cli::FlagTable<ParsedLinks> table(
        "dtrun install-links",
        {{{{.names = "--dir",
            .metavar = "DIR",
            .group = cli::FlagGroup::other,
            .help = "where to put the links (default: beside dtrun, as PATH finds it)"},
           cli::set_text<&Own::folder>},
          {{.names = "--force",
            .group = cli::FlagGroup::other,
            .excludes = "--remove",
            .help = "replace whatever has such a name"},
           cli::set_true<&Own::force>},
          {{.names = "--remove",
            .group = cli::FlagGroup::other,
            .help =
                "remove links that lead to dtrun, and nothing else; without a NAME, all of them"},
           cli::set_true<&Own::remove>}},
         cli::about_rows<ParsedLinks>()});
    return table;
}

Result<ParsedLinks> parse_links(cli::Words words) {
    auto parsed = read_operands(words, links_flags(), 0, std::size(cli::kOtherNames), kLinksUsage);
    if (!parsed || parsed->asked != cli::Ask::nothing) return parsed;
    std::vector<std::string>& names = parsed->own.operands;
    for (const std::string& name : names)
        if (cli::find_other_name(name) == nullptr)
            return fail(Errc::invalid_input,
                        "dtrun does not answer to the name '{}'{}; it does to {}", name,
                        did_you_mean(name, all_names()),
                        join_names(all_names(), std::size(cli::kOtherNames)));
    if (names.empty() && !parsed->own.remove)
        return fail(Errc::invalid_input, "{}; names are {}", kLinksUsage,
                    join_names(all_names(), std::size(cli::kOtherNames)));
    return parsed;
}

int run_links(cli::Words words, plan::EnvironmentView environment) {
    const auto parsed = parse_links(words);
    if (const auto status = cli::settled(parsed, links_help)) return *status;
    const auto program = own_program();
    if (!program) return cli::complain(program.error());
    const LinkPlace place = link_place(*program, parsed->own.folder, environment);
    const bool all = parsed->own.operands.empty();
    int status = 0;
    for (const std::string& name : all ? all_names() : parsed->own.operands) {
        if (all && !is_own_link(place, fs::path(place.folder) / name)) continue;
        const auto done = parsed->own.remove ? remove_link(place, name)
                                             : make_link(place, name, parsed->own.force);
        const int one = done ? cli::print(*done + "\n") : cli::complain(done.error());
        if (one != 0) status = one;
        if (!done || parsed->own.remove) continue;
        const std::string hidden = hidden_by(place, name, environment);
        if (!hidden.empty()) log::warn("{}: a shell does not find the link", hidden);
    }
    return status;
}

std::string links_help() {
    static constexpr cli::HelpSection kSections[] = {{cli::FlagGroup::other, "Options"}};
    return std::string(kLinks) + cli::sections(links_flags().flags(), kSections);
}

}  // namespace dtrun::commands
