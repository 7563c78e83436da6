// fake_launch RANKS PROGRAM [ARGUMENTS]: runs that many ranks of PROGRAM with a FakeServer as their
// agent. Exits with the highest status of theirs.

#include "tests/worker_client/fake_server.h"

#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    const auto ranks = static_cast<std::uint32_t>(std::atoi(argv[1]));
    const auto agent = dtrun::testing::FakeServer::agent(ranks);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        // Before fork(): the server's thread may hold the lock of the allocator.
        ::setenv("DTRUN_SOCKET", agent.address().c_str(), 1);
        ::setenv("DTRUN_RANK", std::to_string(rank).c_str(), 1);
        ::setenv("DTRUN_GENERATION", "1", 1);
        if (::fork() != 0) continue;
        ::execvp(argv[2], argv + 2);
        ::_exit(127);
    }
    int worst = 0;
    int status = 0;
    while (::wait(&status) > 0)
        worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return worst;
}
