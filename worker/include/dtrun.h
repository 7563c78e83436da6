/* dtrun's embedded client: who am I among the ranks of a job, what do the others say.
 *
 * C99. All functions are thread-safe unless they say otherwise: many threads may wait in calls on
 * one worker. No function raises SIGPIPE, changes signal handlers, or starts a thread, except that
 * a client of a `dtrun serve` daemon has one small thread for its heartbeats, and one while it asks
 * for the address of a name, rank 0 under srun one that serves the others, and dtrun_on_loss() one
 * that calls. A thread that is cancelled (pthread_cancel) in a call goes on until that returns, and
 * ends at its next cancellation point. After fork() the child has a connection of its own: it may
 * use the store and read its place, nothing else (DTRUN_FORKED).
 *
 * Timeouts are in milliseconds: 0 does not wait for anybody, negative (DTRUN_FOREVER) waits without a
 * limit. A call of the store ends at most two seconds after its timeout, with DTRUN_TIMED_OUT, also
 * when the other side does not answer at all: that is how long an answer may be late, to a timeout of
 * 0, too. Calls without a timeout take dtrun_options.call_timeout_ms at most, if that is given.
 * Functions return DTRUN_OK or another dtrun_code; then dtrun_error_text() says what happened and
 * results are as they were. A worker that is NULL is DTRUN_INVALID, or DTRUN_UNKNOWN, 0 or "" where a
 * function returns what is asked for. docs/PROTOCOL.md is the protocol behind them.
 */
#ifndef DTRUN_H
#define DTRUN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DTRUN_API __attribute__((visibility("default")))
#else
#define DTRUN_API
#endif

/* Values are part of the ABI: never reused. */
typedef enum dtrun_code {
    DTRUN_OK = 0,
    DTRUN_NOT_FOUND = 1,   /* no such key, and the call did not wait */
    DTRUN_TIMED_OUT = 2,   /* the timeout of the call has passed */
    DTRUN_STALE = 3,       /* this generation is over: dtrun_rejoin(), or end the process */
    DTRUN_CANCELLED = 4,   /* interrupted, and not done; or a fence that another rank gave up */
    DTRUN_REFUSED = 5,     /* by the other side: a limit, a wrong secret, another protocol */
    DTRUN_WRONG_TYPE = 6,  /* a queue where a value is expected or the other way round; no number */
    DTRUN_CLOSED = 7,      /* the connection is gone and will not come back */
    DTRUN_INVALID = 8,     /* an argument or a variable of the environment */
    DTRUN_NO_LAUNCHER = 9, /* nobody here serves a store */
    DTRUN_FORKED = 10,     /* not in a child of the rank's process */
    DTRUN_INTERNAL = 11,   /* out of memory, or a bug */
    DTRUN_PEER_LOST = 12   /* another rank is gone; of <dtrun_collectives.h> */
} dtrun_code;

/* A fact that the launcher does not tell. */
#define DTRUN_UNKNOWN UINT32_MAX
#define DTRUN_FOREVER INT64_C(-1)

/* Bytes of the caller, read during the call only. */
typedef struct dtrun_view {
    const void* data; /* may be NULL when size is 0 */
    size_t size;
} dtrun_view;

/* Bytes for the caller, who calls dtrun_free(data). `data` is never NULL, unless a function says
 * that NULL means "missing". A zero byte that `size` does not count stands behind them. */
typedef struct dtrun_bytes {
    void* data;
    size_t size;
} dtrun_bytes;

/* Several of them in one block: the caller calls dtrun_free(items) once, and nothing else. */
typedef struct dtrun_list {
    dtrun_bytes* items;
    size_t count;
} dtrun_list;

/* One process's membership of a job. */
typedef struct dtrun_worker dtrun_worker;

typedef struct dtrun_options {
    /* sizeof(dtrun_options), never 0: what lies behind has its default. A program whose header is newer
     * than the library may set nothing that the library does not know: DTRUN_INVALID. */
    size_t size;
    /* For dtrun_init to get a place. Negative (DTRUN_FOREVER, the default without options): what the
     * launcher grants, which is 60 s for an agent (in an elastic job no limit), 300 s under srun and
     * 610 s for a daemon, which collects ranks. INT64_MAX: no limit. */
    int64_t timeout_ms;
    /* For languages with a lock around their interpreter; each may be NULL. A call that waits
     * calls `unlock` first and `lock` with its result last. While it waits it calls `interrupted`,
     * locked, after a signal and every 200 ms; non-zero ends the call with DTRUN_CANCELLED. Python
     * has exactly these: PyEval_SaveThread, PyEval_RestoreThread, PyErr_CheckSignals. */
    void* (*unlock)(void);
    void (*lock)(void* unlocked);
    int (*interrupted)(void);
    /* 1: in an elastic job of dtrun (--min-np) this process can go on when hosts come, go and are
     * lost: it calls dtrun_rejoin() instead of being ended and started anew. 0, the default: it
     * cannot. Elsewhere it means nothing. */
    int elastic;
    /* Of a call that has no timeout of its own (dtrun_set(), dtrun_add(), ...): it ends with
     * DTRUN_TIMED_OUT. 0, the default, or less: it ends when it is answered, or the connection is gone
     * for good (DTRUN_CLOSED). */
    int64_t call_timeout_ms;
} dtrun_options;

