#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

/// What we use of NCCL, RCCL, and of the CUDA and HIP runtimes, declared anew: they are found when a
/// program runs, and need not be there when we are built. Both are C interfaces that have not
/// changed since NCCL 2.14 and CUDA 11; RCCL and HIP have the same values.
namespace dtrun::collectives::nccl {

struct NcclComm;  ///< what ncclComm_t points to
struct GpuStream;
struct GpuEvent;

enum class NcclResult : int {
    success = 0,
    unhandled_cuda_error = 1,
    system_error = 2,
    internal_error = 3,
    invalid_argument = 4,
    invalid_usage = 5,
    remote_error = 6,
    in_progress = 7,
};

constexpr bool is_error(NcclResult result) {
    return result != NcclResult::success && result != NcclResult::in_progress;
}

enum class NcclType : int { i8 = 0, u8 = 1, i32 = 2, i64 = 4, f16 = 6, f32 = 7, f64 = 8, bf16 = 9 };

enum class NcclOp : int { sum = 0, product = 1, max = 2, min = 3, average = 4 };

/// Passed by value.
struct UniqueId {
    char bytes[128];
};
static_assert(sizeof(UniqueId) == 128);

/// ncclConfig_t as of 2.28. A library takes as much of it as it knows, and sees by `version` which
/// members its caller knew: so this copy stays good with older and newer ones.
struct NcclConfig {
    static constexpr int kUndefined = INT_MIN;

    std::size_t size = 80;
    unsigned magic = 0xcafebeef;
    unsigned version = 22809;
    int blocking = kUndefined;
    int cga_cluster_size = kUndefined;
    int min_ctas = kUndefined;
    int max_ctas = kUndefined;
    const char* net_name = nullptr;
    int split_share = kUndefined;
    int traffic_class = kUndefined;
    const char* comm_name = nullptr;
    int collnet_enable = kUndefined;
    int cta_policy = kUndefined;
    int shrink_share = kUndefined;
    int nvls_ctas = kUndefined;
    int channels_per_net_peer = kUndefined;
    int nvlink_centric_sched = kUndefined;
};
static_assert(sizeof(NcclConfig) == 80);
static_assert(offsetof(NcclConfig, blocking) == 16);
static_assert(offsetof(NcclConfig, net_name) == 32);
static_assert(offsetof(NcclConfig, split_share) == 40);
static_assert(offsetof(NcclConfig, comm_name) == 48);
static_assert(offsetof(NcclConfig, nvlink_centric_sched) == 76);

/// nccl* functions. Those of the second part are nullptr in libraries that lack them.
struct NcclFunctions {
    NcclResult (*get_version)(int*) = nullptr;
    NcclResult (*get_unique_id)(UniqueId*) = nullptr;
    NcclResult (*comm_init_rank_config)(NcclComm**, int, UniqueId, int, NcclConfig*) = nullptr;
    NcclResult (*comm_finalize)(NcclComm*) = nullptr;
    NcclResult (*comm_destroy)(NcclComm*) = nullptr;
    NcclResult (*comm_abort)(NcclComm*) = nullptr;
    NcclResult (*comm_get_async_error)(NcclComm*, NcclResult*) = nullptr;
    const char* (*get_error_string)(NcclResult) = nullptr;
    const char* (*get_last_error)(NcclComm*) = nullptr;
    NcclResult (*group_start)() = nullptr;
    NcclResult (*group_end)() = nullptr;
    NcclResult (*all_reduce)(const void*, void*, std::size_t, NcclType, NcclOp, NcclComm*,
                             GpuStream*) = nullptr;
    NcclResult (*reduce)(const void*, void*, std::size_t, NcclType, NcclOp, int, NcclComm*,
                         GpuStream*) = nullptr;
    NcclResult (*reduce_scatter)(const void*, void*, std::size_t, NcclType, NcclOp, NcclComm*,
                                 GpuStream*) = nullptr;
    NcclResult (*broadcast)(const void*, void*, std::size_t, NcclType, int, NcclComm*,
                            GpuStream*) = nullptr;
    NcclResult (*all_gather)(const void*, void*, std::size_t, NcclType, NcclComm*,
                             GpuStream*) = nullptr;
    NcclResult (*send)(const void*, std::size_t, NcclType, int, NcclComm*, GpuStream*) = nullptr;
    NcclResult (*recv)(void*, std::size_t, NcclType, int, NcclComm*, GpuStream*) = nullptr;

