#pragma once

#include <optional>
#include <string>

namespace dtrun::cli {

/// The folder of the documentation that belongs to a program: `share/doc/dtrun/docs` of the prefix that it is installed
/// below, or `docs` of the sources that it was built from, if one of them is there.
/// \param program  an absolute path without links, such as /usr/bin/dtrun
std::optional<std::string> documentation_of(const std::string& program);

/// `dtrun help docs`: where the documentation is, and which page is for what.
std::string docs_help();

}  // namespace dtrun::cli