/* ---- life ------------------------------------------------------------------------------------ */

/* Finds the launcher and takes this process's place among the ranks. Looks in this order:
 *   1. DTRUN_SOCKET                      dtrun's agent on this host
 *   2. SLURM_PROCID in a step            srun; its ranks serve themselves
 *   3. OMPI_COMM_WORLD_RANK              Open MPI's mpirun
 *   4. PMI_RANK                          MPICH's and Intel's mpiexec
 *   5. RANK, WORLD_SIZE                  torchrun
 *   6. nothing                           rank 0 of 1
 * Of 2 to 5 the innermost counts: mpirun and torchrun may have been started by srun.
 * DTRUN_SERVE=host:port, with DTRUN_JOB_NAME and DTRUN_SECRET_FILE or DTRUN_SECRET_FD, names a
 * `dtrun serve` daemon. With one of 2 to 5 it is the store of their ranks. Alone, or with
 * DTRUN_MIN_NP or DTRUN_MAX_NP, it hands out the ranks, and this process is a member with one.
 * docs/CLIENT.md has the details of every variable.
 *
 * Under srun without a daemon every rank must call it: it returns when all have come, at most 300 s
 * later if options grant no other time.
 *
 * options  NULL: all defaults
 * worker   set on success; end with dtrun_finalize()
 * Errors: INVALID (names the variable), TIMED_OUT, REFUSED, CLOSED, CANCELLED, INTERNAL. */
DTRUN_API int dtrun_init(const dtrun_options* options, dtrun_worker** worker);

/* Ends the membership and frees the worker. Calls that other threads have under way end with
 * DTRUN_CLOSED first; none may begin any more. NULL is allowed. A daemon is told that this rank is
 * done (no new generation begins), or with `failure` that it is lost to the others, and why; one
 * that hears nothing before the process ends takes the rank for lost. Under srun without a daemon
 * rank 0 waits until the others have ended theirs, unless it has failed itself. Under dtrun a rank
 * may open another worker, at any time; while it has none for more than a second, and its process
 * lives on, fences at which others wait fail after five to ten seconds, CANCELLED.
 * failure  NULL: all went well */
DTRUN_API void dtrun_finalize(dtrun_worker* worker, const char* failure);

/* A second handle on the same membership, through which the options' unlock, lock and interrupted
 * are not called: for a library below a program in such a language, and its threads. It is ended by
 * dtrun_finalize(shared, NULL), before `worker` is, and that does nothing else. */
DTRUN_API int dtrun_share(dtrun_worker* worker, dtrun_worker** shared);

/* A handle as this one, through which every key of the store has `prefix` before it: keys that are given, and
 * those that come back without it, also of dtrun_submit(). dtrun_count() counts all keys nevertheless, and
 * everything but the store is as without it. It is ended by dtrun_finalize(handle, NULL), before `worker` is. */
DTRUN_API int dtrun_prefix(dtrun_worker* worker, dtrun_view prefix, dtrun_worker** handle);

/* What the last failed call of this thread has to say, ready to be shown; "" if none has failed.
 * Valid until the next call of this thread. */
DTRUN_API const char* dtrun_error_text(void);

/* "timed out" and so on; "unknown" for other numbers. */
DTRUN_API const char* dtrun_code_name(int code);

/* Frees what a function has allocated; NULL is allowed. */
DTRUN_API void dtrun_free(void* data);

/* Of the library, such as "0.1.0". */
DTRUN_API const char* dtrun_version(void);

/* ---- place ----------------------------------------------------------------------------------- */

/* "dtrun", "dtrun serve", "slurm", "openmpi", "pmi", "torchrun" or "none". */
DTRUN_API const char* dtrun_launcher(const dtrun_worker* worker);
/* Id of the job, by its launcher, or DTRUN_JOB_NAME where a daemon hands out the ranks; "" when it has
 * none. Valid as long as the worker. */
