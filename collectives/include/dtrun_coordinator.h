/* Named operations that each rank may ask for in its own order, as a training loop does whose
 * layers finish in another order on every rank: what all ranks have asked for is done, small
 * allreduces together. It is what dtrun.torch, Horovod's interface, stands on.
 *
 * C99; link with dtrun_collectives and dtrun. There is no master: a thread of each rank tells the
 * others what is new at it, and comes to the same decisions as theirs. While nothing is pending at
 * a rank, that thread sleeps.
 *
 * Functions return DTRUN_OK or another dtrun_code; dtrun_coordinator_error_text() says what
 * happened. Any thread may call them. Arrays are in host memory.
 */
#ifndef DTRUN_COORDINATOR_H
#define DTRUN_COORDINATOR_H

#include <dtrun_collectives.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Values are part of the ABI. */
typedef enum dtrun_operation {
    DTRUN_OP_ALLREDUCE = 0,
    DTRUN_OP_ALLGATHER = 1, /* ranks may have different numbers of rows */
    DTRUN_OP_BROADCAST = 2,
    DTRUN_OP_ALLTOALL = 3,       /* of rows, as many to each rank as it likes */
    DTRUN_OP_REDUCE_SCATTER = 4, /* of rows; the first ranks get one more if they do not divide */
    DTRUN_OP_BARRIER = 5,
    DTRUN_OP_JOIN = 6 /* this rank has no more data: it adds zeros until all have joined */
} dtrun_operation;

/* One rank's part of a group of ranks that agree about operations. */
typedef struct dtrun_coordinator dtrun_coordinator;
/* What an operation has made, beside what it has written to its arrays. */
typedef struct dtrun_outcome dtrun_outcome;

typedef struct dtrun_coordinator_options {
    size_t size; /* sizeof(dtrun_coordinator_options) */
    size_t
        fused_bytes; /* allreduces are put together up to that, the least of all ranks'; 0: 64 MiB */
    int64_t delay_us; /* wait for more before others are told, 0 (default): not at all */
    /* An operation that some rank has not asked for is told on the first rank's standard error
     * after the first time, and everything fails with TIMED_OUT after the second one; the least of
     * all ranks' times; a join is never given up. Over other backends than "dtrun" a rank with
     * nothing pending is not heard of: others then tell, in dtrun_coordinator_wait(), that they
     * wait, and go on. */
    int64_t stall_warning_ms;  /* 0: 60 s; below 0: never, and no shutdown either */
    int64_t stall_shutdown_ms; /* 0: never */
    const uint32_t*
        ranks; /* what messages call the ranks of `comm`, by rank; NULL: their numbers */
} dtrun_coordinator_options;

typedef struct dtrun_tensor {
    const void* in;
    void* out;    /* of allreduce, broadcast and reduce-scatter; may be `in` of the first two */
    float* error; /* for error feedback, see dtrun_compression, or NULL */
    int dtype;
    uint32_t dimensions; /* of `shape`; 0: one element */
    const int64_t* shape;
} dtrun_tensor;

typedef struct dtrun_task {
    size_t size;      /* sizeof(dtrun_task) */
    const char* name; /* the same on all ranks; at one time, each is used once */
    int operation;    /* dtrun_operation */
    int reduce;       /* dtrun_reduce, of allreduce and reduce-scatter */
    uint32_t root;    /* of broadcast */
    double prescale;  /* of reductions: factors for what goes in ... */
    double postscale; /* ... and for what comes out; 0 counts as 1, -0.0 is nothing of it */
    int format;       /* dtrun_format, of allreduce of f32 with sum or average */
    int stochastic;
    const dtrun_tensor* tensors; /* none is done before all ranks have all; barrier, join: none */
    size_t number;
    const int64_t* splits; /* of all-to-all: rows for each rank; NULL: the same for each */
} dtrun_task;

/* Takes `comm` over: nothing else may use it, and it is freed with the coordinator.
 * options  NULL: all defaults */
DTRUN_API int dtrun_coordinator_create(dtrun_comm* comm, const dtrun_coordinator_options* options,
                                       dtrun_coordinator** coordinator);
/* Fails what is pending with CANCELLED here; if something was, other ranks get PEER_LOST. NULL is
 * allowed. */
DTRUN_API void dtrun_coordinator_free(dtrun_coordinator* coordinator);

/* Returns at once; arrays stay untouched until the operation is over.
 * Errors: INVALID (an argument; the name is in use), FORKED, and what has ended the coordinator */
DTRUN_API int dtrun_coordinator_submit(dtrun_coordinator* coordinator, const dtrun_task* task,
                                       uint64_t* handle);
/* 1: the operation is over. A look into memory. */
DTRUN_API int dtrun_coordinator_poll(dtrun_coordinator* coordinator, uint64_t handle);
/* Waits for an operation and returns what has become of it; then its handle is not valid any more.
 * done     1: it is over; 0, with TIMED_OUT: it goes on, wait again
 * outcome  NULL, or set to what the caller frees, if it is over and well
 * Errors: INVALID (ranks disagree about it: the text has both wishes; a joined rank has no data
 * for it; no such handle), PEER_LOST, CANCELLED, TIMED_OUT (it goes on, or the shutdown time is
 * over: see done), INTERNAL, FORKED */
DTRUN_API int dtrun_coordinator_wait(dtrun_coordinator* coordinator, uint64_t handle,
                                     int64_t timeout_ms, int* done, dtrun_outcome** outcome);
/* The message of this thread's last failed call; valid until the next failed one. */
DTRUN_API const char* dtrun_coordinator_error_text(void);

/* The result of allgather or all-to-all for tensor `index`: rows of all ranks one behind the other,
 * NULL if there are none. Valid as long as the outcome. */
DTRUN_API void* dtrun_outcome_data(dtrun_outcome* outcome, size_t index);
/* How many of those rows rank `rank` has sent. */
DTRUN_API int64_t dtrun_outcome_rows(dtrun_outcome* outcome, size_t index, uint32_t rank);
/* Of join: the rank that came last. */
DTRUN_API uint32_t dtrun_outcome_last_joined(dtrun_outcome* outcome);
DTRUN_API void dtrun_outcome_free(dtrun_outcome* outcome);

#ifdef __cplusplus
}
#endif
#endif
