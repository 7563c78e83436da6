/* Every function of Slurm's client of PMI-2, as a rank on one of several hosts. Prints "ok NAME" for
   each thing that worked.

     pmi_two            all of them
     pmi_two abort      PMI2_Abort */
#include <slurm/pmi2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

#define CHECK(condition)                                                              \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            exit(99);                                                                 \
        }                                                                             \
    } while (0)

static void ok(const char* what) {
    CHECK(PMI2_KVS_Fence() == PMI2_SUCCESS);
    printf("ok %s\n", what);
    fflush(stdout);
}

/* Each rank puts what is its own, and reads what all have put, in several rounds. */
static void values(const char* job) {
    for (int round = 0; round < 3; ++round) {
        char key[64], value[PMI2_MAX_VALLEN], got[PMI2_MAX_VALLEN];
        int length = 0;
        snprintf(key, sizeof key, "key;=%d-%d", round, rank);
        snprintf(value, sizeof value, "a;value=of %d;;in\n%d;", rank, round);
        CHECK(PMI2_KVS_Put(key, value) == PMI2_SUCCESS);
        CHECK(PMI2_KVS_Fence() == PMI2_SUCCESS);
        for (int other = 0; other < size; ++other) {
            snprintf(key, sizeof key, "key;=%d-%d", round, other);
            snprintf(value, sizeof value, "a;value=of %d;;in\n%d;", other, round);
            CHECK(PMI2_KVS_Get(job, PMI2_ID_NULL, key, got, sizeof got, &length) == PMI2_SUCCESS);
            CHECK(length == (int)strlen(value) && strcmp(got, value) == 0);
        }
        CHECK(PMI2_KVS_Get(job, 0, "missing", got, sizeof got, &length) != PMI2_SUCCESS);
    }
    char longest[PMI2_MAX_VALLEN + 1], key[64], got[PMI2_MAX_VALLEN + 8];
    int length = 0;
    memset(longest, 'x', PMI2_MAX_VALLEN);
    longest[PMI2_MAX_VALLEN] = 0;
    snprintf(key, sizeof key, "long-%d", rank);
    CHECK(PMI2_KVS_Put(key, longest) == PMI2_SUCCESS);
    CHECK(PMI2_KVS_Get(job, rank, key, got, sizeof got, &length) == PMI2_SUCCESS);
    CHECK(length == PMI2_MAX_VALLEN && strcmp(got, longest) == 0);
}

/* The last rank of a host puts what the others of that host wait for. */
static void node_attributes(void) {
    int ranks[64], count = 0, found = 0, got = 0;
    char value[PMI2_MAX_ATTRVALUE], expected[64];
    CHECK(PMI2_Info_GetNodeAttrIntArray("localRanksCount", &count, 1, &got, &found) ==
              PMI2_SUCCESS &&
          found && got == 1 && count >= 1 && count <= 64);
    CHECK(PMI2_Info_GetNodeAttrIntArray("localRanks", ranks, 64, &got, &found) == PMI2_SUCCESS &&
          found && got == count);
    CHECK(PMI2_Info_GetNodeAttr("not there", value, sizeof value, &found, 0) == PMI2_SUCCESS &&
          !found);
    snprintf(expected, sizeof expected, "of rank %d", ranks[count - 1]);
    if (rank == ranks[count - 1])
        CHECK(PMI2_Info_PutNodeAttr("attribute", expected) == PMI2_SUCCESS);
    CHECK(PMI2_Info_GetNodeAttr("attribute", value, sizeof value, &found, 1) == PMI2_SUCCESS &&
          found && strcmp(value, expected) == 0);
}

