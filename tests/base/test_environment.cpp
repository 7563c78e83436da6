#include "base/environment.h"
#include "tests/support/catch.h"

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>

namespace dtrun {
namespace {

std::string variable(const std::string& name) {
    const char* const value = std::getenv(name.c_str());
    return value == nullptr ? "not set" : value;
}

/// Reads a variable for as long as it lives, and counts how often that was not there.
class Reader {
public:
    explicit Reader(const std::string& name)
        : thread_([this, name] {
              do {
                  if (std::getenv(name.c_str()) == nullptr) ++missed;
                  ++read;
              } while (!over_);
          }) {}
    ~Reader() {
        over_ = true;
        thread_.join();
    }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

    std::atomic<long> read{0};
    std::atomic<long> missed{0};

private:
    std::atomic<bool> over_{false};
    std::thread thread_;
};

}  // namespace

TEST_CASE("variables are set, kept, replaced and removed", "[environment]") {
    set_variable("DTRUN_TEST_ONE", "a", IfSet::keep);
    set_variable("DTRUN_TEST_ONE_MORE", "b", IfSet::replace);
    CHECK(variable("DTRUN_TEST_ONE") == "a");
    set_variable("DTRUN_TEST_ONE", "c", IfSet::keep);
    CHECK(variable("DTRUN_TEST_ONE") == "a");
    set_variable("DTRUN_TEST_ONE", "c", IfSet::replace);
    CHECK(variable("DTRUN_TEST_ONE") == "c");
    set_variable("DTRUN_TEST_ONE", "", IfSet::replace);
    CHECK(variable("DTRUN_TEST_ONE").empty());
    unset_variable("DTRUN_TEST_ONE");
    unset_variable("DTRUN_TEST_ONE");
    CHECK(variable("DTRUN_TEST_ONE") == "not set");
    CHECK(variable("DTRUN_TEST_ONE_MORE") == "b");
    unset_variable("DTRUN_TEST_ONE_MORE");
}

TEST_CASE("the C library's own changes go on with what was set before", "[environment]") {
    set_variable("DTRUN_TEST_OURS", "a", IfSet::replace);
    ::setenv("DTRUN_TEST_THEIRS", "b", 1);
    set_variable("DTRUN_TEST_LAST", "c", IfSet::replace);
    CHECK(variable("DTRUN_TEST_OURS") == "a");
    CHECK(variable("DTRUN_TEST_THEIRS") == "b");
    CHECK(variable("DTRUN_TEST_LAST") == "c");
    ::setenv("DTRUN_TEST_OURS", "d", 1);
    CHECK(variable("DTRUN_TEST_OURS") == "d");
    for (const char* const name : {"DTRUN_TEST_OURS", "DTRUN_TEST_THEIRS", "DTRUN_TEST_LAST"}) {
        ::unsetenv(name);
        CHECK(variable(name) == "not set");
    }
}

// With setenv() in place of set_variable() this often ends by a segmentation fault (glibc 2.36).
TEST_CASE("variables change while other threads read theirs", "[environment]") {
    constexpr int kVariables = 2'000;
    ::setenv("DTRUN_TEST_STEADY", "here", 1);
    Reader reader("DTRUN_TEST_STEADY");
    while (reader.read == 0) std::this_thread::yield();
    for (int i = 0; i < kVariables; ++i)
        set_variable("DTRUN_TEST_" + std::to_string(i), "x", IfSet::replace);
    CHECK(variable("DTRUN_TEST_0") == "x");
    for (int i = 0; i < kVariables; ++i) unset_variable("DTRUN_TEST_" + std::to_string(i));
    CHECK(reader.read > 0);
    CHECK(reader.missed == 0);
    CHECK(variable("DTRUN_TEST_0") == "not set");
    ::unsetenv("DTRUN_TEST_STEADY");
}

TEST_CASE("threads that set variables at the same time lose none", "[environment]") {
    constexpr int kEach = 200;
    const auto set_all = [](const std::string& prefix) {
        for (int i = 0; i < kEach; ++i)
            set_variable(prefix + std::to_string(i), prefix, IfSet::replace);
    };
    std::thread other(set_all, "DTRUN_TEST_LEFT_");
    set_all("DTRUN_TEST_RIGHT_");
    other.join();
    for (const std::string prefix : {"DTRUN_TEST_LEFT_", "DTRUN_TEST_RIGHT_"})
        for (int i = 0; i < kEach; ++i) {
            const std::string name = prefix + std::to_string(i);
            if (variable(name) != prefix) FAIL_CHECK(name);
            unset_variable(name);
        }
}

}  // namespace dtrun