DTRUN_API const char* dtrun_job(const dtrun_worker* worker);
/* What the user calls this host, else what it calls itself. Valid as long as the worker. */
DTRUN_API const char* dtrun_host_name(const dtrun_worker* worker);
/* Number of the membership, from 1; 0 when the launcher has none. dtrun_rejoin() changes it, and
 * what follows. */
DTRUN_API uint64_t dtrun_generation(const dtrun_worker* worker);

/* The words are those of Horovod and MPI. rank and world_size are always known, the others may be
 * DTRUN_UNKNOWN outside dtrun and Slurm. */
DTRUN_API uint32_t dtrun_rank(const dtrun_worker* worker);       /* among all */
DTRUN_API uint32_t dtrun_world_size(const dtrun_worker* worker); /* ranks of the job */
DTRUN_API uint32_t dtrun_local_rank(const dtrun_worker* worker); /* among those of this host */
DTRUN_API uint32_t dtrun_local_size(const dtrun_worker* worker); /* ranks on this host */
DTRUN_API uint32_t dtrun_cross_rank(const dtrun_worker* worker); /* of this host, among hosts that
                                                                    have this local rank */
DTRUN_API uint32_t dtrun_cross_size(const dtrun_worker* worker); /* number of those hosts */
DTRUN_API uint32_t dtrun_node_rank(const dtrun_worker* worker);  /* of this host, among all */
DTRUN_API uint32_t dtrun_node_count(const dtrun_worker* worker); /* hosts that have ranks */

/* ---- store ----------------------------------------------------------------------------------- */

/* Keys (at most 64 KiB) and values (at most 15.75 MiB) are any bytes. Each operation is done once
 * and in one piece, and all ranks see the same order. Each generation has its own store, empty at
 * its beginning. At most 64 operations of one worker that change something are under way at a time;
 * more of them wait for their turn. Those that wait for others (dtrun_pop(), dtrun_claim(), dtrun_lock()) take none
 * of these turns.
 *
 * Who is interrupted or runs out of time knows whether an operation that changes something was done: the
 * call asks the other side, for at most two seconds, and returns DTRUN_OK if it was. CANCELLED: it was
 * not. TIMED_OUT and CLOSED: the text ends "it may have been done" where nobody has said so.
 * Errors of all: NO_LAUNCHER, CLOSED, STALE, REFUSED, INVALID, CANCELLED, TIMED_OUT, INTERNAL;
 * WRONG_TYPE where queues and values meet; and those that are named. */

DTRUN_API int dtrun_set(dtrun_worker* worker, dtrun_view key, dtrun_view value);

/* The value, once it exists. NOT_FOUND: missing, and timeout_ms is 0. TIMED_OUT. */
DTRUN_API int dtrun_get(dtrun_worker* worker, dtrun_view key, int64_t timeout_ms,
                        dtrun_bytes* value);

/* Returns once all keys exist. TIMED_OUT. */
DTRUN_API int dtrun_wait(dtrun_worker* worker, const dtrun_view* keys, size_t count,
                         int64_t timeout_ms);

/* Adds to a decimal number; a missing key counts as 0. WRONG_TYPE: the value is no number.
 * sum  may be NULL */
DTRUN_API int dtrun_add(dtrun_worker* worker, dtrun_view key, int64_t delta, int64_t* sum);

/* Sets the value if it is the expected one.
 * expected  NULL: "missing"
 * was_set   1 or 0; may be NULL
 * now       the value after the call, data NULL if missing; may be NULL */
DTRUN_API int dtrun_compare_set(dtrun_worker* worker, dtrun_view key, const dtrun_view* expected,
                                dtrun_view desired, int* was_set, dtrun_bytes* now);

/* Appends to a value; a missing one counts as empty.
 * size  of the value now, in bytes; may be NULL */
DTRUN_API int dtrun_append(dtrun_worker* worker, dtrun_view key, dtrun_view value, uint64_t* size);

/* exist  1 if all keys exist, else 0 */
DTRUN_API int dtrun_exists(dtrun_worker* worker, const dtrun_view* keys, size_t count, int* exist);

/* existed  1 or 0; may be NULL */
DTRUN_API int dtrun_delete(dtrun_worker* worker, dtrun_view key, int* existed);

/* Deletes all keys and queues that begin with `prefix`.
 * count  of them; may be NULL */
DTRUN_API int dtrun_erase_prefix(dtrun_worker* worker, dtrun_view prefix, uint64_t* count);

