/* A plug-in in C, which has no C++ library at all: ranks whose data are all the same, so that each knows what the others
 * have. A group whose prefix is "fail NAME CODE" fails in the function of that name, with that code. */
#include "collectives/backends/plugin_abi.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct group {
    const dtrun_plugin_store* store;
    int (*interrupted)(void* caller);
    void* caller;
    uint32_t rank;
    uint32_t ranks;
    uint64_t expected;
    char failing[32];
    int code;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int aborted;
} group;

static dtrun_plugin_text text_of(const char* text) {
    const dtrun_plugin_text made = {text, strlen(text)};
    return made;
}

static int failed(const dtrun_plugin_sink* error, int code, const char* text) {
    error->put(error->to, text_of(text));
    return code;
}

/* Of a function that is to fail: its code, or 0. */
static int failure(const group* own, const char* name, const dtrun_plugin_sink* error) {
    char text[64];
    if (strcmp(own->failing, name) != 0) return DTRUN_PLUGIN_OK;
    snprintf(text, sizeof text, "%s of call %d fails", name, (int)own->expected);
    return failed(error, own->code, text);
}

static void copy(void* to, const void* from, size_t bytes) {
    if (bytes > 0 && to != from) memmove(to, from, bytes);
}

static void copy_for_each(const group* own, void* out, const void* in, size_t bytes) {
    for (uint32_t rank = own->ranks; rank-- > 0;) copy((char*)out + rank * bytes, in, bytes);
}

/* f32 alone, and their sum or anything that is the same as one of them. */
static void sum(const group* own, const float* in, float* out, size_t count, uint32_t reduce) {
    for (size_t i = 0; i < count; ++i) out[i] = reduce == 0 ? in[i] * (float)own->ranks : in[i];
}

/* Waits for abort(), or for the caller to lose patience. */
static int barrier(group* own, const dtrun_plugin_sink* error) {
    if (own->interrupted != NULL && own->interrupted(own->caller))
        return failed(error, DTRUN_PLUGIN_CANCELLED, "interrupted");
    pthread_mutex_lock(&own->mutex);
    while (!own->aborted) pthread_cond_wait(&own->changed, &own->mutex);
    pthread_mutex_unlock(&own->mutex);
    return failed(error, DTRUN_PLUGIN_CANCELLED, "aborted");
}

/* All operations but allgatherv, which the library makes of messages. */
static int run(void* any, const dtrun_plugin_operation* what, const dtrun_plugin_sink* error) {
    static const char* const names[] = {
        [DTRUN_PLUGIN_ALLREDUCE] = "allreduce",   [DTRUN_PLUGIN_REDUCE] = "reduce",
        [DTRUN_PLUGIN_BROADCAST] = "broadcast",   [DTRUN_PLUGIN_REDUCE_SCATTER] = "reduce_scatter",
        [DTRUN_PLUGIN_ALLGATHER] = "allgather",   [DTRUN_PLUGIN_ALLGATHERV] = "allgatherv",
        [DTRUN_PLUGIN_GATHER] = "gather",         [DTRUN_PLUGIN_SCATTER] = "scatter",
        [DTRUN_PLUGIN_ALLTOALL] = "alltoall",     [DTRUN_PLUGIN_BARRIER] = "barrier",
    };
    group* const own = any;
    const char* const part = (const char*)what->in + own->rank * what->count;
    const int code = failure(own, names[what->kind], error);
    if (code != DTRUN_PLUGIN_OK) return code;
    switch (what->kind) {
        case DTRUN_PLUGIN_ALLREDUCE:
            if (what->type != 0) return failed(error, DTRUN_PLUGIN_INVALID_INPUT, "f32 alone");
            sum(own, what->in, what->out, what->count, what->reduce);
            return DTRUN_PLUGIN_OK;
        case DTRUN_PLUGIN_REDUCE:
            if (what->root == own->rank)
                sum(own, what->in, what->out, what->count, what->reduce);
            return DTRUN_PLUGIN_OK;
        case DTRUN_PLUGIN_REDUCE_SCATTER:
            sum(own, (const float*)what->in + own->rank * what->count, what->out, what->count,
                what->reduce);
            return DTRUN_PLUGIN_OK;
        case DTRUN_PLUGIN_BROADCAST:
            return DTRUN_PLUGIN_OK;
        case DTRUN_PLUGIN_ALLGATHER:
            copy_for_each(own, what->out, what->in, what->count);
            return DTRUN_PLUGIN_OK;
        case DTRUN_PLUGIN_GATHER:
            if (what->root == own->rank) copy_for_each(own, what->out, what->in, what->count);
            return DTRUN_PLUGIN_OK;
        case DTRUN_PLUGIN_SCATTER:
            copy(what->out, part, what->count);
            return DTRUN_PLUGIN_OK;
        case DTRUN_PLUGIN_ALLTOALL:
            copy_for_each(own, what->out, part, what->count);
            return DTRUN_PLUGIN_OK;
        case DTRUN_PLUGIN_BARRIER:
            return barrier(own, error);
        default:
            return DTRUN_PLUGIN_NOT_FOUND;
    }
}

