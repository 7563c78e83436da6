/* Rank 0 publishes a port, the last rank looks it up, rank 0 takes it back. Prints what came of each,
   "worked" or the error. */
#include "check.h"

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    char port[MPI_MAX_PORT_NAME] = "", found[MPI_MAX_PORT_NAME] = "";
    int published = MPI_SUCCESS;
    if (rank == 0) {
        MPI_Open_port(MPI_INFO_NULL, port);
        published = MPI_Publish_name("dtrun-test", MPI_INFO_NULL, port);
        say("publish", published);
    }
    MPI_Bcast(port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, MPI_COMM_WORLD);
    MPI_Bcast(&published, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (published == MPI_SUCCESS && rank == size - 1) {
        const int error = MPI_Lookup_name("dtrun-test", MPI_INFO_NULL, found);
        say("lookup", error);
        CHECK(error != MPI_SUCCESS || strcmp(port, found) == 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    /* The port stays open: MPI_Close_port of MPICH 4.0 is a segmentation fault. */
    if (rank == 0 && published == MPI_SUCCESS)
        say("unpublish", MPI_Unpublish_name("dtrun-test", MPI_INFO_NULL, port));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == size - 1 && published == MPI_SUCCESS)
        say("lookup again", MPI_Lookup_name("dtrun-test", MPI_INFO_NULL, found));
    ok("after names");
    MPI_Finalize();
    return 0;
}
