/* Which of several programs a rank runs, as MPI says, and what it was given. */
#include "check.h"

#include <stdlib.h>

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank, size, *program, has_program;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &program, &has_program);
    CHECK(has_program);
    const char* role = getenv("ROLE");
    printf("rank %d of %d, program %d, %s as %s\n", rank, size, *program, argv[argc - 1], role ? role : "nothing");
    MPI_Finalize();
    return 0;
}