/* Former names of dtrun_exists() and dtrun_delete(). */
DTRUN_API int dtrun_check(dtrun_worker* worker, const dtrun_view* keys, size_t count, int* exist);
DTRUN_API int dtrun_erase(dtrun_worker* worker, dtrun_view key, int* existed);

/* All values, in the order of the keys, once all exist. NOT_FOUND, TIMED_OUT as dtrun_get(). */
DTRUN_API int dtrun_multi_get(dtrun_worker* worker, const dtrun_view* keys, size_t count,
                              int64_t timeout_ms, dtrun_list* values);

/* Sets keys[i] to values[i], all at once; together at most 15.75 MiB. */
DTRUN_API int dtrun_multi_set(dtrun_worker* worker, const dtrun_view* keys,
                              const dtrun_view* values, size_t count);

/* Keys in order of their bytes that begin with `prefix` and come behind `after`.
 * limit  of their number, at least 1
 * more   1 if there are others behind them; may be NULL */
DTRUN_API int dtrun_list_keys(dtrun_worker* worker, dtrun_view prefix, dtrun_view after,
                              uint32_t limit, dtrun_list* keys, int* more);

/* Puts a value at the end of a queue; a queue exists while it is not empty, and what is claimed counts.
 * length  how many items nobody has claimed; may be NULL */
DTRUN_API int dtrun_push(dtrun_worker* worker, dtrun_view key, dtrun_view value, uint64_t* length);

/* Takes the oldest value of a queue, once there is one; each value goes to one caller, and any number of
 * threads may wait. NOT_FOUND, TIMED_OUT as dtrun_get(). */
DTRUN_API int dtrun_pop(dtrun_worker* worker, dtrun_view key, int64_t timeout_ms,
                        dtrun_bytes* value);

DTRUN_API int dtrun_length(dtrun_worker* worker, dtrun_view key, uint64_t* length);

/* Returns once the key's revision is not *revision; a missing key has revision 0. Sees the last
 * state of a key, but not every state. TIMED_OUT.
 * revision  in: the one that is known; out: of `value`
 * value     data NULL if missing */
DTRUN_API int dtrun_watch(dtrun_worker* worker, dtrun_view key, uint64_t* revision,
                          int64_t timeout_ms, dtrun_bytes* value);

/* Number of keys and queues. */
DTRUN_API int dtrun_count(dtrun_worker* worker, uint64_t* count);

/* ---- owners ---------------------------------------------------------------------------------- */

/* What is ephemeral, locked or claimed is the worker's, whichever handle, thread or library of the process has
 * asked for it. When the worker ends, or its process or machine, all that is its own goes at once: keys are
 * deleted, locks are free, claimed items come back. Under dtrun that is when its connection to the agent ends;
 * a daemon waits 3 s (its --heartbeat-timeout) for a broken connection to come back, and hears of a machine
 * that is gone after as long; it has four times as much patience with a process that stands still on a machine
 * that answers. A worker that comes back later has nothing any more: its locks were lost. A forked child
 * has a worker of its own. */

#define DTRUN_EPHEMERAL 1

/* As dtrun_set(), for a value that does not stay. Whoever sets it by dtrun_set() makes it stay; dtrun_append(),
 * dtrun_add() and dtrun_compare_set() leave it as it is.
 * flags   DTRUN_EPHEMERAL: it is this worker's
 * ttl_ms  after which it is deleted; 0 or less: it is not */
DTRUN_API int dtrun_put(dtrun_worker* worker, dtrun_view key, dtrun_view value, int flags,
                        int64_t ttl_ms);

/* Makes an ephemeral key once it is missing: who has waited longest gets it. So a key is a lock, and its value
 * tells who holds it; whoever wants to know who leads waits for the key, or watches it. A thread that locks a key
 * which its own worker holds waits, too. While it is held every write to the key is REFUSED, also its holder's; who
 * deletes the key breaks the lock. TIMED_OUT.
 * token  grows with every holder of this lock, over generations and restarts: see dtrun_transact(). The
 *        lock is held as long as it is the key's revision: dtrun_watch(), given it, returns when the lock is lost */
DTRUN_API int dtrun_lock(dtrun_worker* worker, dtrun_view key, dtrun_view value, int64_t timeout_ms,
                         uint64_t* token);

/* was_held  1; 0: it was lost before; may be NULL */
DTRUN_API int dtrun_unlock(dtrun_worker* worker, dtrun_view key, uint64_t token, int* was_held);

/* As dtrun_pop(), but the item stays this worker's until it says that it has done it. If it never does, since it
 * has died, the item comes back to where it was in the queue.
 * item  its number, for the next two */
