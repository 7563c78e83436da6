// death_rank FILE SECONDS: a rank for `./dev bench death`. Rank 0 dies after SECONDS; the others wait
// for SIGTERM. At that moment each appends two 64-bit numbers to FILE: its rank, and ns since 1970.

#include <fcntl.h>
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace {

int report = -1;
int own_rank = 0;

/// Only calls that a signal handler may make.
void write_time() {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const long long record[2] = {own_rank, now.tv_sec * 1'000'000'000LL + now.tv_nsec};
    if (write(report, record, sizeof record) < 0) _exit(1);
}

void on_term(int) {
    write_time();
    _exit(0);
}

}  // namespace

int main(int argc, char** argv) {
    const char* rank = std::getenv("DTRUN_RANK");
    if (argc != 3 || rank == nullptr) return 2;
    own_rank = std::atoi(rank);
    report = open(argv[1], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (report < 0) return 1;
    std::signal(SIGTERM, on_term);
    if (own_rank != 0)
        for (;;) pause();
    sleep(static_cast<unsigned>(std::atoi(argv[2])));
    write_time();
    return 3;
}
