/* Collective operations of a job's ranks, over shared memory and TCP of dtrun's own, MPI, Gloo, NCCL
 * or oneCCL, with one interface.
 *
 * C99; link with dtrun_collectives and dtrun. A communicator is made by all ranks together; its
 * operations are called by all its ranks in the same order with the same arguments, the data aside.
 * Functions return DTRUN_OK or another dtrun_code; dtrun_comm_error_text() says what happened.
 *
 * Data are in host memory or, if the options say so, in memory of one GPU: the one that the options
 * name or, if they name none, the one that was current when the communicator was made or, if that
 * was GPU 0 (the default), the one whose number is the rank's local rank, which becomes current.
 * Operations come after what the caller's stream (dtrun_comm_set_stream()) was given before the
 * call, also those that are started and run later; an operation that has returned, or been waited
 * for, is over on the GPU, so that whatever any stream is given then comes after it. `in` and `out` may be the same where a
 * function says so; arrays that overlap otherwise are refused with INVALID, as are lists in which two do
 * (a tensor that is there twice, say). `count` is a number of elements and may be 0;
 * then the pointer may be NULL.
 *
 * Errors of all operations: PEER_LOST (the text names the rank), CANCELLED (dtrun_comm_abort()),
 * TIMED_OUT, INVALID (an argument, or ranks that disagree about the operation), INTERNAL, FORKED (in
 * a child that the rank has forked, where only dtrun_comm_free() does something). After an error
 * other than INVALID arguments the communicator is broken: free it, and make another, after
 * dtrun_rejoin() if the membership has changed.
 */
#ifndef DTRUN_COLLECTIVES_H
#define DTRUN_COLLECTIVES_H

#include <dtrun.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Values are part of the ABI. */
typedef enum dtrun_dtype {
    DTRUN_F32 = 0,
    DTRUN_F64 = 1,
    DTRUN_F16 = 2,
    DTRUN_BF16 = 3,
    DTRUN_I8 = 4,
    DTRUN_U8 = 5,
    DTRUN_I32 = 6,
    DTRUN_I64 = 7,
    /* The rest is only moved, so that ranks which have different types are told. Bools are reduced with MIN, MAX and
     * PRODUCT, too. */
    DTRUN_BOOL = 8,
    DTRUN_I16 = 9,
    DTRUN_U16 = 10,
    DTRUN_U32 = 11,
    DTRUN_U64 = 12,
    DTRUN_E4M3 = 13,
    DTRUN_E5M2 = 14
} dtrun_dtype;

typedef enum dtrun_reduce {
    DTRUN_SUM = 0,
    DTRUN_PRODUCT = 1,
    DTRUN_MIN = 2, /* NaN where any rank has NaN; but "nccl" loses NaNs, as NCCL does */
    DTRUN_MAX = 3, /* likewise */
    /* Integers are rounded towards zero. In host memory sums have room: of i8 and u8 as i32, of i32 as
     * i64, of f16 as f32, which also travel (but f16 in an allreduce of many elements between hosts);
     * those of i64 wrap around. With "nccl", sums of integers wrap around, and those of f16 can become
     * infinite where ranks are not a power of two. */
    DTRUN_AVERAGE = 4,
    DTRUN_ADASUM = 5 /* allreduce only, floating point only, host memory only */
} dtrun_reduce;

/* How f32, f16 and bf16 travel when they are compressed. Sums are f32. */
typedef enum dtrun_format {
    DTRUN_UNCOMPRESSED = 0,
    DTRUN_COMPRESS_F16 = 1,
    DTRUN_COMPRESS_BF16 = 2,
    DTRUN_COMPRESS_E4M3 = 3, /* 8-bit floats, a scale for each 256 of them */
    DTRUN_COMPRESS_E5M2 = 4,
    DTRUN_COMPRESS_INT8 = 5,
    DTRUN_COMPRESS_E4M3_UNSCALED = 6, /* to see training fail: small gradients become 0 */
    DTRUN_COMPRESS_E5M2_UNSCALED = 7
} dtrun_format;

/* One rank's part of a group of ranks that communicate. */
typedef struct dtrun_comm dtrun_comm;
/* An operation that is under way. */
typedef struct dtrun_request dtrun_request;

