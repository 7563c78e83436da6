#include "base/signal_names.h"

#include <catch2/catch.hpp>
#include <csignal>
#include <set>
#include <string>

namespace dtrun {
namespace {

TEST_CASE("each signal that is not a real-time one has a name of its own", "[base]") {
    std::set<std::string_view> names;
    for (int signal = 1; signal < 32; ++signal) {
        CHECK(signal_name(signal).starts_with("SIG"));
        names.insert(signal_name(signal));
    }
    CHECK(names.size() == 31);
    CHECK(signal_name(SIGTERM) == "SIGTERM");
    CHECK(signal_name(SIGCHLD) == "SIGCHLD");
}

TEST_CASE("real-time signals and what is no signal have no name", "[base]") {
    for (const int signal : {-1, 0, 32, SIGRTMIN, SIGRTMAX, 65, 1000})
        CHECK(signal_name(signal).empty());
    CHECK(signal_text(SIGKILL) == "signal 9 (SIGKILL)");
    CHECK(signal_text(40) == "signal 40 (real-time)");
}

}  // namespace
}  // namespace dtrun
