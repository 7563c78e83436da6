/* A rank that speaks PMIx itself: pmix_client TEST. Prints "ok TEST". DTRUN_RANK is its rank.

     values      all put and commit, fence with data, get those of all others
     modex       the same without data in the fence: each value is asked for
     job         what the server tells of the job
     subset      ranks 0, 1 and the last fence twice among themselves with data, then all
     connect     the same ranks connect and disconnect
     types       values of all types that can be published, with and without waiting
     publish     rank 0 publishes late, what the last rank has been waiting for
     again       PMIx_Init and PMIx_Finalize, twice
     starts      runs a command of the shell's, argv[2], and then does as in "values"
     leaves      rank 0 ends without PMIx_Finalize, the others are in a fence; these end with 3 */
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pmix_proc_t me, all;
static uint32_t size;

#define CHECK(condition)                                                              \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "rank %u: line %d: %s\n", me.rank, __LINE__, #condition); \
            exit(99);                                                                 \
        }                                                                             \
    } while (0)
#define MUST(call)                                                                  \
    do {                                                                            \
        const pmix_status_t status_ = (call);                                       \
        if (status_ != PMIX_SUCCESS) {                                              \
            fprintf(stderr, "rank %u: line %d: %s: %s\n", me.rank, __LINE__, #call, \
                    PMIx_Error_string(status_));                                    \
            exit(99);                                                               \
        }                                                                           \
    } while (0)

static pmix_proc_t proc_of(uint32_t rank) {
    pmix_proc_t proc = me;
    proc.rank = rank;
    return proc;
}

static uint32_t number(pmix_proc_t proc, const char* key) {
    pmix_value_t* value = NULL;
    MUST(PMIx_Get(&proc, key, NULL, 0, &value));
    const uint32_t found = value->type == PMIX_UINT16 ? value->data.uint16 : value->data.uint32;
    PMIX_VALUE_RELEASE(value);
    return found;
}

static void init(void) {
    MUST(PMIx_Init(&me, NULL, 0));
    CHECK(me.rank == (uint32_t)atoi(getenv("DTRUN_RANK")));
    all = proc_of(PMIX_RANK_WILDCARD);
    size = number(all, PMIX_JOB_SIZE);
}

static void put(const char* key, uint32_t what) {
    pmix_value_t value;
    memset(&value, 0, sizeof value);
    value.type = PMIX_UINT32;
    value.data.uint32 = what;
    MUST(PMIx_Put(PMIX_GLOBAL, key, &value));
    MUST(PMIx_Commit());
}

static void fence(const pmix_proc_t* procs, size_t count, bool collect) {
    pmix_info_t info;
    memset(&info, 0, sizeof info);
    strcpy(info.key, PMIX_COLLECT_DATA);
    info.value.type = PMIX_BOOL;
    info.value.data.flag = collect;
    MUST(PMIx_Fence(procs, count, &info, 1));
}

static void values(bool collect) {
    put("test.value", 1000 + me.rank);
    fence(&all, 1, collect);
    for (uint32_t rank = 0; rank < size; ++rank)
        CHECK(number(proc_of(rank), "test.value") == 1000 + rank);
    fence(&all, 1, false);
}

static void job(void) {
    pmix_value_t* value = NULL;
    CHECK(number(all, PMIX_UNIV_SIZE) == size);
    CHECK(number(all, PMIX_NUM_NODES) == (uint32_t)atoi(getenv("TEST_HOSTS")));
    const uint32_t local = number(all, PMIX_LOCAL_SIZE);
    const uint32_t local_rank = number(me, PMIX_LOCAL_RANK);
    CHECK(local_rank < local);
    MUST(PMIx_Get(&me, PMIX_HOSTNAME, NULL, 0, &value));
    CHECK(value->data.string[0] == 's');
    CHECK(strcmp(value->data.string, getenv("PMIX_HOSTNAME")) == 0);
    MUST(PMIx_Get(&all, PMIX_NSDIR, NULL, 0, &value));
    CHECK(access(value->data.string, W_OK | X_OK) == 0);
}

/* \return how many; 0: we are not one of them */
static size_t some(pmix_proc_t procs[3]) {
    const uint32_t last = size - 1;
    procs[0] = proc_of(0);
    procs[1] = proc_of(1);
    procs[2] = proc_of(last);
    return me.rank == 0 || me.rank == 1 || me.rank == last ? last > 1 ? 3 : 2 : 0;
}

static void subset(void) {
    pmix_proc_t procs[3];
    const size_t count = some(procs);
    for (int round = 0; count > 0 && round < 2; ++round) {
        const char* key = round == 0 ? "test.first" : "test.second";
        put(key, 7 + 10 * me.rank);
        fence(procs, count, true);
        for (size_t i = 0; i < count; ++i) CHECK(number(procs[i], key) == 7 + 10 * procs[i].rank);
    }
    fence(&all, 1, true);
    CHECK(number(proc_of(size - 1), "test.second") == 7 + 10 * (size - 1));
    fence(&all, 1, false);
}

static void meet(void) {
    pmix_proc_t procs[3];
    const size_t count = some(procs);
    if (count > 0) {
        MUST(PMIx_Connect(procs, count, NULL, 0));
        MUST(PMIx_Disconnect(procs, count, NULL, 0));
    }
    MUST(PMIx_Connect(&all, 1, NULL, 0));
    fence(&all, 1, false);
}

