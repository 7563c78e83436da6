/* What crosses between libdtrun_collectives and a plug-in, which may have another C++ library inside: C99 alone.
 *
 * A plug-in is a file libdtrun_backend_NAME.so with one function, dtrun_backend_plugin(). A plug-in in C++ does not
 * write it: it is a Group (group.h) and one line (plugin.h). No exception leaves a function of either side.
 *
 * Whoever has allocated memory frees it. What a pointer leads to is read during the call, unless it says otherwise;
 * texts are UTF-8, not terminated, and are given to a sink, which copies them before it returns.
 *
 * Functions return DTRUN_PLUGIN_OK, or another code after they have put a message into `error`, which is never NULL.
 * `type` and `reduce` are dtrun_dtype and dtrun_reduce of <dtrun_collectives.h>.
 *
 * What is added comes last in a struct that has a size, and may be missing in a file that is older. Anything else is a
 * new DTRUN_PLUGIN_ABI.
 */
#ifndef DTRUN_PLUGIN_ABI_H
#define DTRUN_PLUGIN_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Up to 5 what crossed was C++, in 6 each operation was a function of its own. */
#define DTRUN_PLUGIN_ABI 7u
/* Of what ranks send each other: kProtocol of choose.h. */
#define DTRUN_PLUGIN_PROTOCOL 5u

/* The codes of dtrun::Errc, and 0. */
typedef enum dtrun_plugin_code {
    DTRUN_PLUGIN_OK = 0,
    DTRUN_PLUGIN_INVALID_INPUT = 1,
    DTRUN_PLUGIN_NOT_FOUND = 2,
    DTRUN_PLUGIN_TIMED_OUT = 3,
    DTRUN_PLUGIN_UNREACHABLE = 4,
    DTRUN_PLUGIN_DENIED = 5,
    DTRUN_PLUGIN_CLOSED = 6,
    DTRUN_PLUGIN_CANCELLED = 7,
    DTRUN_PLUGIN_INTERNAL = 8
} dtrun_plugin_code;

typedef struct dtrun_plugin_text {
    const char* data; /* may be NULL when size is 0 */
    size_t size;
} dtrun_plugin_text;

/* Takes texts: call put(to, text). */
typedef struct dtrun_plugin_sink {
    void* to;
    void (*put)(void* to, dtrun_plugin_text text);
} dtrun_plugin_sink;

/* ---- what a plug-in is given ------------------------------------------------------------------ */

typedef struct dtrun_plugin_pair {
    dtrun_plugin_text key;
    dtrun_plugin_text value;
} dtrun_plugin_pair;

/* KeyStore of key_store.h. By any thread. */
typedef struct dtrun_plugin_store {
    size_t size; /* sizeof(dtrun_plugin_store) */
    void* store; /* the first argument of what follows */
    int (*set)(void* store, const dtrun_plugin_pair* pairs, size_t number,
               const dtrun_plugin_sink* error);
    /* Puts as many values as there are keys, in their order, or none. */
    int (*get)(void* store, const dtrun_plugin_text* keys, size_t number, int64_t timeout_ms,
               const dtrun_plugin_sink* values, const dtrun_plugin_sink* error);
    /* Puts the value if there is one. */
    int (*find)(void* store, dtrun_plugin_text key, const dtrun_plugin_sink* value,
                const dtrun_plugin_sink* error);
} dtrun_plugin_store;

/* GroupSpec of group.h, where the members are explained. */
typedef struct dtrun_plugin_spec {
    size_t size; /* sizeof(dtrun_plugin_spec) */
    uint32_t rank;
    uint32_t ranks;
    const uint32_t* members;         /* `ranks` of them, as of the next */
    const uint32_t* host_of;         /* equal numbers share a host */
    const dtrun_plugin_store* store; /* outlives the group; NULL: there is none */
    dtrun_plugin_text prefix;
    int64_t timeout_ms;
    const dtrun_plugin_text* interfaces;
    size_t interface_count;
    dtrun_plugin_text address;
    uint32_t local_rank;
    int32_t gpu;
    uint32_t encrypt; /* 0 or 1 */
    uint32_t reserved;
    uint64_t generation;
    int (*interrupted)(void* caller); /* may be NULL; outlives the group */
    void* caller;
} dtrun_plugin_spec;

/* ---- what a group takes ----------------------------------------------------------------------- */

/* The rows of operations.def, where it stands what `in` and `out` have to be. */
typedef enum dtrun_plugin_kind {
    DTRUN_PLUGIN_ALLREDUCE = 1,
    DTRUN_PLUGIN_REDUCE = 2,
    DTRUN_PLUGIN_REDUCE_SCATTER = 3,
    DTRUN_PLUGIN_BROADCAST = 4,
    DTRUN_PLUGIN_ALLGATHER = 5,
    DTRUN_PLUGIN_ALLGATHERV = 6,
    DTRUN_PLUGIN_GATHER = 7,
    DTRUN_PLUGIN_SCATTER = 8,
    DTRUN_PLUGIN_ALLTOALL = 9,
    DTRUN_PLUGIN_BARRIER = 10
} dtrun_plugin_kind;