typedef struct dtrun_comm_options {
    size_t size; /* sizeof(dtrun_comm_options): what lies behind has its default */
    /* A backend's name, as docs/COLLECTIVES.md lists them; NULL, "" or "auto": DTRUN_BACKEND, else the
     * best for this memory that every rank has (dtrun_comm_why()) */
    const char* backend;
    int64_t timeout_ms; /* to make the communicator; 0: 300 s; DTRUN_FOREVER */
    /* Of one operation, a second or more; 0: none. A rank that is gone, and ranks that disagree about
     * a collective operation, are noticed without it. */
    int64_t operation_timeout_ms;
    /* Network interfaces or an address, separated by commas; NULL: DTRUN_NETWORK_INTERFACE, else
     * where the launcher reached this host. */
    const char* interfaces;
    int device_memory; /* 0: arrays are in host memory (default); 1: in memory of the GPU */
    /* 1 + the number of the GPU among those that this process sees; 0: none is named, see above */
    int device_plus_one;
    /* For a language with a lock around its interpreter, as in dtrun_options: operations of dtrun_comm_split() and
     * of all that follows "operations" call `unlock` first and `lock` with its result last. While they wait they call
     * `interrupted`, with the lock, some ten times a second; not 0: the operation ends, with CANCELLED here and
     * PEER_LOST on the others. It is asked by "dtrun" alone: what waits inside of another library cannot. */
    void* (*unlock)(void);
    void (*lock)(void* state);
    int (*interrupted)(void);
    /* Ranks of the job, this one among them, that make the communicator, and what each is in it: the first one is its
     * rank 0. NULL: all ranks of the job. */
    const uint32_t* ranks;
    size_t rank_count;
    /* What the communicator of these ranks is called, by all of them alike. No two of a job have the same name, also
     * not one after the other. With `ranks` alone, and needed there. */
    const char* name;
    /* For how long an operation waits until error output and dtrun_stall() tell which ranks have not come to it; then
     * each time that it has waited twice as long. Nothing is ended. 0: HOROVOD_STALL_CHECK_TIME_SECONDS, else 60 s;
     * below 0: never. Of more than 64 ranks 128 are asked at most. */
    int64_t stall_ms;
} dtrun_comm_options;

typedef struct dtrun_compression {
    size_t size;    /* sizeof(dtrun_compression) */
    int format;     /* dtrun_format */
    int stochastic; /* 0: round to nearest; 1: at random, unbiased */
    float* error;   /* NULL, or `count` floats of the caller, 0 at first and one buffer for each
                        tensor: what compression has cost this time is made good the next time, or
                        forgotten and set to 0 if a trial (below) lets that go in full. After a failed
                        call set it to 0: some of it was on its way */
    int policy;     /* 0: values that leave a host travel in this format where a trial in the first
                        calls has shown that this is faster, all others in full, which is exact
                        (default); 1: always, also on one host: to study a format. The same on
                        all ranks */
} dtrun_compression;

/* ---- life ------------------------------------------------------------------------------------ */

/* A communicator of all ranks of the worker's job and generation; they all call it, in the same
 * order if they make several. Or one of some ranks, as the options say, which these alone call, in any order. The
 * worker must outlive it.
 * options  NULL: all defaults
 * Errors: TIMED_OUT, NOT_FOUND (no such backend here, or several ranks and nobody who serves
 * a store), INVALID (also in a forked child), REFUSED (ranks ask for different backends),
 * PEER_LOST (also: the job or this membership is over), INTERNAL */
DTRUN_API int dtrun_comm_create(dtrun_worker* worker, const dtrun_comm_options* options,
                                dtrun_comm** comm);
/* Ranks of `parent` with the same colour make a communicator, ordered by key and then by rank in
 * `parent`; all of its ranks call it. A negative colour takes no part: *comm is NULL. */
DTRUN_API int dtrun_comm_split(dtrun_comm* parent, int32_t colour, int32_t key, dtrun_comm** comm);
/* Makes a communicator of the ranks of each host. */
DTRUN_API int dtrun_comm_split_by_host(dtrun_comm* parent, dtrun_comm** comm);
/* Waits for operations that were started. NULL is allowed. In the callback `interrupted`, which is inside of an
 * operation of this communicator, that operation ends with CANCELLED here and PEER_LOST on the others, and what
 * is left is freed when it returns: let the worker live until then. Other functions that would wait there, for
 * the same communicator, are refused with INVALID. */
DTRUN_API void dtrun_comm_free(dtrun_comm* comm);
/* How long an operation may take from now on, also one that is under way: as operation_timeout_ms. From any thread. */
DTRUN_API int dtrun_comm_set_operation_timeout(dtrun_comm* comm, int64_t timeout_ms);
/* Says in which stream of the GPU (a cudaStream_t or hipStream_t) this thread works on the arrays
 * that it gives to its following calls, until it says otherwise: they come after what that stream
 * has been given. NULL, and what holds for who never calls this: the legacy default stream. Does
 * nothing for arrays in host memory. */
DTRUN_API int dtrun_comm_set_stream(dtrun_comm* comm, void* stream);
/* Interrupts operations of all threads, with CANCELLED on this rank and PEER_LOST on the others;
 * may be called from any thread. With "mpi", which cannot be interrupted, it ends the ranks. */
DTRUN_API void dtrun_comm_abort(dtrun_comm* comm, const char* why);

DTRUN_API uint32_t dtrun_comm_rank(const dtrun_comm* comm);
DTRUN_API uint32_t dtrun_comm_size(const dtrun_comm* comm);
DTRUN_API const char* dtrun_comm_backend(const dtrun_comm* comm); /* valid as long as comm */
DTRUN_API const char* dtrun_comm_why(const dtrun_comm* comm);     /* why this backend; likewise */
/* "name: value" lines: version, transport, and whether GPUDirect is used and why not; likewise. */
DTRUN_API const char* dtrun_comm_facts(const dtrun_comm* comm);
/* The message of this thread's last failed call; valid until the next failed one. */
DTRUN_API const char* dtrun_comm_error_text(void);

