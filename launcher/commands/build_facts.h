#pragma once

#include <string>

namespace dtrun::commands {

/// The libraries that this dtrun runs with, as they are here: "libssh 0.10.6, OpenSSL 3.0.15, ...".
std::string libraries_text();

/// What it was made with and how: "g++ 12.2.0, Boost 1.81, fmt 9.1.0, ..., Release".
std::string build_text();

/// "glibc 2.36": this machine's.
std::string c_library_text();

}  // namespace dtrun::commands
