// The declarations of libpmix that we have written down, against those of its headers.
#include "tests/support/catch.h"
#include "worker/mpi/pmix_abi.h"

#include <pmix_server.h>
#include <cstring>

using namespace dtrun::pmix;

// Values and structs as a library of version 4 has them.
static_assert(kSuccess == PMIX_SUCCESS && kErrorDuplicateKey == PMIX_ERR_DUPLICATE_KEY);
static_assert(kErrorTimeout == PMIX_ERR_TIMEOUT && kErrorUnreachable == PMIX_ERR_UNREACH);
static_assert(kErrorBadParameter == PMIX_ERR_BAD_PARAM && kErrorNotFound == PMIX_ERR_NOT_FOUND);
static_assert(kErrorNotSupported == PMIX_ERR_NOT_SUPPORTED);
static_assert(kErrorLostConnection == PMIX_ERR_LOST_CONNECTION);
static_assert(kOperationSucceeded == PMIX_OPERATION_SUCCEEDED);
static_assert(kRankWildcard == PMIX_RANK_WILDCARD && kInfoArrayEnd == PMIX_INFO_ARRAY_END);
static_assert(kPersistFirstRead == PMIX_PERSIST_FIRST_READ);
static_assert(kBool == PMIX_BOOL && kString == PMIX_STRING && kSize == PMIX_SIZE);
static_assert(kPid == PMIX_PID && kInt == PMIX_INT && kInt8 == PMIX_INT8 && kInt16 == PMIX_INT16);
static_assert(kInt32 == PMIX_INT32 && kInt64 == PMIX_INT64 && kUint == PMIX_UINT);
static_assert(kUint8 == PMIX_UINT8 && kUint16 == PMIX_UINT16 && kUint32 == PMIX_UINT32);
static_assert(kUint64 == PMIX_UINT64 && kStatus == PMIX_STATUS && kInfo == PMIX_INFO);
static_assert(kByteObject == PMIX_BYTE_OBJECT && kPersistence == PMIX_PERSIST);
static_assert(kDataArray == PMIX_DATA_ARRAY && kProcRank == PMIX_PROC_RANK);

static_assert(sizeof(Proc) == sizeof(pmix_proc_t));
static_assert(offsetof(Proc, rank) == offsetof(pmix_proc_t, rank));
static_assert(sizeof(ByteObject) == sizeof(pmix_byte_object_t));
static_assert(offsetof(ByteObject, size) == offsetof(pmix_byte_object_t, size));
static_assert(sizeof(DataArray) == sizeof(pmix_data_array_t));
static_assert(offsetof(DataArray, size) == offsetof(pmix_data_array_t, size));
static_assert(offsetof(DataArray, array) == offsetof(pmix_data_array_t, array));
static_assert(sizeof(Value) == sizeof(pmix_value_t));
static_assert(offsetof(Value, data) == offsetof(pmix_value_t, data));
static_assert(sizeof(Info) == sizeof(pmix_info_t));
static_assert(offsetof(Info, flags) == offsetof(pmix_info_t, flags));
static_assert(offsetof(Info, value) == offsetof(pmix_info_t, value));
static_assert(sizeof(Pdata) == sizeof(pmix_pdata_t));
static_assert(offsetof(Pdata, key) == offsetof(pmix_pdata_t, key));
static_assert(offsetof(Pdata, value) == offsetof(pmix_pdata_t, value));

static_assert(sizeof(ServerModule) > sizeof(pmix_server_module_t));
#define DTRUN_SAME_PLACE(member) \
    static_assert(offsetof(ServerModule, member) == offsetof(pmix_server_module_t, member))
DTRUN_SAME_PLACE(client_connected);
DTRUN_SAME_PLACE(client_finalized);
DTRUN_SAME_PLACE(abort);
DTRUN_SAME_PLACE(fence_nb);
DTRUN_SAME_PLACE(direct_modex);
DTRUN_SAME_PLACE(publish);
DTRUN_SAME_PLACE(lookup);
DTRUN_SAME_PLACE(unpublish);
DTRUN_SAME_PLACE(spawn);
DTRUN_SAME_PLACE(connect);
DTRUN_SAME_PLACE(disconnect);
DTRUN_SAME_PLACE(register_events);
DTRUN_SAME_PLACE(deregister_events);
DTRUN_SAME_PLACE(notify_event);
DTRUN_SAME_PLACE(job_control);