    NcclResult (*comm_init_rank_scalable)(NcclComm**, int, int, int, UniqueId*,
                                          NcclConfig*) = nullptr;
    NcclResult (*comm_split)(NcclComm*, int, int, NcclComm**, NcclConfig*) = nullptr;
    NcclResult (*all_to_all)(const void*, void*, std::size_t, NcclType, NcclComm*,
                             GpuStream*) = nullptr;
    NcclResult (*gather)(const void*, void*, std::size_t, NcclType, int, NcclComm*,
                         GpuStream*) = nullptr;
    NcclResult (*scatter)(const void*, void*, std::size_t, NcclType, int, NcclComm*,
                          GpuStream*) = nullptr;
};

inline constexpr int kGpuSuccess = 0;
inline constexpr int kGpuNotReady = 600;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr int kMemcpyDefault = 4;
/// What cudaStreamIsCapturing() returns for the default stream while another one is captured.
inline constexpr int kGpuCaptureImplicit = 908;
inline constexpr int kNotCaptured = 0;         ///< a cudaStreamCaptureStatus
inline constexpr int kCaptureModeRelaxed = 2;  ///< a cudaStreamCaptureMode

/// cudaPointerAttributes, with room for what later versions have behind it. HIP's begins with the
/// same members, but numbers its types in another way in each version.
struct PointerAttributes {
    static constexpr int kDevice = 2;
    static constexpr int kManaged = 3;

    int type = 0;
    int device = 0;
    void* device_pointer = nullptr;
    void* host_pointer = nullptr;
    std::uint64_t reserved[29] = {};
};

/// cuda* functions, or hip*. The stream nullptr is the default one.
struct GpuFunctions {
    int (*get_device_count)(int*) = nullptr;
    int (*get_device)(int*) = nullptr;
    int (*set_device)(int) = nullptr;
    int (*device_get_pci_bus_id)(char*, int, int) = nullptr;
    int (*device_get_by_pci_bus_id)(int*, const char*) = nullptr;
    int (*device_can_access_peer)(int*, int, int) = nullptr;
    int (*stream_create_with_flags)(GpuStream**, unsigned) = nullptr;
    int (*stream_destroy)(GpuStream*) = nullptr;
    int (*stream_query)(GpuStream*) = nullptr;
    int (*stream_synchronize)(GpuStream*) = nullptr;
    int (*stream_wait_event)(GpuStream*, GpuEvent*, unsigned) = nullptr;
    int (*event_create_with_flags)(GpuEvent**, unsigned) = nullptr;
    int (*event_destroy)(GpuEvent*) = nullptr;
    int (*event_record)(GpuEvent*, GpuStream*) = nullptr;
    int (*event_query)(GpuEvent*) = nullptr;
    int (*malloc)(void**, std::size_t) = nullptr;
    int (*free)(void*) = nullptr;
    /// Allocates pinned memory of the host.
    int (*host_alloc)(void**, std::size_t, unsigned) = nullptr;
    int (*host_free)(void*) = nullptr;
    int (*memcpy)(void*, const void*, std::size_t, int) = nullptr;
    int (*memcpy_async)(void*, const void*, std::size_t, int, GpuStream*) = nullptr;
    int (*get_last_error)() = nullptr;
    const char* (*get_error_string)(int) = nullptr;
    // nullptr in libraries that lack them.
    int (*peek_at_last_error)() = nullptr;
    int (*stream_is_capturing)(GpuStream*, int*) = nullptr;
    int (*exchange_capture_mode)(int*) = nullptr;
    int (*pointer_get_attributes)(PointerAttributes*, const void*) = nullptr;
};

}  // namespace dtrun::collectives::nccl
