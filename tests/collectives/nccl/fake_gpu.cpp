#include "tests/collectives/nccl/fake_gpu.h"

#include "collectives/backends/nccl/api.h"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

// The functions of the CUDA runtime that the nccl plug-in uses. Settings of the environment:
//   FAKE_GPU_COUNT    GPUs (default 8)
//   FAKE_GPU_ERROR    what cudaGetDeviceCount() returns instead
//   FAKE_GPU_NO_PEER  no GPU reaches another's memory
//   FAKE_GPU_MEMORY   the most bytes that cudaMalloc() gives at once

using dtrun::collectives::nccl::GpuEvent;
using dtrun::collectives::nccl::GpuStream;
using dtrun::collectives::nccl::PointerAttributes;

namespace dtrun::collectives::nccl {

struct GpuStream {
    fake::Stream stream;
};

struct GpuEvent {
    struct Record {
        std::mutex mutex;
        std::condition_variable changed;
        bool reached = false;
    };
    std::shared_ptr<Record> last;
};

}  // namespace dtrun::collectives::nccl

namespace fake {
namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kNoDevice = 100;
constexpr int kOutOfMemory = 2;
constexpr int kInvalidDevice = 101;
constexpr int kNotReady = 600;

struct Memory {
    std::size_t bytes;
    int device;
};

std::mutex memory_mutex;
std::map<const std::byte*, Memory>& all_memory() {
    static std::map<const std::byte*, Memory> memory;
    return memory;
}

/// The device of these bytes, or -1.
int device_of(const void* data, std::size_t bytes) {
    const auto* const at = static_cast<const std::byte*>(data);
    const std::lock_guard lock(memory_mutex);
    auto found = all_memory().upper_bound(at);
    if (found == all_memory().begin()) return -1;
    --found;
    const bool inside = at + bytes <= found->first + found->second.bytes;
    return inside && at < found->first + found->second.bytes ? found->second.device : -1;
}

thread_local int device = 0;

int device_count() {
    const char* const count = std::getenv("FAKE_GPU_COUNT");
    return count == nullptr ? 8 : std::atoi(count);
}

Stream& default_stream() {
    static Stream stream;
    return stream;
}

/// Holds a stream up, for tests. One at a time.
struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool closed = false;
};
Gate& gate() {
    static Gate one;
    return one;
}

/// The stream that is being captured, for tests; nullptr: none.
std::atomic<GpuStream*> captured = nullptr;
std::atomic<int> queries_of_captures = 0;  ///< which would have ended the capture
thread_local int capture_mode = 0;         ///< global
thread_local int gpu_error = kSuccess;

int note(int code) {
    if (code != kSuccess) gpu_error = code;
    return code;
}

}  // namespace

Stream::~Stream() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void Stream::enqueue(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    works_.push_back(std::move(work));
    changed_.notify_all();
}

bool Stream::idle() {
    const std::lock_guard lock(mutex_);
    return works_.empty() && !working_;
}

void Stream::wait_until_idle() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return works_.empty() && !working_; });
}

void Stream::run() {
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [this] { return stopping_ || !works_.empty(); });
        if (works_.empty()) return;
        std::function<void()> work = std::move(works_.front());
        works_.pop_front();
        working_ = true;
        lock.unlock();
        work();
        work = nullptr;
        lock.lock();
        working_ = false;
        if (works_.empty()) idle_.notify_all();
    }
}

Stream& stream_of(void* handle) {
    // 1 is another name of the legacy default stream, as in CUDA.
    const bool is_default = reinterpret_cast<std::uintptr_t>(handle) <= 1;
    return is_default ? default_stream() : static_cast<GpuStream*>(handle)->stream;
}

bool is_device_memory(const void* data, std::size_t bytes) {
    return device_of(data, bytes) >= 0;
}

int current_device() {
    return device;
}

}  // namespace fake

using namespace fake;