TEST_CASE("a value of PMIx is where libpmix looks for it", "[mpi][pmix]") {
    Value value;
    std::memset(&value, 0, sizeof value);
    const auto* const theirs = reinterpret_cast<const pmix_value_t*>(&value);
    value.data.uint64 = 0x0102'0304'0506'0708;
    CHECK(theirs->data.uint64 == 0x0102'0304'0506'0708);
    CHECK(theirs->data.uint32 == 0x0506'0708);
    CHECK(theirs->data.uint16 == 0x0708);
    CHECK(theirs->data.rank == 0x0506'0708);
    char text[] = "text";
    value.data.bo = {text, 4};
    CHECK(theirs->data.bo.bytes == text);
    CHECK(theirs->data.bo.size == 4);
}

TEST_CASE("the keys of PMIx that we write are those of libpmix", "[mpi][pmix]") {
    // As pmix_job.cpp and pmix_bridge.cpp have them.
    CHECK(std::string(PMIX_NODE_MAP) == "pmix.nmap");
    CHECK(std::string(PMIX_PROC_MAP) == "pmix.pmap");
    CHECK(std::string(PMIX_UNIV_SIZE) == "pmix.univ.size");
    CHECK(std::string(PMIX_JOB_SIZE) == "pmix.job.size");
    CHECK(std::string(PMIX_MAX_PROCS) == "pmix.max.size");
    CHECK(std::string(PMIX_JOB_NUM_APPS) == "pmix.job.napps");
    CHECK(std::string(PMIX_NUM_NODES) == "pmix.num.nodes");
    CHECK(std::string(PMIX_NODEID) == "pmix.nodeid");
    CHECK(std::string(PMIX_LOCAL_SIZE) == "pmix.local.size");
    CHECK(std::string(PMIX_NODE_SIZE) == "pmix.node.size");
    CHECK(std::string(PMIX_LOCAL_PEERS) == "pmix.lpeers");
    CHECK(std::string(PMIX_LOCALLDR) == "pmix.lldr");
    CHECK(std::string(PMIX_JOBID) == "pmix.jobid");
    CHECK(std::string(PMIX_HOSTNAME) == "pmix.hname");
    CHECK(std::string(PMIX_TMPDIR) == "pmix.tmpdir");
    CHECK(std::string(PMIX_NSDIR) == "pmix.nsdir");
    CHECK(std::string(PMIX_TDIR_RMCLEAN) == "pmix.tdir.rmclean");
    CHECK(std::string(PMIX_PROC_DATA) == "pmix.pdata");
    CHECK(std::string(PMIX_NODE_INFO_ARRAY) == "pmix.node.arr");
    CHECK(std::string(PMIX_APP_INFO_ARRAY) == "pmix.app.arr");
    CHECK(std::string(PMIX_RANK) == "pmix.rank");
    CHECK(std::string(PMIX_APPNUM) == "pmix.appnum");
    CHECK(std::string(PMIX_APP_RANK) == "pmix.apprank");
    CHECK(std::string(PMIX_GLOBAL_RANK) == "pmix.grank");
    CHECK(std::string(PMIX_LOCAL_RANK) == "pmix.lrank");
    CHECK(std::string(PMIX_NODE_RANK) == "pmix.nrank");
    CHECK(std::string(PMIX_REINCARNATION) == "pmix.reinc");
    CHECK(std::string(PMIX_APP_SIZE) == "pmix.app.size");
    CHECK(std::string(PMIX_APPLDR) == "pmix.aldr");
    CHECK(std::string(PMIX_SERVER_NSPACE) == "pmix.srv.nspace");
    CHECK(std::string(PMIX_SERVER_RANK) == "pmix.srv.rank");
    CHECK(std::string(PMIX_SERVER_TMPDIR) == "pmix.srvr.tmpdir");
    CHECK(std::string(PMIX_SYSTEM_TMPDIR) == "pmix.sys.tmpdir");
    CHECK(std::string(PMIX_SERVER_SHARE_TOPOLOGY) == "pmix.srvr.share");
    CHECK(std::string(PMIX_WAIT) == "pmix.wait");
    CHECK(std::string(PMIX_TIMEOUT) == "pmix.timeout");
    CHECK(std::string(PMIX_PERSISTENCE) == "pmix.persist");
    CHECK(std::string(PMIX_LOCAL_COLLECTIVE_STATUS) == "pmix.loc.col.st");
}