DTRUN_API int dtrun_claim(dtrun_worker* worker, dtrun_view key, int64_t timeout_ms,
                          dtrun_bytes* value, uint64_t* item);

/* The item is done, and gone.
 * done  1; 0: it is not this worker's any more, somebody else does it again; may be NULL */
DTRUN_API int dtrun_acknowledge(dtrun_worker* worker, dtrun_view key, uint64_t item, int* done);

/* The item is for others. done  as above */
DTRUN_API int dtrun_give_back(dtrun_worker* worker, dtrun_view key, uint64_t item, int* done);

/* ---- several keys ---------------------------------------------------------------------------- */

typedef enum dtrun_condition_kind {
    DTRUN_IF_MISSING = 0,
    DTRUN_IF_EXISTS = 1,
    DTRUN_IF_VALUE = 2,   /* it is `value` */
    DTRUN_IF_REVISION = 3 /* it is `revision`: that of dtrun_watch(), or the token of a lock */
} dtrun_condition_kind;

typedef struct dtrun_condition {
    int kind; /* dtrun_condition_kind */
    dtrun_view key;
    dtrun_view value;
    uint64_t revision;
} dtrun_condition;

typedef enum dtrun_action_kind {
    DTRUN_DO_SET = 0,
    DTRUN_DO_DELETE = 1,
    DTRUN_DO_PUSH = 2,
    DTRUN_DO_ADD = 3 /* `value` is a decimal number */
} dtrun_action_kind;

typedef struct dtrun_action {
    int kind; /* dtrun_action_kind */
    dtrun_view key;
    dtrun_view value;
} dtrun_action;

/* If all conditions hold all actions are done, at one moment; else none. With DTRUN_IF_REVISION and the token of a
 * lock nobody writes who has lost it, however late. A key stands in one action at most. WRONG_TYPE: nothing was
 * done.
 * done    1 or 0
 * failed  index of the first condition that does not hold; may be NULL */
DTRUN_API int dtrun_transact(dtrun_worker* worker, const dtrun_condition* conditions,
                             size_t condition_count, const dtrun_action* actions,
                             size_t action_count, int* done, uint64_t* failed);

typedef enum dtrun_key_change_kind {
    DTRUN_KEY_SET = 0,
    DTRUN_KEY_DELETED = 1, /* or it was lost, has expired, or is an empty queue */
    DTRUN_KEY_QUEUE = 2    /* something was pushed, popped, claimed or given back */
} dtrun_key_change_kind;

typedef struct dtrun_key_change {
    uint64_t revision;
    int kind; /* dtrun_key_change_kind */
    dtrun_bytes key;
    dtrun_bytes value; /* of DTRUN_KEY_SET; else data is NULL */
} dtrun_key_change;

/* In one block: the caller calls dtrun_free(items) once, and nothing else. */
typedef struct dtrun_key_changes {
    dtrun_key_change* items;
    size_t count;
    int complete; /* 1: these are all keys there are; forget what you knew */
} dtrun_key_changes;

/* Every change of the keys under a prefix, in order, and none twice. Returns once there is one behind *revision. Who
 * knows nothing (0), or has been away for so long that changes are forgotten, or knows another generation, gets all
 * keys as they are now (`complete`), which is REFUSED where they have more than 15.75 MiB with their values.
 * TIMED_OUT, and *revision has gone on.
 * revision  in: up to which changes are known; out: up to which they are now
 * limit     of their number, if not complete; 0: none */
DTRUN_API int dtrun_watch_prefix(dtrun_worker* worker, dtrun_view prefix, uint64_t* revision,
                                 uint32_t limit, int64_t timeout_ms, dtrun_key_changes* changes);

/* ---- without a thread for each wait ----------------------------------------------------------- */

/* Each function of the store above as a request, which does not wait: DTRUN_OP_GET is dtrun_get(). */
typedef enum dtrun_store_operation {
    DTRUN_OP_SET = 1,
    DTRUN_OP_GET = 2,
    DTRUN_OP_WAIT = 3,
    DTRUN_OP_ADD = 4,
    DTRUN_OP_COMPARE_SET = 5,
    DTRUN_OP_APPEND = 6,
    DTRUN_OP_EXISTS = 7,
    DTRUN_OP_DELETE = 8,
    DTRUN_OP_MULTI_GET = 9,
    DTRUN_OP_MULTI_SET = 10,
    DTRUN_OP_LIST_KEYS = 11,
    DTRUN_OP_PUSH = 12,
    DTRUN_OP_POP = 13,
    DTRUN_OP_LENGTH = 14,
    DTRUN_OP_WATCH = 15,
    DTRUN_OP_COUNT = 16,
    DTRUN_OP_PUT = 20,
    DTRUN_OP_LOCK = 21,
    DTRUN_OP_UNLOCK = 22,
    DTRUN_OP_CLAIM = 23,
    DTRUN_OP_ACKNOWLEDGE = 24,
    DTRUN_OP_GIVE_BACK = 25,
    DTRUN_OP_ERASE_PREFIX = 26,
    DTRUN_OP_WATCH_PREFIX = 27,
    DTRUN_OP_TRANSACT = 28
} dtrun_store_operation;

