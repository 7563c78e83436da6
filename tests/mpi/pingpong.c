/* Latency and bandwidth between rank 0 and the last rank, as the OSU micro-benchmarks measure them:
   half of a round trip, and windows of messages with one answer to each. Medians of many samples.
   Prints "BYTES LATENCY_US MB_S" for each size.  usage: pingpong [SECONDS_PER_SIZE, default 0.1] */
#include "check.h"

#include <stdlib.h>

enum { kBytesMax = 4 << 20, kWindow = 16, kSamplesMax = 20000 };

static int rank, peer;
static char* data;
static double samples[kSamplesMax];

static int ascending(const void* a, const void* b) {
    const double difference = *(const double*)a - *(const double*)b;
    return (difference > 0) - (difference < 0);
}

static double median(int count) {
    qsort(samples, (size_t)count, sizeof(double), ascending);
    return samples[count / 2];
}

/* One round trip of `bytes` each way. */
static void round_trip(int bytes) {
    if (rank == 0) {
        MPI_Send(data, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
        MPI_Recv(data, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(data, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(data, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
    }
}

/* A window of messages one way, and an empty one back. */
static void window(int bytes) {
    MPI_Request requests[kWindow];
    MPI_Status statuses[kWindow];
    for (int i = 0; i < kWindow; ++i) {
        if (rank == 0)
            MPI_Isend(data, bytes, MPI_BYTE, peer, 2, MPI_COMM_WORLD, &requests[i]);
        else
            MPI_Irecv(data, bytes, MPI_BYTE, peer, 2, MPI_COMM_WORLD, &requests[i]);
    }
    MPI_Waitall(kWindow, requests, statuses);
    if (rank == 0)
        MPI_Recv(data, 0, MPI_BYTE, peer, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(data, 0, MPI_BYTE, peer, 3, MPI_COMM_WORLD);
}

/* The median seconds of one of these, over about `seconds`; 0 on the other rank. */
static double measure(void (*one)(int), int bytes, double seconds) {
    const double warm = MPI_Wtime();
    for (int i = 0; i < 10; ++i) one(bytes);
    int count = (int)(10 * seconds / (MPI_Wtime() - warm + 1e-7));
    if (count < 10) count = 10;
    if (count > kSamplesMax) count = kSamplesMax;
    if (rank == 0)
        MPI_Send(&count, 1, MPI_INT, peer, 4, MPI_COMM_WORLD);
    else
        MPI_Recv(&count, 1, MPI_INT, peer, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < count; ++i) {
        const double begin = MPI_Wtime();
        one(bytes);
        samples[i] = MPI_Wtime() - begin;
    }
    return rank == 0 ? median(count) : 0;
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(size >= 2);
    peer = rank == 0 ? size - 1 : 0;
    const double seconds = argc > 1 ? atof(argv[1]) : 0.1;
    if (rank == 0 || rank == size - 1) {
        data = malloc(kBytesMax);
        memset(data, 1, kBytesMax);
        measure(round_trip, 8, seconds);  // until both have a processor
        for (int bytes = 8; bytes <= kBytesMax; bytes *= 2) {
            const double latency = measure(round_trip, bytes, seconds / 2) / 2;
            const double rate = kWindow * (double)bytes / measure(window, bytes, seconds / 2);
            if (rank == 0) printf("%d %.2f %.1f\n", bytes, latency * 1e6, rate * 1e-6);
        }
        free(data);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
