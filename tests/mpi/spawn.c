/* MPI_Comm_spawn, which dtrun refuses: it has to come back with an error, after which the ranks go on.
   Prints the error. */
#include "check.h"

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm parent, children;
    MPI_Comm_get_parent(&parent);
    CHECK(parent == MPI_COMM_NULL);
    /* For each rank by itself: of a whole world only the first hears of it from Open MPI 4, and the
       others wait for ever. */
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    const int error = MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF,
                                     &children, MPI_ERRCODES_IGNORE);
    CHECK(error != MPI_SUCCESS);
    say("spawn", error);
    ok("after spawn");
    MPI_Finalize();
    return 0;
}
