#pragma once

#include "base/result.h"
#include "launcher/cli/flags.h"
#include "launcher/plan/environment.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrun::commands {

/// `dtrun install-links`: links to this program, under the names of other launchers.
struct ParsedLinks : cli::ParsedArgs {
    struct {
        std::vector<std::string> operands;  ///< names
        std::string folder;                 ///< empty: see link_place()
        bool remove = false;
        bool force = false;
    } own;
};

/// Where links stand and what they lead to.
struct LinkPlace {
    std::string folder;
    std::string target;  ///< "dtrun" where that lies in the same folder, else the whole path
    std::string program;
};

/// \param program  the whole path of this program
/// \param folder   empty: the first of PATH that has a `dtrun` which is this program, else where it lies
LinkPlace link_place(const std::string& program, const std::string& folder,
                     plan::EnvironmentView environment);

/// Makes a link, or leaves one that leads to this program already. \return what was done, a line
/// \param force  whatever else has the name, unless it is a folder, is replaced
/// Errc: denied (something else has the name; the folder takes none), not_found (no such folder)
Result<std::string> make_link(const LinkPlace& place, std::string_view name, bool force);

/// Removes a link that leads to this program; what has the name otherwise is somebody else's, and stays.
/// \return what was done, a line. Errc: denied
Result<std::string> remove_link(const LinkPlace& place, std::string_view name);

/// Why a shell would start something else by that name; empty: it starts the link.
std::string hidden_by(const LinkPlace& place, std::string_view name,
                      plan::EnvironmentView environment);

const cli::FlagTable<ParsedLinks>& links_flags();
/// Errc: invalid_input (no name, or one that dtrun does not answer to)
Result<ParsedLinks> parse_links(cli::Words words);
/// \return the process's exit status
int run_links(cli::Words words, plan::EnvironmentView environment);
std::string links_help();

}  // namespace dtrun::commands
