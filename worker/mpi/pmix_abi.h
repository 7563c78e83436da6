#pragma once

#include <sys/time.h>
#include <sys/types.h>
#include <cstddef>
#include <cstdint>

/// As much of libpmix' binary interface as a server needs; equal in versions 3.2 to 6 (the PMIx
/// Standard keeps numbers and layouts). Declared here, because the library is loaded at run time and
/// its headers must not be needed. The names are the Standard's, less their prefix.
namespace dtrun::pmix {

using Status = int;
using RankId = std::uint32_t;
using DataType = std::uint16_t;

inline constexpr Status kSuccess = 0;
inline constexpr Status kErrorDuplicateKey = -53;
inline constexpr Status kErrorTimeout = -24;
inline constexpr Status kErrorUnreachable = -25;
inline constexpr Status kErrorBadParameter = -27;
inline constexpr Status kErrorNotFound = -46;
inline constexpr Status kErrorNotSupported = -47;
inline constexpr Status kErrorLostConnection = -61;
inline constexpr Status kOperationSucceeded = -157;

inline constexpr RankId kRankWildcard = 0xffff'fffe;

inline constexpr DataType kBool = 1;
inline constexpr DataType kString = 3;
inline constexpr DataType kSize = 4;
inline constexpr DataType kPid = 5;
inline constexpr DataType kInt = 6;
inline constexpr DataType kInt8 = 7;
inline constexpr DataType kInt16 = 8;
inline constexpr DataType kInt32 = 9;
inline constexpr DataType kInt64 = 10;
inline constexpr DataType kUint = 11;
inline constexpr DataType kUint8 = 12;
inline constexpr DataType kUint16 = 13;
inline constexpr DataType kUint32 = 14;
inline constexpr DataType kUint64 = 15;
inline constexpr DataType kStatus = 20;
inline constexpr DataType kInfo = 24;
inline constexpr DataType kByteObject = 27;
inline constexpr DataType kPersistence = 30;
inline constexpr DataType kDataArray = 39;
inline constexpr DataType kProcRank = 40;

inline constexpr std::uint8_t kPersistFirstRead = 1;

inline constexpr std::uint32_t kInfoArrayEnd = 2;  ///< a flag of the last of an array

struct Proc {
    char nspace[256];
    RankId rank;
};

struct ByteObject {
    char* bytes;
    std::size_t size;
};

struct DataArray {
    DataType type;
    std::size_t size;
    void* array;
};

struct Value {
    DataType type;
    union {
        bool flag;
        char* string;
        std::size_t size;
        pid_t pid;
        int integer;
        std::int8_t int8;
        std::int16_t int16;
        std::int32_t int32;
        std::int64_t int64;
        unsigned int uint;
        std::uint8_t uint8;
        std::uint16_t uint16;
        std::uint32_t uint32;
        std::uint64_t uint64;
        Status status;
        RankId rank;
        ByteObject bo;
        std::uint8_t persist;
        DataArray* darray;
        char other[24];  ///< the largest of those that are not named here
    } data;
};

struct Info {
    char key[512];
    std::uint32_t flags;
    Value value;
};

/// A published value and who has published it.
struct Pdata {
    Proc proc;
    char key[512];
    Value value;
};

// What the library calls to tell that something is done, and what we call for the same.
using OpDone = void (*)(Status status, void* context);
using Release = void (*)(void* context);
using ModexDone = void (*)(Status status, const char* data, std::size_t size, void* context,
                           Release release, void* release_context);
using LookupDone = void (*)(Status status, Pdata* data, std::size_t size, void* context);
using InfoDone = void (*)(Status status, Info* info, std::size_t size, void* context,
                          Release release, void* release_context);
using DmodexResponse = void (*)(Status status, char* data, std::size_t size, void* context);

/// What the library asks of the program that it serves in. A library of another version copies as
/// many members as it knows: those behind the ones named here are null.
struct ServerModule {
    Status (*client_connected)(const Proc* proc, void* object, OpDone done, void* context);
    Status (*client_finalized)(const Proc* proc, void* object, OpDone done, void* context);
    Status (*abort)(const Proc* proc, void* object, int status, const char* message, Proc* procs,
                    std::size_t procs_size, OpDone done, void* context);
    Status (*fence_nb)(const Proc* procs, std::size_t procs_size, const Info* info,
                       std::size_t info_size, char* data, std::size_t data_size, ModexDone done,
                       void* context);
    Status (*direct_modex)(const Proc* proc, const Info* info, std::size_t info_size,
                           ModexDone done, void* context);
    Status (*publish)(const Proc* proc, const Info* info, std::size_t info_size, OpDone done,
                      void* context);
    Status (*lookup)(const Proc* proc, char** keys, const Info* info, std::size_t info_size,
                     LookupDone done, void* context);
    Status (*unpublish)(const Proc* proc, char** keys, const Info* info, std::size_t info_size,
                        OpDone done, void* context);
    /// The applications and the callback are of no use to us.
    Status (*spawn)(const Proc* proc, const Info* info, std::size_t info_size, const void* apps,
                    std::size_t apps_size, void* done, void* context);
    Status (*connect)(const Proc* procs, std::size_t procs_size, const Info* info,
                      std::size_t info_size, OpDone done, void* context);
    Status (*disconnect)(const Proc* procs, std::size_t procs_size, const Info* info,
                         std::size_t info_size, OpDone done, void* context);
    Status (*register_events)(Status* codes, std::size_t codes_size, const Info* info,
                              std::size_t info_size, OpDone done, void* context);
    Status (*deregister_events)(Status* codes, std::size_t codes_size, OpDone done, void* context);
    void* listener;
    Status (*notify_event)(Status code, const Proc* source, std::uint8_t range, Info* info,
                           std::size_t info_size, OpDone done, void* context);
    void* query;
    void* tool_connected;
    void* log;
    void* allocate;
    Status (*job_control)(const Proc* requestor, const Proc* targets, std::size_t targets_size,
                          const Info* directives, std::size_t directives_size, InfoDone done,
                          void* context);
    void* others[108];
};

// Functions of the library, as their addresses are found.
using GetVersion = const char* (*)();
using ErrorString = const char* (*)(Status status);
using ServerInit = Status (*)(ServerModule* module, Info* info, std::size_t size);
/// Without `done` it waits, and returns kOperationSucceeded.
using RegisterNspace = Status (*)(const char* nspace, int local_procs, Info* info, std::size_t size,
                                  OpDone done, void* context);
using RegisterClient = Status (*)(const Proc* proc, uid_t uid, gid_t gid, void* object, OpDone done,
                                  void* context);
using SetupFork = Status (*)(const Proc* proc, char*** environment);
using DmodexRequest = Status (*)(const Proc* proc, DmodexResponse response, void* context);

}  // namespace dtrun::pmix
