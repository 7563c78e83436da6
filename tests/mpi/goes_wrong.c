/* Ranks that all meet, but for one that goes wrong: goes_wrong HOW RANK

     abort    calls MPI_Abort(MPI_COMM_WORLD, 7) while the others are in a barrier
     killed   gets SIGKILL in the middle of the others' allreduces
     exits    ends well after MPI_Init, without MPI_Finalize
     absent   ends well without ever calling MPI_Init
     dies     gets SIGKILL before MPI_Init, in which the others are
     code     ends with 3 after MPI_Finalize of all
     stays    nobody does: allreduces without an end

   "wrong SECONDS" on its standard output says when it went wrong, of the epoch; "met", that all ranks
   are in MPI. */
#include "check.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void wrong(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    printf("wrong %ld.%03ld\n", (long)now.tv_sec, now.tv_nsec / 1000000);
    fflush(stdout);
}

int main(int argc, char** argv) {
    if (argc != 3 || !getenv("DTRUN_RANK")) return 98;
    const char* how = argv[1];
    const int mine = atoi(getenv("DTRUN_RANK")) == atoi(argv[2]);
    if (mine && !strcmp(how, "absent")) {
        wrong();
        return 0;
    }
    if (mine && !strcmp(how, "dies")) {
        wrong();
        raise(SIGKILL);
    }
    MPI_Init(&argc, &argv);
    int total = 1;
    MPI_Barrier(MPI_COMM_WORLD);
    puts("met");
    fflush(stdout);
    if (mine && !strcmp(how, "abort")) {
        wrong();
        MPI_Abort(MPI_COMM_WORLD, 7);
    }
    if (mine && !strcmp(how, "exits")) {
        wrong();
        _exit(0);
    }
    const int killed = !strcmp(how, "killed");
    for (int i = 0; killed || !strcmp(how, "stays"); ++i) {
        MPI_Allreduce(&(int){1}, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        if (mine && killed && i == 100) {
            wrong();
            raise(SIGKILL);
        }
    }
    if (strcmp(how, "code")) MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    if (mine) wrong();
    return mine ? 3 : 0;
}
