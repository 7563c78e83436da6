/* What MPI programs do with each other, one thing after another in one program. Prints "ok NAME"
   for each thing that worked. */
#include "check.h"

#include <stdlib.h>

enum { kCount = 4096 };

static int rank, size;

/* A value that only this sender and receiver, and place, have. */
static int value_of(int from, int to, int place) {
    return (from * 131 + to) * 8191 + place;
}

static void collectives(void) {
    static int mine[kCount], sum[kCount];
    for (int i = 0; i < kCount; ++i) mine[i] = rank * i;
    MPI_Allreduce(mine, sum, kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < kCount; ++i) CHECK(sum[i] == i * (size * (size - 1) / 2));

    double most = 0;
    MPI_Allreduce(&(double){1.5 * rank}, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    CHECK(most == 1.5 * (size - 1));

    for (int i = 0; i < kCount; ++i) mine[i] = rank == size - 1 ? value_of(rank, 0, i) : -1;
    MPI_Bcast(mine, kCount, MPI_INT, size - 1, MPI_COMM_WORLD);
    for (int i = 0; i < kCount; ++i) CHECK(mine[i] == value_of(size - 1, 0, i));

    int* all = malloc(sizeof(int) * kCount * size);
    for (int i = 0; i < kCount; ++i) mine[i] = value_of(rank, 1, i);
    MPI_Allgather(mine, kCount, MPI_INT, all, kCount, MPI_INT, MPI_COMM_WORLD);
    for (int from = 0; from < size; ++from)
        for (int i = 0; i < kCount; ++i) CHECK(all[from * kCount + i] == value_of(from, 1, i));
    free(all);
}

/* Small messages, and some that are larger than what is sent at once. */
static void all_to_all(void) {
    for (int count = 1; count <= 16384; count *= 128) {
        int* to = malloc(sizeof(int) * count * size);
        int* from = malloc(sizeof(int) * count * size);
        for (int other = 0; other < size; ++other)
            for (int i = 0; i < count; ++i) to[other * count + i] = value_of(rank, other, i);
        MPI_Alltoall(to, count, MPI_INT, from, count, MPI_INT, MPI_COMM_WORLD);
        for (int other = 0; other < size; ++other)
            for (int i = 0; i < count; ++i)
                CHECK(from[other * count + i] == value_of(other, rank, i));
        free(to);
        free(from);
    }
}

/* Even and odd ranks apart, then an intercommunicator between the two halves. */
static void halves(void) {
    MPI_Comm half, across;
    int here, there, half_rank, total;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    MPI_Comm_size(half, &here);
    MPI_Comm_rank(half, &half_rank);
    CHECK(here == (size + 1 - rank % 2) / 2);
    CHECK(half_rank == here - 1 - rank / 2); /* the key turns the order around */
    MPI_Allreduce(&rank, &total, 1, MPI_INT, MPI_SUM, half);
    CHECK(total == here * (here - 1) + rank % 2 * here);

    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank % 2 ? (size - 1) / 2 * 2 : size / 2 * 2 - 1,
                         5, &across);
    MPI_Comm_remote_size(across, &there);
    CHECK(there == size - here);
    MPI_Allreduce(&rank, &total, 1, MPI_INT, MPI_SUM, across); /* what the others have */
    CHECK(total == size * (size - 1) / 2 - (here * (here - 1) + rank % 2 * here));
    if (half_rank < there) { /* each with the one of the same place in the other half */
        int got = -1;
        if (half_rank < here)
            MPI_Sendrecv(&rank, 1, MPI_INT, half_rank, 6, &got, 1, MPI_INT, half_rank, 6, across,
                         MPI_STATUS_IGNORE);
        const int theirs = there - 1 - half_rank;
        CHECK(got == 2 * theirs + 1 - rank % 2);
    }
    MPI_Comm_free(&across);
    MPI_Comm_free(&half);
}

/* Memory that the ranks of a host share: each writes its part and reads its neighbour's. */
static void shared_memory(void) {
    MPI_Comm host;
    int local_rank, local_size, unit;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &local_rank);
    MPI_Comm_size(host, &local_size);
    MPI_Win window;
    int *mine, *theirs;
    MPI_Aint bytes;
    MPI_Win_allocate_shared(sizeof(int) * kCount, sizeof(int), MPI_INFO_NULL, host, &mine, &window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < kCount; ++i) mine[i] = value_of(local_rank, 2, i);
    MPI_Win_fence(0, window);
    const int neighbour = (local_rank + 1) % local_size;
    MPI_Win_shared_query(window, neighbour, &bytes, &unit, &theirs);
    CHECK(bytes == sizeof(int) * kCount && unit == sizeof(int));
    for (int i = 0; i < kCount; ++i) CHECK(theirs[i] == value_of(neighbour, 2, i));
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
    MPI_Comm_free(&host);
}

/* Put and Get between all with fences, Accumulate at rank 0 under a lock. The windows are whole pages:
   MPICH 4.0 misplaces others by some bytes. */
static void one_sided(void) {
    int* memory;
    MPI_Win window;
    MPI_Win_allocate(sizeof(int) * kCount, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory,
                     &window);
    for (int i = 0; i < kCount; ++i) memory[i] = 0;
    MPI_Win_fence(0, window);
    const int told = value_of(rank, 3, 0);
    for (int other = 0; other < size; ++other)
        MPI_Put(&told, 1, MPI_INT, other, rank, 1, MPI_INT, window);
    MPI_Win_fence(0, window);
    for (int other = 0; other < size; ++other) CHECK(memory[other] == value_of(other, 3, 0));
    int got = 0;
    MPI_Get(&got, 1, MPI_INT, (rank + 1) % size, (rank + 2) % size, 1, MPI_INT, window);
    MPI_Win_fence(0, window);
    CHECK(got == value_of((rank + 2) % size, 3, 0));

    for (int i = 0; i < 3; ++i) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        MPI_Accumulate(&rank, 1, MPI_INT, 0, size, 1, MPI_INT, MPI_SUM, window);
        MPI_Win_unlock(0, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    MPI_Get(&got, 1, MPI_INT, 0, size, 1, MPI_INT, window);
    MPI_Win_unlock(0, window);
    CHECK(got == 3 * (size * (size - 1) / 2));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_free(&window);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(size >= 2);
    collectives();
    ok("collectives");
    all_to_all();
    ok("alltoall");
    halves();
    ok("intercommunicator");
    shared_memory();
    ok("shared memory");
    one_sided();
    ok("one-sided");
    MPI_Finalize();
    return 0;
}