static pmix_info_t wait_for(void) {
    pmix_info_t info;
    memset(&info, 0, sizeof info);
    strcpy(info.key, PMIX_WAIT);
    info.value.type = PMIX_INT;
    return info;
}

static pmix_status_t look_up(const char* key, const pmix_info_t* info, pmix_value_t* value) {
    pmix_pdata_t data;
    memset(&data, 0, sizeof data);
    strcpy(data.key, key);
    const pmix_status_t status = PMIx_Lookup(&data, 1, info, info == NULL ? 0 : 1);
    *value = data.value;
    if (status == PMIX_SUCCESS) CHECK(data.proc.rank == 0);
    return status;
}

static void types(void) {
    pmix_info_t info[5];
    memset(info, 0, sizeof info);
    pmix_value_t value;
    if (me.rank == 0) {
        strcpy(info[0].key, "string");
        info[0].value.type = PMIX_STRING;
        info[0].value.data.string = "a b";
        strcpy(info[1].key, "bytes");
        info[1].value.type = PMIX_BYTE_OBJECT;
        info[1].value.data.bo.bytes = "a\0b";
        info[1].value.data.bo.size = 3;
        strcpy(info[2].key, "int");
        info[2].value.type = PMIX_INT;
        info[2].value.data.integer = -5;
        strcpy(info[3].key, "u64");
        info[3].value.type = PMIX_UINT64;
        info[3].value.data.uint64 = 1ull << 63;
        strcpy(info[4].key, "bool");
        info[4].value.type = PMIX_BOOL;
        info[4].value.data.flag = true;
        MUST(PMIx_Publish(info, 5));
        CHECK(PMIx_Publish(info, 1) == PMIX_ERR_DUPLICATE_KEY);
        strcpy(info[0].key, "float");
        info[0].value.type = PMIX_FLOAT;
        CHECK(PMIx_Publish(info, 1) == PMIX_ERR_NOT_SUPPORTED);
    }
    fence(&all, 1, false);
    MUST(look_up("string", NULL, &value));
    CHECK(value.type == PMIX_STRING && strcmp(value.data.string, "a b") == 0);
    MUST(look_up("bytes", NULL, &value));
    CHECK(value.type == PMIX_BYTE_OBJECT && value.data.bo.size == 3);
    CHECK(memcmp(value.data.bo.bytes, "a\0b", 3) == 0);
    MUST(look_up("int", NULL, &value));
    CHECK(value.type == PMIX_INT && value.data.integer == -5);
    MUST(look_up("u64", NULL, &value));
    CHECK(value.type == PMIX_UINT64 && value.data.uint64 == 1ull << 63);
    MUST(look_up("bool", NULL, &value));
    CHECK(value.type == PMIX_BOOL && value.data.flag);
    CHECK(look_up("nothing", NULL, &value) == PMIX_ERR_NOT_FOUND);
    fence(&all, 1, false);
    char* keys[] = {"string", NULL};
    if (me.rank == 0) MUST(PMIx_Unpublish(keys, NULL, 0));
    if (me.rank == 0) CHECK(PMIx_Unpublish(keys, NULL, 0) == PMIX_ERR_NOT_FOUND);
    fence(&all, 1, false);
    CHECK(look_up("string", NULL, &value) == PMIX_ERR_NOT_FOUND);
    fence(&all, 1, false);
    if (me.rank == 0) MUST(PMIx_Unpublish(NULL, NULL, 0));
    fence(&all, 1, false);
    CHECK(look_up("int", NULL, &value) == PMIX_ERR_NOT_FOUND);
}

static void publish(void) {
    if (me.rank == 0) {
        usleep(100 * 1000);
        pmix_info_t info;
        memset(&info, 0, sizeof info);
        strcpy(info.key, "late");
        info.value.type = PMIX_STRING;
        info.value.data.string = "at last";
        MUST(PMIx_Publish(&info, 1));
    } else if (me.rank == size - 1) {
        const pmix_info_t info = wait_for();
        pmix_value_t value;
        MUST(look_up("late", &info, &value));
        CHECK(strcmp(value.data.string, "at last") == 0);
    }
    fence(&all, 1, false);
}

int main(int argc, char** argv) {
    const char* test = argc > 1 ? argv[1] : "";
    init();
    if (!strcmp(test, "values")) values(true);
    if (!strcmp(test, "modex")) values(false);
    if (!strcmp(test, "job")) job();
    if (!strcmp(test, "subset")) subset();
    if (!strcmp(test, "connect")) meet();
    if (!strcmp(test, "types")) types();
    if (!strcmp(test, "publish")) publish();
    if (!strcmp(test, "again")) {
        MUST(PMIx_Finalize(NULL, 0));
        init();
    }
    if (!strcmp(test, "starts")) {
        const int status = system(argv[2]);
        printf("command: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128);
        fflush(stdout);
        values(true);
    }
    if (!strcmp(test, "leaves")) {
        if (me.rank == 0) _exit(0);
        printf("%u: fence: %s\n", me.rank, PMIx_Error_string(PMIx_Fence(&all, 1, NULL, 0)));
        return 3;
    }
    MUST(PMIx_Finalize(NULL, 0));
    printf("ok %s\n", test);
    return 0;
}