/* What is asked: what the function of that operation takes, and nothing else; the rest is zero. */
typedef struct dtrun_submission {
    size_t size;            /* sizeof(dtrun_submission) */
    int operation;          /* dtrun_store_operation */
    int more;               /* 1: others follow at once. It may be sent with them, or by
                                dtrun_complete(), by one system call for many. 0: now */
    const dtrun_view* keys; /* the key, the prefix, or several keys */
    size_t key_count;
    const dtrun_view* values; /* of as many keys, or the value */
    size_t value_count;
    const dtrun_view* expected; /* COMPARE_SET; NULL: missing */
    dtrun_view after;           /* LIST_KEYS */
    int64_t delta;              /* ADD */
    uint64_t number;            /* WATCH, WATCH_PREFIX: the known revision; LIST_KEYS: the limit;
                                   UNLOCK: the token; ACKNOWLEDGE, GIVE_BACK: the item */
    uint32_t limit;             /* WATCH_PREFIX */
    int flags;                  /* PUT: DTRUN_EPHEMERAL or 0 */
    int64_t ttl_ms;             /* PUT */
    const dtrun_condition* conditions; /* TRANSACT */
    size_t condition_count;
    const dtrun_action* actions; /* TRANSACT */
    size_t action_count;
    int64_t timeout_ms; /* as the function's. Of an operation that has none: 0 or less is
                                   dtrun_options.call_timeout_ms */
    void* argument;     /* of the program, for the completion */
} dtrun_submission;

/* How a request has ended. */
typedef struct dtrun_completion {
    size_t size; /* sizeof(dtrun_completion), set by the caller */
    uint64_t id; /* of the request */
    void* argument;
    int operation;
    int code; /* dtrun_code. dtrun_error_text() says more, until this thread's next call */
    /* Results, as the function has them; what an operation does not have is zero. */
    int yes; /* COMPARE_SET: was set; EXISTS; DELETE: was there; LIST_KEYS: there are more; UNLOCK: was
                       held; ACKNOWLEDGE, GIVE_BACK, TRANSACT: done */
    int64_t number;    /* ADD: the sum; APPEND: the size; PUSH, LENGTH, COUNT, ERASE_PREFIX; WATCH,
                       WATCH_PREFIX: the revision; LOCK: the token; CLAIM: the item; TRANSACT: the condition
                       that has failed */
    dtrun_bytes value; /* GET, POP, CLAIM, WATCH, COMPARE_SET (now); dtrun_free(value.data) */
    dtrun_list items;  /* MULTI_GET, LIST_KEYS; dtrun_free(items.items) */
    dtrun_key_changes changes; /* WATCH_PREFIX; dtrun_free(changes.items) */
} dtrun_completion;

/* Asks, and does not wait for the other side: what that does not take yet is kept, and sent by
 * calls of any thread, by threads that wait in one, and when dtrun_event_fd() is polled and
 * dtrun_complete() called. (The first call of a forked child connects, which takes its time.) After
 * DTRUN_OK one completion comes for it, unless the worker is finalized before; otherwise none. All
 * is as with the function: changes are done exactly once, and in the order in which they were
 * submitted, 64 of them under way at a time and the others behind them; any number of other requests
 * may be under way. Who waits for one key and sets it by another request waits for nobody else.
 * id  for dtrun_cancel(); may be NULL
 * Errors: INVALID, NO_LAUNCHER, CLOSED, STALE, REFUSED. */
DTRUN_API int dtrun_submit(dtrun_worker* worker, const dtrun_submission* request, uint64_t* id);

/* The next request that has ended, each once, whatever its own code: DTRUN_OK. Any threads may call
 * it. The requests of synchronous calls are not among them. TIMED_OUT: none has ended, CANCELLED,
 * CLOSED (and all have been taken), NO_LAUNCHER. */