/* ---- operations ------------------------------------------------------------------------------ */

/* compression  NULL, or f32, f16 (on a GPU f32 alone) or bf16 with sum or average
 * in == out is allowed */
DTRUN_API int dtrun_allreduce(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype,
                              int reduce, const dtrun_compression* compression);
/* Many arrays at once, in place: as fast as one that is as long as all of them together.
 * errors  NULL, or a buffer for error feedback (or NULL) for each array; compression->error is not
 *         looked at */
DTRUN_API int dtrun_allreduce_many(dtrun_comm* comm, void* const* arrays, const size_t* counts,
                                   size_t number, int dtype, int reduce,
                                   const dtrun_compression* compression, float* const* errors);
/* out  of the root; may be NULL elsewhere. in == out is allowed */
DTRUN_API int dtrun_reduce_to(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype,
                              int reduce, uint32_t root);
/* in     size * count elements
 * count  of each rank's part. `out` may be this rank's part of `in` */
DTRUN_API int dtrun_reduce_scatter(dtrun_comm* comm, const void* in, void* out, size_t count,
                                   int dtype, int reduce);
/* The same with compression, for host memory; sums are encoded once, and each rank's own host's values are
 * exact. compression->error has size * count floats */
DTRUN_API int dtrun_reduce_scatter_compressed(dtrun_comm* comm, const void* in, void* out,
                                              size_t count, int dtype, int reduce,
                                              const dtrun_compression* compression);
DTRUN_API int dtrun_broadcast(dtrun_comm* comm, void* data, size_t count, int dtype, uint32_t root);
/* count  of each rank's part; `in` may be this rank's part of `out` */
DTRUN_API int dtrun_allgather(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype);
/* The same with compression, for host memory; all ranks get the same bits. compression->error has `count`
 * floats */
DTRUN_API int dtrun_allgather_compressed(dtrun_comm* comm, const void* in, void* out, size_t count,
                                         int dtype, const dtrun_compression* compression);
/* counts  of each rank's part, the same on all ranks */
DTRUN_API int dtrun_allgatherv(dtrun_comm* comm, const void* in, void* out, const size_t* counts,
                               int dtype);
/* out  of the root, size * count elements; `in` may be its part of it */
DTRUN_API int dtrun_gather(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype,
                           uint32_t root);
/* in  of the root, size * count elements; `out` may be its part of it */
DTRUN_API int dtrun_scatter(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype,
                            uint32_t root);
/* count  for each rank; in and out have size * count elements and do not overlap */
DTRUN_API int dtrun_alltoall(dtrun_comm* comm, const void* in, void* out, size_t count, int dtype);
/* Between two ranks, messages arrive in the order in which they are sent. Not to oneself. */
DTRUN_API int dtrun_send(dtrun_comm* comm, const void* data, size_t count, int dtype, uint32_t to);
DTRUN_API int dtrun_recv(dtrun_comm* comm, void* data, size_t count, int dtype, uint32_t from);
/* Sends and receives at once; in and out do not overlap. */
DTRUN_API int dtrun_sendrecv(dtrun_comm* comm, const void* out, size_t out_count, uint32_t to,
                             void* in, size_t in_count, uint32_t from, int dtype);
DTRUN_API int dtrun_comm_barrier(dtrun_comm* comm);

/* ---- asynchronous ---------------------------------------------------------------------------- */

/* Starts a dtrun_allreduce() that runs while the caller computes. Operations of a communicator are
 * done one after the other in the order of their calls. Arrays stay untouched until
 * dtrun_request_wait(). */
DTRUN_API int dtrun_allreduce_start(dtrun_comm* comm, const void* in, void* out, size_t count,
                                    int dtype, int reduce, const dtrun_compression* compression,
                                    dtrun_request** request);
DTRUN_API int dtrun_allgather_start(dtrun_comm* comm, const void* in, void* out, size_t count,
                                    int dtype, dtrun_request** request);
DTRUN_API int dtrun_broadcast_start(dtrun_comm* comm, void* data, size_t count, int dtype,
                                    uint32_t root, dtrun_request** request);
DTRUN_API int dtrun_reduce_scatter_start(dtrun_comm* comm, const void* in, void* out, size_t count,
                                         int dtype, int reduce, dtrun_request** request);
/* In the callback `interrupted` of an operation of the same communicator, which is before it: INVALID, with
 * done 0, and the request is as it was.
 * done  1: the operation is over, the result is its own, and the request is freed; 0, with
 *       TIMED_OUT: it goes on, wait again. May be NULL with DTRUN_FOREVER */
DTRUN_API int dtrun_request_wait(dtrun_request* request, int64_t timeout_ms, int* done);

#ifdef __cplusplus
}
#endif
#endif
