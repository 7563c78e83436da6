/* Every rank adds its own number. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char** argv) {
    int rank, size, total;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Reduce(&rank, &total, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%d ranks: sum %d\n", size, total);
    MPI_Finalize();
    return 0;
}
