/* A rank that writes when it came out of MPI_Init, and into how large a world: two 64-bit numbers at
   its place in the file that it is told. The time is the monotonic clock's, in nanoseconds. */
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int64_t said[2] = {now.tv_sec * INT64_C(1000000000) + now.tv_nsec, size};
    const int file = argc > 1 ? open(argv[1], O_WRONLY | O_CREAT, 0666) : -1;
    if (pwrite(file, said, sizeof(said), rank * (off_t)sizeof(said)) != sizeof(said))
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Finalize();
    return 0;
}