DTRUN_API int dtrun_complete(dtrun_worker* worker, int64_t timeout_ms,
                             dtrun_completion* completion);

/* Nobody waits for that request any more. Its completion comes all the same, once: CANCELLED if
 * it was not done; as it has ended otherwise; and TIMED_OUT with "it may have been done" when nobody says
 * so for two seconds. From any thread. NOT_FOUND: it has ended. */
DTRUN_API int dtrun_cancel(dtrun_worker* worker, uint64_t id);

/* ---- all ranks together ---------------------------------------------------------------------- */

/* Returns once every rank has called it with the same name (1 to 1,024 bytes) as often as this
 * one. It ends in the same way for every rank: when one gives up, all fail. A rank whose timeout
 * passes learns within ten more seconds how it ended for all. Under dtrun a rank's calls count, by
 * whatever process and worker of it; under another launcher and a daemon those of this worker.
 * Errors: TIMED_OUT (this rank's timeout; the text says who was missing, if anybody knows),
 * CANCELLED (another rank gave up or has ended; the text says who), FORKED, STALE, CLOSED,
 * NO_LAUNCHER, INVALID (the name, too many bytes, or another worker of this rank is at this fence:
 * nobody else's call fails by it). With one rank it needs no launcher. */
DTRUN_API int dtrun_barrier(dtrun_worker* worker, dtrun_view name, int64_t timeout_ms);

/* As dtrun_barrier(), and every rank gets the bytes of all, in order of rank. Together at most
 * 12 MiB. A barrier and a fence of one name count as the same. */
DTRUN_API int dtrun_fence(dtrun_worker* worker, dtrun_view name, dtrun_view bytes,
                          int64_t timeout_ms, dtrun_list* all);

/* Tells whoever watches the job how far this rank is. Cheap: does not wait for an answer.
 * step  whatever the program counts; grows
 * Errors: FORKED, CLOSED. Without dtrun nobody listens: DTRUN_OK. */
DTRUN_API int dtrun_progress(dtrun_worker* worker, uint64_t step);

/* ---- events ---------------------------------------------------------------------------------- */

typedef enum dtrun_event_kind {
    DTRUN_MEMBERSHIP = 1, /* a new generation is coming. A member of a daemon, and an elastic rank
                             of an elastic job, calls dtrun_rejoin(); any other rank of an agent
                             will be ended and started anew if it is to go on */
    DTRUN_SHUTDOWN = 2    /* the job is being ended: save what is to be saved */
} dtrun_event_kind;

typedef struct dtrun_event {
    int kind;            /* dtrun_event_kind; ignore others */
    uint64_t generation; /* that is coming, or that ends */
    uint32_t grace_ms;   /* time left until the process is killed; 0: not known */
    char* why;           /* dtrun_free() */
} dtrun_event;

/* The oldest event that nobody has taken yet. TIMED_OUT, CLOSED, FORKED, CANCELLED, NO_LAUNCHER
 * (there will be no events). */
DTRUN_API int dtrun_next_event(dtrun_worker* worker, int64_t timeout_ms, dtrun_event* event);

/* A descriptor to poll for reading along with others: when it is readable, call
 * dtrun_next_event(worker, 0, ...) if events are wanted, and dtrun_complete(worker, 0, ...) until it
 * says TIMED_OUT if something was submitted; either may still find nothing. It stays readable while
 * there is an event that nobody takes. Belongs to the worker; not to be read. NO_LAUNCHER: there will
 * be nothing. */
DTRUN_API int dtrun_event_fd(dtrun_worker* worker, int* fd);

/* ---- generations ----------------------------------------------------------------------------- */

/* Leaves this generation and takes a place in the next, which all ranks do: rank, size and all that
 * follows are new, the store is empty, and rounds of fences begin at 0. Fences and requests of other
 * threads end with DTRUN_STALE. A member of a daemon waits for the next generation to be announced
 * if it is not; a rank of an elastic job that leaves makes the others leave, too. After TIMED_OUT it
 * may be called again; its place may change before that, as it has left.
 * Errors: TIMED_OUT, FORKED, CANCELLED; CLOSED (the job ends, or goes on without this process);
 * REFUSED unless the launcher is "dtrun serve", or "dtrun" with an elastic job and
 * dtrun_options.elastic. */
DTRUN_API int dtrun_rejoin(dtrun_worker* worker, int64_t timeout_ms);

/* 1 if dtrun_rejoin() is not refused here, else 0, as in a forked child. */
DTRUN_API int dtrun_can_rejoin(const dtrun_worker* worker);

