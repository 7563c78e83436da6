/* starts COMMAND: every rank runs a command of the shell's between MPI_Init and MPI_Finalize, and then
   has to reach the others as before. Prints how it ended. */
#include <stdlib.h>
#include <sys/wait.h>
#include "check.h"

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    const int status = system(argv[1]);
    printf("command: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    int value = 0;
    for (int i = 0; i < 1000; ++i) MPI_Bcast(&value, 1, MPI_INT, i % 2, MPI_COMM_WORLD);
    ok("after the command");
    MPI_Finalize();
    return 0;
}