/* Operation of operation.h. What is only moved comes as bytes: `type` is DTRUN_U8. */
typedef struct dtrun_plugin_operation {
    size_t size; /* sizeof(dtrun_plugin_operation) */
    uint32_t kind;
    uint32_t type;
    uint32_t reduce;
    uint32_t root;
    const void* in;
    void* out;
    size_t count;         /* of elements of one rank's part */
    const size_t* counts; /* of each rank's part, `parts` of them: of an allgatherv alone */
    size_t parts;
} dtrun_plugin_operation;

typedef struct dtrun_plugin_send {
    uint32_t peer;
    const void* data;
    size_t bytes;
} dtrun_plugin_send;

typedef struct dtrun_plugin_receive {
    uint32_t peer;
    void* data;
    size_t bytes;
} dtrun_plugin_receive;

typedef struct dtrun_plugin_array {
    void* data;
    size_t count;
    float* error;
} dtrun_plugin_array;

typedef struct dtrun_plugin_segment {
    const float* in;
    float* out;
    size_t count;
    float* error;
} dtrun_plugin_segment;

typedef struct dtrun_plugin_compression {
    uint32_t format;   /* dtrun_format of <dtrun_collectives.h> */
    uint32_t rounding; /* 0: nearest, 1: stochastic */
    uint32_t policy;   /* 0: automatic, 1: always */
    uint32_t reserved;
    float* error;
} dtrun_plugin_compression;

/* Takes names and values of a report. */
typedef struct dtrun_plugin_facts {
    void* to;
    void (*put)(void* to, dtrun_plugin_text name, dtrun_plugin_text value);
} dtrun_plugin_facts;

/* ---- what a plug-in is ------------------------------------------------------------------------- */

/* The functions of Group (group.h says what they do), of Pending, and of marks. Those that may be NULL say so. */
typedef struct dtrun_plugin_calls {
    size_t size; /* sizeof(dtrun_plugin_calls) */

    void (*free)(void* group);
    /* By any thread, while another one is in a call. */
    void (*abort)(void* group);
    /* Puts "version", "transport", and then whatever else there is. */
    void (*facts)(void* group, const dtrun_plugin_facts* facts);
    /* Whether data are in memory of the GPU: 0 or 1, always the same. NULL: 0 */
    int (*on_device)(void* group);
    /* Whether allreduce_many() takes small arrays as one: likewise. NULL: what on_device() says */
    int (*fuses)(void* group);
    /* \return 1 once it is known which rank was lost, 0 else. NULL: it never is */
    int (*lost)(void* group, uint32_t* rank);
    void (*expect)(void* group, uint64_t call); /* NULL: nothing is kept apart */

    /* An operation of all ranks. \return DTRUN_PLUGIN_NOT_FOUND if there is none of this kind, and nothing was begun: the
     * library makes it of messages where there is a way, which there is for all that only move data but broadcasts
     * and barriers. */
    int (*run)(void* group, const dtrun_plugin_operation* what, const dtrun_plugin_sink* error);
    /* NULL: an allreduce of each */
    int (*allreduce_many)(void* group, const dtrun_plugin_array* arrays, size_t number,
                          uint32_t type, uint32_t reduce, const dtrun_plugin_sink* error);
    /* NULL: it is refused */
    int (*allreduce_compressed)(void* group, const dtrun_plugin_segment* segments, size_t number,
                                uint32_t reduce, const dtrun_plugin_compression* compression,
                                uint64_t call, const dtrun_plugin_sink* error);
    /* NULL: an allgather */
    int (*allgather_on_host)(void* group, const void* in, void* out, size_t bytes,
                             const dtrun_plugin_sink* error);

    /* Begins messages, and sets *pending, which end_pending() ends before the group is freed. */
    int (*start)(void* group, const dtrun_plugin_send* sends, size_t send_count,
                 const dtrun_plugin_receive* receives, size_t receive_count, void** pending,
                 const dtrun_plugin_sink* error);
    void (*poll)(void* pending); /* NULL: there is nothing to do meanwhile */
    int (*wait)(void* pending, const dtrun_plugin_sink* error);
    void (*end_pending)(void* pending); /* waits */

    /* A mark is the caller's until end_mark(), which may come after the group is freed; NULL is no mark. By any
     * thread. NULL, all three: data are not on the device */
    void* (*mark)(void* group, void* stream);
    void (*end_mark)(void* mark);
    void (*follow)(void* group, void* mark);
} dtrun_plugin_calls;

typedef struct dtrun_plugin {
    uint32_t abi;      /* DTRUN_PLUGIN_ABI; first in all plug-ins that ever were */
    uint32_t protocol; /* DTRUN_PLUGIN_PROTOCOL: ranks with different ones do not go together */
    size_t size;       /* sizeof(dtrun_plugin) */
    const char* name;
    const char* version; /* of the dtrun that it was built with, for messages */
    const dtrun_plugin_calls* calls;
    /* Puts why not, or what was found. \return whether the backend can be had in this process, 0 or 1 */
    int (*probe)(const dtrun_plugin_sink* why);
    /* Makes a group, the first argument of the functions in `calls`; all members call it. */
    int (*connect)(const dtrun_plugin_spec* spec, void** group, const dtrun_plugin_sink* error);
} dtrun_plugin;

/* Of type const dtrun_plugin* (*)(void). What it returns lives for ever. */
#define DTRUN_PLUGIN_ENTRY "dtrun_backend_plugin"

#ifdef __cplusplus
}
#endif

#endif /* DTRUN_PLUGIN_ABI_H */