static void job_attributes(void) {
    int universe = 0, got = 0, found = 0;
    char mapping[PMI2_MAX_VALLEN];
    CHECK(PMI2_Info_GetJobAttrIntArray("universeSize", &universe, 1, &got, &found) ==
              PMI2_SUCCESS &&
          found && universe == size);
    CHECK(PMI2_Info_GetJobAttr("PMI_process_mapping", mapping, sizeof mapping, &found) ==
              PMI2_SUCCESS &&
          found && strncmp(mapping, "(vector,(0,", 11) == 0);
    CHECK(PMI2_Info_GetJobAttr("physTopology", mapping, sizeof mapping, &found) == PMI2_SUCCESS &&
          !found);
}

static void names(void) {
    char port[256];
    if (rank == 0) {
        CHECK(PMI2_Nameserv_publish("a name", NULL, "port;of 0") == PMI2_SUCCESS);
        CHECK(PMI2_Nameserv_publish("a name", NULL, "another") != PMI2_SUCCESS);
    }
    CHECK(PMI2_KVS_Fence() == PMI2_SUCCESS);
    CHECK(PMI2_Nameserv_lookup("a name", NULL, port, sizeof port) == PMI2_SUCCESS);
    CHECK(strcmp(port, "port;of 0") == 0);
    CHECK(PMI2_KVS_Fence() == PMI2_SUCCESS);
    if (rank == size - 1) {
        CHECK(PMI2_Nameserv_unpublish("a name", NULL) == PMI2_SUCCESS);
        CHECK(PMI2_Nameserv_unpublish("a name", NULL) != PMI2_SUCCESS);
    }
    CHECK(PMI2_KVS_Fence() == PMI2_SUCCESS);
    CHECK(PMI2_Nameserv_lookup("a name", NULL, port, sizeof port) != PMI2_SUCCESS);
}

static void ring(void) {
    char mine[64], left[64], right[64], expected[64];
    int place = -1, places = 0;
    snprintf(mine, sizeof mine, "end of %d", rank);
    CHECK(PMIX_Ring(mine, &place, &places, left, right, sizeof left) == PMI2_SUCCESS);
    CHECK(place == rank && places == size);
    snprintf(expected, sizeof expected, "end of %d", (rank + size - 1) % size);
    CHECK(strcmp(left, expected) == 0);
    snprintf(expected, sizeof expected, "end of %d", (rank + 1) % size);
    CHECK(strcmp(right, expected) == 0);
}

static void refused(const char* job) {
    const char* program = "true";
    int arguments = 0, processes = 1, infos = 0, error = 0;
    char spawned[256];
    CHECK(PMI2_Job_Spawn(1, &program, &arguments, NULL, &processes, &infos, NULL, 0, NULL, spawned,
                         sizeof spawned, &error) != PMI2_SUCCESS);
    PMI2_Connect_comm_t connection;
    CHECK(PMI2_Job_Connect(job, &connection) != PMI2_SUCCESS);
    CHECK(PMI2_Job_Disconnect(job) != PMI2_SUCCESS);
}

int main(int argc, char** argv) {
    int spawned = -1, application = -1;
    char job[256];
    if (PMI2_Init(&spawned, &size, &rank, &application) != PMI2_SUCCESS) {
        fprintf(stderr, "PMI2_Init failed\n");
        return 15;
    }
    CHECK(!spawned && application == 0);
    CHECK(rank == atoi(getenv("PMI_RANK")) && size == atoi(getenv("PMI_SIZE")));
    if (argc > 1 && strcmp(argv[1], "abort") == 0) {
        CHECK(PMI2_KVS_Fence() == PMI2_SUCCESS);
        if (rank == 1) PMI2_Abort(1, "because");
        PMI2_KVS_Fence();
        return 0;
    }
    CHECK(PMI2_Job_GetId(job, sizeof job) == PMI2_SUCCESS);
    values(job);
    ok("values");
    node_attributes();
    ok("node attributes");
    job_attributes();
    ok("job attributes");
    names();
    ok("names");
    ring();
    ok("ring");
    refused(job);
    ok("refused");
    CHECK(PMI2_Finalize() == PMI2_SUCCESS);
    return 0;
}