#pragma GCC visibility push(default)
extern "C" {

int cudaGetDeviceCount(int* count) {
    if (const char* const error = std::getenv("FAKE_GPU_ERROR")) return std::atoi(error);
    *count = device_count();
    return *count == 0 ? kNoDevice : kSuccess;
}

int cudaGetDevice(int* current) {
    *current = device;
    return kSuccess;
}

int cudaSetDevice(int chosen) {
    if (chosen < 0 || chosen >= device_count()) return kInvalidDevice;
    device = chosen;
    return kSuccess;
}

int cudaDeviceGetPCIBusId(char* id, int length, int of) {
    std::snprintf(id, static_cast<std::size_t>(length), "0000:%02x:00.0", of + 0x10);
    return kSuccess;
}

int cudaDeviceGetByPCIBusId(int* found, const char* id) {
    unsigned bus = 0;
    if (std::sscanf(id, "0000:%x:00.0", &bus) != 1 || bus < 0x10) return kInvalidValue;
    *found = static_cast<int>(bus) - 0x10;
    return *found < device_count() ? kSuccess : kInvalidDevice;
}

int cudaDeviceCanAccessPeer(int* can, int, int) {
    *can = std::getenv("FAKE_GPU_NO_PEER") == nullptr ? 1 : 0;
    return kSuccess;
}

int cudaStreamCreateWithFlags(GpuStream** stream, unsigned) {
    *stream = new GpuStream;
    return kSuccess;
}

int cudaStreamDestroy(GpuStream* stream) {
    delete stream;
    return kSuccess;
}

int cudaStreamQuery(GpuStream* stream) {
    if (captured != nullptr && (capture_mode != 2 || stream == captured)) ++queries_of_captures;
    return note(stream_of(stream).idle() ? kSuccess : kNotReady);
}

int cudaStreamSynchronize(GpuStream* stream) {
    stream_of(stream).wait_until_idle();
    return kSuccess;
}

int cudaStreamIsCapturing(GpuStream* stream, int* status) {
    *status = stream != nullptr && stream == captured ? 1 : 0;
    return kSuccess;
}

int cudaThreadExchangeStreamCaptureMode(int* mode) {
    std::swap(*mode, capture_mode);
    return kSuccess;
}

int cudaEventCreateWithFlags(GpuEvent** event, unsigned) {
    *event = new GpuEvent;
    return kSuccess;
}

int cudaEventDestroy(GpuEvent* event) {
    delete event;
    return kSuccess;
}

int cudaEventRecord(GpuEvent* event, GpuStream* stream) {
    event->last = std::make_shared<GpuEvent::Record>();
    stream_of(stream).enqueue([record = event->last] {
        const std::lock_guard lock(record->mutex);
        record->reached = true;
        record->changed.notify_all();
    });
    return kSuccess;
}

int cudaEventQuery(GpuEvent* event) {
    if (event->last == nullptr) return kSuccess;
    const std::lock_guard lock(event->last->mutex);
    return note(event->last->reached ? kSuccess : kNotReady);
}

int cudaStreamWaitEvent(GpuStream* stream, GpuEvent* event, unsigned) {
    if (event->last == nullptr) return kSuccess;
    stream_of(stream).enqueue([record = event->last] {
        std::unique_lock lock(record->mutex);
        record->changed.wait(lock, [&] { return record->reached; });
    });
    return kSuccess;
}

int cudaMalloc(void** data, std::size_t bytes) {
    const char* const most = std::getenv("FAKE_GPU_MEMORY");
    if (most != nullptr && bytes > std::strtoull(most, nullptr, 10)) return note(kOutOfMemory);
    *data = std::malloc(bytes == 0 ? 1 : bytes);
    const std::lock_guard lock(memory_mutex);
    all_memory()[static_cast<std::byte*>(*data)] = {bytes, device};
    return kSuccess;
}

int cudaFree(void* data) {
    if (data == nullptr) return kSuccess;
    {
        const std::lock_guard lock(memory_mutex);
        if (all_memory().erase(static_cast<std::byte*>(data)) == 0) return kInvalidValue;
    }
    std::free(data);
    return kSuccess;
}

int cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
    *data = std::malloc(bytes == 0 ? 1 : bytes);
    return kSuccess;
}

int cudaFreeHost(void* data) {
    std::free(data);
    return kSuccess;
}

int cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int, GpuStream* stream) {
    stream_of(stream).enqueue([=] { std::memmove(to, from, bytes); });
    return kSuccess;
}

int cudaMemcpy(void* to, const void* from, std::size_t bytes, int) {
    if (bytes > 0) std::memmove(to, from, bytes);
    return kSuccess;
}

int cudaGetLastError() {
    return std::exchange(gpu_error, kSuccess);
}

int cudaPeekAtLastError() {
    return gpu_error;
}

const char* cudaGetErrorString(int code) {
    switch (code) {
        case kSuccess:
            return "no error";
        case kInvalidValue:
            return "invalid argument";
        case kNoDevice:
            return "no CUDA-capable device is detected";
        case kOutOfMemory:
            return "out of memory";
        case kInvalidDevice:
            return "invalid device ordinal";
        case 35:
            return "CUDA driver version is insufficient for CUDA runtime version";
        default:
            return "unrecognized error code";
    }
}

int cudaPointerGetAttributes(PointerAttributes* attributes, const void* data) {
    const int found = device_of(data, 1);
    attributes->type = found < 0 ? 0 : PointerAttributes::kDevice;
    attributes->device = found < 0 ? -2 : found;
    return kSuccess;
}

/// Not of CUDA: the stream does nothing more until fakeOpenGate().
void fakeCloseGate(GpuStream* stream) {
    {
        const std::lock_guard lock(gate().mutex);
        gate().closed = true;
    }
    stream_of(stream).enqueue([] {
        std::unique_lock lock(gate().mutex);
        gate().changed.wait(lock, [] { return !gate().closed; });
    });
}

void fakeOpenGate() {
    const std::lock_guard lock(gate().mutex);
    gate().closed = false;
    gate().changed.notify_all();
}

/// Not of CUDA: captures a stream; nullptr: no more. \return calls that have disturbed the last one
int fakeCapture(GpuStream* stream) {
    captured = stream;
    return queries_of_captures.exchange(0);
}

}  // extern "C"
#pragma GCC visibility pop