typedef enum dtrun_change_reason {
    DTRUN_CHANGE_JOINED = 1,   /* more slots are there */
    DTRUN_CHANGE_LEFT = 2,     /* slots are to be given up */
    DTRUN_CHANGE_LOST = 3,     /* a rank or a host is lost: nobody can finish this generation */
    DTRUN_CHANGE_RESTARTED = 4 /* all ranks are being ended, to start again */
} dtrun_change_reason;

/* What is known of the end of this generation: the one way to hear of it. Any number of threads may look
 * at it or wait for it, and it stays until dtrun_rejoin(). The event DTRUN_MEMBERSHIP and dtrun_on_loss()
 * are older ways that say the same, once. */
typedef struct dtrun_change {
    uint64_t generation; /* of this process */
    uint64_t next;       /* that is coming */
    uint64_t stop_step;  /* where ranks tell dtrun_progress() of their steps: leave before this one,
                            as all others do, so that nobody waits in it for a rank that has left.
                            0: none is agreed, leave now */
    int64_t deadline_ms; /* until which ranks may go on, as Unix time; 0: not known */
    int reason;          /* dtrun_change_reason; 0: not known */
} dtrun_change;

/* 1 if a change is coming, else 0. A look into memory that the agent shares with its ranks: no
 * system call, a few nanoseconds. Not while dtrun_finalize() runs.
 * change  set if there is one; may be NULL */
DTRUN_API int dtrun_change_pending(const dtrun_worker* worker, dtrun_change* change);

/* Returns when a change is coming. Errors: TIMED_OUT, CLOSED, FORKED, CANCELLED, NO_LAUNCHER.
 * change  may be NULL */
DTRUN_API int dtrun_wait_for_change(dtrun_worker* worker, int64_t timeout_ms, dtrun_change* change);

/* An older way to wait for a change whose reason is DTRUN_CHANGE_LOST; it will be there in the next version.
 * Has a function called when a rank of this generation is lost, by a thread of the library's own,
 * so that it can end what waits for that rank (ncclCommAbort, say). Once for each generation; at
 * once if this one is over already. Communicators of <dtrun_collectives.h> need none: they end by
 * themselves. Never called but in an elastic job of dtrun.
 * id  for dtrun_on_loss_end()
 * Errors: INVALID, FORKED, INTERNAL. */
DTRUN_API int dtrun_on_loss(dtrun_worker* worker, void (*lost)(void* argument), void* argument,
                            uint64_t* id);

/* The function is not called any more, and has returned. Not to be called from within it. */
DTRUN_API int dtrun_on_loss_end(dtrun_worker* worker, uint64_t id);

/* Grows with every generation: put it into the names of what you write outside of the job, such as
 * checkpoints, and never overwrite a name with a larger one. Then a process that was frozen, and
 * thaws when others have gone on without it, destroys nothing. */
DTRUN_API uint64_t dtrun_token(const dtrun_worker* worker);

/* ---- sections -------------------------------------------------------------------------------- */

/* This rank begins a part of its program that is not to take longer than limit_ms. If it does, dtrun
 * says so on its standard error, with rank, host and section, and kills the rank if it was told
 * --on-hang kill. Sections may lie within each other, and any thread may end one. Neither call waits
 * for an answer.
 * name  1 to 256 bytes; a rank is at most in 64 sections
 * Errors: INVALID, FORKED, CLOSED. Without an agent nobody watches: DTRUN_OK. */
DTRUN_API int dtrun_section(dtrun_worker* worker, dtrun_view name, int64_t limit_ms);
DTRUN_API int dtrun_section_end(dtrun_worker* worker, dtrun_view name);

/* All sections that this rank is in have their whole time again. */
DTRUN_API int dtrun_beat(dtrun_worker* worker);

/* ---- what a rank waits for ------------------------------------------------------------------- */

/* This rank has waited for waited_ms for something that may never come, such as an operation of which
 * others know nothing: for a library that finds that out, and has told the user. It is then on the job's
 * page, in `dtrun stacks` and `dtrun top`, and an event, until dtrun_stall_end() with the same text, or
 * the end of the worker. Ranks that say the same are told of together. Neither call waits for an answer.
 * what  1 to 1,024 bytes of text; a rank waits for at most 64 things
 * Errors: INVALID, FORKED, CLOSED. Without an agent nobody looks: DTRUN_OK. */
DTRUN_API int dtrun_stall(dtrun_worker* worker, dtrun_view what, int64_t waited_ms);
DTRUN_API int dtrun_stall_end(dtrun_worker* worker, dtrun_view what);

#ifdef __cplusplus
}
#endif
#endif
