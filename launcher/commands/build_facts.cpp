// Which libraries are in this dtrun. All of their headers are here, for their versions alone: whoever uses one of them
// wraps it elsewhere.
#include "launcher/commands/build_facts.h"

#include <dtrun_version.h>
#include <fmt/format.h>
#include <hwloc.h>
#include <libssh/libssh.h>
#include <openssl/crypto.h>
#include <spdlog/version.h>
#include <sqlite3.h>
#include <zlib.h>
#include <boost/version.hpp>
#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#endif

namespace dtrun::commands {
namespace {

/// 90102 in units of 100 is "9.1.2".
std::string version_of(unsigned number, unsigned unit) {
    return fmt::format("{}.{}.{}", number / (unit * unit), number / unit % unit, number % unit);
}

}  // namespace

std::string libraries_text() {
    return fmt::format("libssh {}, OpenSSL {}, SQLite {}, hwloc {}, yaml-cpp {}, zlib {}",
                       ::ssh_version(0), ::OpenSSL_version(OPENSSL_VERSION_STRING),
                       ::sqlite3_libversion(), HWLOC_VERSION, DTRUN_YAML_CPP_VERSION,
                       ::zlibVersion());
}

std::string build_text() {
    return fmt::format("{} {}, Boost {}.{}.{}, fmt {}, spdlog {}.{}.{}, {}{}{}", DTRUN_COMPILER,
                       DTRUN_COMPILER_VERSION, BOOST_VERSION / 100'000, BOOST_VERSION / 100 % 1'000,
                       BOOST_VERSION % 100, version_of(FMT_VERSION, 100), SPDLOG_VER_MAJOR,
                       SPDLOG_VER_MINOR, SPDLOG_VER_PATCH, DTRUN_BUILD_TYPE,
                       DTRUN_SANITIZED[0] != '\0' ? ", " : "", DTRUN_SANITIZED);
}

std::string c_library_text() {
#if defined(__GLIBC__)
    return fmt::format("glibc {}", ::gnu_get_libc_version());
#else
    return {};
#endif
}

}  // namespace dtrun::commands