static void end(void* any) {
    group* const own = any;
    pthread_cond_destroy(&own->changed);
    pthread_mutex_destroy(&own->mutex);
    free(own);
}

static void end_by_force(void* any) {
    group* const own = any;
    pthread_mutex_lock(&own->mutex);
    own->aborted = 1;
    pthread_cond_broadcast(&own->changed);
    pthread_mutex_unlock(&own->mutex);
}

static void facts(void* any, const dtrun_plugin_facts* facts) {
    (void)any;
    facts->put(facts->to, text_of("version"), text_of("C99"));
    facts->put(facts->to, text_of("transport"), text_of("none"));
    facts->put(facts->to, text_of("language"), text_of("C"));
}

static int lost(void* any, uint32_t* rank) {
    if (!((group*)any)->aborted) return 0;
    *rank = 1;
    return 1;
}

static void expect(void* any, uint64_t call) {
    ((group*)any)->expected = call;
}

/* Messages arrive at once, as all data are the same; what is pending is the group. */
static int start(void* any, const dtrun_plugin_send* sends, size_t send_count,
                 const dtrun_plugin_receive* receives, size_t receive_count, void** pending,
                 const dtrun_plugin_sink* error) {
    const int code = failure(any, "start", error);
    if (code != DTRUN_PLUGIN_OK) return code;
    for (size_t i = 0; i < receive_count && i < send_count; ++i)
        copy(receives[i].data, sends[i].data, receives[i].bytes);
    *pending = any;
    return code;
}

static int wait_for(void* pending, const dtrun_plugin_sink* error) {
    return failure(pending, "wait", error);
}

static void end_pending(void* pending) {
    (void)pending;
}

/* What a store has to do for ranks that meet. */
static void take_value(void* to, dtrun_plugin_text text) {
    int* const bytes = to;
    *bytes += (int)text.size;
}

static int meet(const dtrun_plugin_spec* spec, const dtrun_plugin_sink* error) {
    const dtrun_plugin_store* const store = spec->store;
    const dtrun_plugin_text key = text_of("c/key");
    const dtrun_plugin_pair pair = {key, text_of("value")};
    int found = 0;
    const dtrun_plugin_sink values = {&found, take_value};
    int code = store->find(store->store, text_of("c/nothing"), &values, error);
    if (code != DTRUN_PLUGIN_OK) return code;
    if (found != 0) return failed(error, DTRUN_PLUGIN_INTERNAL, "there is nothing to be found");
    code = store->set(store->store, &pair, 1, error);
    if (code == DTRUN_PLUGIN_OK)
        code = store->get(store->store, &key, 1, spec->timeout_ms, &values, error);
    if (code == DTRUN_PLUGIN_OK) code = store->find(store->store, key, &values, error);
    if (code == DTRUN_PLUGIN_OK && found != 10)
        return failed(error, DTRUN_PLUGIN_INTERNAL, "the store gave something else");
    return code;
}

static int connect_ranks(const dtrun_plugin_spec* spec, void** made, const dtrun_plugin_sink* error) {
    char prefix[64] = "";
    group* own;
    if (spec->store != NULL) {
        const int code = meet(spec, error);
        if (code != DTRUN_PLUGIN_OK) return code;
    }
    snprintf(prefix, sizeof prefix, "%.*s", (int)spec->prefix.size, spec->prefix.data);
    own = calloc(1, sizeof *own);
    if (own == NULL) return failed(error, DTRUN_PLUGIN_INTERNAL, strerror(ENOMEM));
    sscanf(prefix, "fail %31s %d", own->failing, &own->code);
    if (strcmp(own->failing, "connect") == 0) {
        const int code = own->code;
        free(own);
        return code;
    }
    own->store = spec->store;
    own->interrupted = spec->interrupted;
    own->caller = spec->caller;
    own->rank = spec->rank;
    own->ranks = spec->ranks;
    pthread_mutex_init(&own->mutex, NULL);
    pthread_cond_init(&own->changed, NULL);
    *made = own;
    return DTRUN_PLUGIN_OK;
}

static int probe(const dtrun_plugin_sink* why) {
    why->put(why->to, text_of("C is everywhere"));
    return 1;
}

static const dtrun_plugin_calls calls = {
    .size = sizeof(dtrun_plugin_calls),
    .free = end,
    .abort = end_by_force,
    .facts = facts,
    .lost = lost,
    .expect = expect,
    .run = run,
    .start = start,
    .wait = wait_for,
    .end_pending = end_pending,
};

const dtrun_plugin* dtrun_backend_plugin(void);
__attribute__((visibility("default"))) const dtrun_plugin* dtrun_backend_plugin(void) {
    static const dtrun_plugin plugin = {
        .abi = DTRUN_PLUGIN_ABI,
        .protocol = DTRUN_PLUGIN_PROTOCOL,
        .size = sizeof(dtrun_plugin),
        .name = "c",
        .version = "0",
        .calls = &calls,
        .probe = probe,
        .connect = connect_ranks,
    };
    return &plugin;
}
