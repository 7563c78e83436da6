#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace dtrun::collectives::nccl {
namespace {

/// Starts a program on the fake library, with its output in a file.
pid_t start(std::vector<std::string> words, const std::string& output) {
    words.insert(words.begin(), NCCL_RANKS);
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    std::vector<std::string> variables{"DTRUN_NCCL_LIBRARY=" FAKE_NCCL,
                                       "DTRUN_CUDART_LIBRARY=" FAKE_NCCL,
                                       "DTRUN_CODEC_CUDA_LIBRARY=" FAKE_NCCL, "PATH=/usr/bin:/bin"};
    std::vector<char*> environment;
    for (std::string& variable : variables) environment.push_back(variable.data());
    environment.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                       0644);
    ::posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t process = -1;
    ::posix_spawn(&process, NCCL_RANKS, &actions, nullptr, pointers.data(), environment.data());
    ::posix_spawn_file_actions_destroy(&actions);
    return process;
}

int end_of(pid_t process) {
    int status = 0;
    ::waitpid(process, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string text_of(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("a process that is killed in an operation ends it in the others", "[nccl]") {
    const TempDir folder;
    const TempDir output;
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < 3; ++rank)
        ranks.push_back(start({"--rank", std::to_string(rank), "--size", "3", "--folder",
                               folder.path(), "--die-after", "7"},
                              output.path() + "/" + std::to_string(rank)));
    for (const int rank : {0, 1, 2}) {
        const int code = end_of(ranks[static_cast<std::size_t>(rank)]);
        const std::string text = text_of(output.path() + "/" + std::to_string(rank));
        INFO("rank " << rank << ": " << text);
        if (rank == 1) {
            CHECK(code == 128 + 9);
            continue;
        }
        CHECK(code == 3);
        CHECK(text.find("remote process exited") != std::string::npos);
    }
}

TEST_CASE("the program for a real GPU works, by the fake one", "[nccl]") {
    const TempDir output;
    const std::string path = output.path() + "/output";
    const std::string json = output.path() + "/results";
    const int code = end_of(
        start({"--largest", "70000", "--ranks", "3", "--require-two", "--json", json}, path));
    const std::string text = text_of(path);
    INFO(text);
    CHECK(code == 0);
    CHECK(text.find("NCCL 2.28.9, 1 rank, connected in") != std::string::npos);
    CHECK(text.find("NCCL 2.28.9, 3 ranks, connected in") != std::string::npos);
    CHECK(text.find("compressed allreduce: int8") != std::string::npos);
    CHECK(text.find("SKIPPED") == std::string::npos);
    CHECK(text.find("did not work") == std::string::npos);
    const std::string results = text_of(json);
    INFO(results);
    CHECK(results.find(R"({"kind": "outcome", "ranks": 3, "one_gpu": false, "exit": 0})") !=
          std::string::npos);
    CHECK(results.find(R"("kind": "compressed", "format": "int8", "ranks": 3)") !=
          std::string::npos);
}

}  // namespace dtrun::collectives::nccl
