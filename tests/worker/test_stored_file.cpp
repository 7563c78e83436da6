// How an agent in a cache vouches for its own file, and by which name it runs.
#include "worker/stored/stored_file.h"

#include "base/fd.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace dtrun {

using namespace agent;

namespace {

namespace fs = std::filesystem;
using Catch::Contains;

/// A cache with an agent in it.
class StoredAgent {
public:
    StoredAgent() {
        fs::create_directories(folder());
        std::ofstream(file()) << "the agent";
        mode(file(), 0700);
        mode(folder(), 0700);
    }
    fs::path folder() const { return home_.at("dtrun"); }
    fs::path file() const { return folder() / "agent-01"; }
    fs::path parent() const { return home_.path(); }
    bool vouches() const { return info(file()).st_mtim.tv_sec == kVouchedTime; }

    static struct stat info(const fs::path& path) {
        struct stat found {};
        REQUIRE(::stat(path.c_str(), &found) == 0);
        return found;
    }
    static void mode(const fs::path& path, mode_t mode) {
        REQUIRE(::chmod(path.c_str(), mode) == 0);
    }

private:
    TempDir home_;
};

}  // namespace

TEST_CASE("an agent in a cache vouches for its file until somebody writes to it", "[agent]") {
    const StoredAgent agent;
    const timespec read_last = StoredAgent::info(agent.file()).st_atim;
    REQUIRE(vouch_for(agent.file()).has_value());
    CHECK(agent.vouches());
    CHECK(StoredAgent::info(agent.file()).st_atim.tv_sec == read_last.tv_sec);
    CHECK(vouch_for(agent.file()).has_value());
    CHECK(agent.vouches());
    std::ofstream(agent.file(), std::ios::app) << "more";
    CHECK_FALSE(agent.vouches());
}

TEST_CASE("an agent that was installed, or built, vouches for nothing", "[agent]") {
    const StoredAgent agent;
    const fs::path installed = agent.folder() / "dtrun-agent";
    fs::rename(agent.file(), installed);
    StoredAgent::mode(agent.parent(), 0777);
    CHECK(close_to_others(installed).has_value());
    CHECK(vouch_for(installed).has_value());
    CHECK(StoredAgent::info(installed).st_mtim.tv_sec != kVouchedTime);
    CHECK(vouch_for(agent.file()).has_value());  // it has gone
}

TEST_CASE("an agent takes from others what they may do to its file and folder", "[agent]") {
    const StoredAgent agent;
    for (const auto& path : {agent.file(), agent.folder()})
        for (const mode_t mode : {0770, 0702, 0777}) {
            StoredAgent::mode(path, mode);
            CHECK(close_to_others(agent.file()).has_value());
            CHECK((StoredAgent::info(path).st_mode & 07777) == 0700);
        }
    CHECK_FALSE(agent.vouches());  // that takes the disk's time, which a job does not wait for
}

TEST_CASE("an agent whose folder others can replace vouches for nothing, and says so", "[agent]") {
    const StoredAgent agent;
    REQUIRE(vouch_for(agent.file()).has_value());
    StoredAgent::mode(agent.parent(), 0757);
    const auto refused = close_to_others(agent.file());
    REQUIRE_FALSE(refused.has_value());
    CHECK_THAT(refused.error().message, Contains("others could change the agent in ") &&
                                            Contains("may write to " + agent.parent().native()));
    CHECK_FALSE(agent.vouches());
    // The modes of a home with a group of the user's own, and of /tmp.
    for (const mode_t mode : {0775, 01777}) {
        StoredAgent::mode(agent.parent(), mode);
        CHECK(vouch_for(agent.file()).has_value());
        CHECK(agent.vouches());
    }
}

TEST_CASE("an agent that was started as an open file has its name and its words", "[agent]") {
    const int opened = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    const std::string program = fmt::format("/proc/self/fd/{}", opened);
    const auto lies_in_a_row = [](const std::vector<std::string>& words) {
        std::string row;
        for (const std::string& word : words) row += word + '\0';
        return row;
    };
    const std::string shown = lies_in_a_row({"/c/agent-01", "--node", "n1"});
    std::string row = lies_in_a_row({program, "--as", "/c/agent-01", "--node", "n1"});
    const std::size_t size = row.size();
    std::vector<char*> argv;
    for (std::size_t at = 0; at < size; at = row.find('\0', at) + 1) argv.push_back(&row[at]);
    int argc = static_cast<int>(argv.size());
    argv.push_back(nullptr);
    take_name(argc, argv.data());
    REQUIRE(argc == 3);
    CHECK(argv[0] == std::string("/c/agent-01"));
    CHECK(argv[1] == std::string("--node"));
    CHECK(argv[2] == std::string("n1"));
    CHECK(argv[3] == nullptr);
    CHECK(row == shown + std::string(size - shown.size(), '\0'));
    CHECK(::fcntl(opened, F_GETFD) == -1);
    take_words(argc, argv.data(), 1, 2);
    REQUIRE(argc == 1);
    CHECK(argv[0] == std::string("/c/agent-01"));
    CHECK(argv[1] == nullptr);
    CHECK(row.substr(0, 13) == std::string("/c/agent-01\0\0", 13));
    take_name(argc, argv.data());  // for others nothing changes
    CHECK(argc == 1);
    CHECK(argv[0] == std::string("/c/agent-01"));
}

}  // namespace dtrun
