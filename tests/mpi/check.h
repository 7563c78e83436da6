/* What the programs of this folder share. */
#pragma once

#include <mpi.h>
#include <stdio.h>
#include <string.h>

/* Ends the whole job, with 99, where something is not as it must be. */
#define CHECK(condition)                                                              \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            MPI_Abort(MPI_COMM_WORLD, 99);                                            \
        }                                                                             \
    } while (0)

/* Prints what an MPI function said, "WHAT: worked" or its error up to the first end of line. */
static inline void say(const char* what, int error) {
    char text[MPI_MAX_ERROR_STRING] = "worked";
    int length = 0;
    if (error != MPI_SUCCESS) MPI_Error_string(error, text, &length);
    text[strcspn(text, "\n")] = 0;
    printf("%s: %s\n", what, text);
    fflush(stdout);
}

/* Of one thing that worked; the barrier keeps a rank from ending well where another finds a fault. */
static inline void ok(const char* what) {
    MPI_Barrier(MPI_COMM_WORLD);
    printf("ok %s\n", what);
    fflush(stdout);
}
