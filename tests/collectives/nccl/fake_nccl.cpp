#include "tests/collectives/nccl/fake_comm.h"
#include "tests/collectives/nccl/fake_gpu.h"

#include <unistd.h>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

// NCCL without GPUs: the functions that the nccl plug-in uses, as NCCL 2.28 has them. Data go over
// loopback, streams are threads, communicators may be made without waiting. Never installed.
// What goes wrong is in the environment:
//   FAKE_NCCL_VERSION=22703     another version
//   FAKE_NCCL_HANG_INIT=RANK:1  this rank never gets ready
//   FAKE_NCCL_DIE=RANK:N        its Nth operation hangs up, as if its process had died
//   FAKE_NCCL_STALL=RANK:N      its Nth operation never ends
//   FAKE_NCCL_BLOCK=RANK:N      its Nth call does not return until the communicator is aborted
//   FAKE_NCCL_HANG_ABORT=RANK:1 its aborts do not return, as some versions' do
//   NCCL_HOSTID                 as the real one: ranks with different ones may share a GPU
//   NCCL_COMM_SPLIT_SHARE_RESOURCES=0
//                               as the real one: who aborts a communicator does not abort the ones
//                               that were split of it

namespace dtrun::collectives::nccl {

struct NcclComm {
    std::shared_ptr<fake::State> state;
    int calls = 0;
};

}  // namespace dtrun::collectives::nccl

using namespace fake;

namespace {

/// A group of calls of this thread.
struct Group {
    struct Call {
        NcclComm* comm;
        GpuStream* stream;
        Task task;
    };
    int depth = 0;
    std::vector<Call> calls;
};
thread_local Group group;
thread_local std::string last_error;

NcclResult refuse(NcclResult why, std::string text) {
    last_error = std::move(text);
    return why;
}

/// A communicator that is still busy may not be used, as with the real library.
NcclResult ready(NcclComm* comm) {
    if (comm->state->result == NcclResult::in_progress)
        return refuse(NcclResult::invalid_argument,
                      "Attempt to use communicator before the previous operation returned "
                      "ncclSuccess");
    if (comm->state->background.joinable()) comm->state->background.join();
    return comm->state->result;
}

/// Does `work` now, or behind the caller's back.
NcclResult launch(NcclComm* comm, std::function<void()> work) {
    State& state = *comm->state;
    if (state.blocking) {
        work();
        return state.result;
    }
    // What is under way in a stream may just have failed.
    NcclResult now = NcclResult::success;
    if (!state.result.compare_exchange_strong(now, NcclResult::in_progress)) return now;
    state.background = std::thread([&state, work = std::move(work)] {
        work();
        NcclResult expected = NcclResult::in_progress;
        state.result.compare_exchange_strong(expected, NcclResult::success);
    });
    return NcclResult::in_progress;
}

std::uint64_t host_hash() {
    const char* const id = std::getenv("NCCL_HOSTID");
    char name[256] = "";
    ::gethostname(name, sizeof name - 1);
    return std::hash<std::string>()(id == nullptr ? name : id);
}

void refuse_shared_gpu(State& state) {
    const auto& ranks = state.shared->mesh->ranks();
    const RankAddress& self = ranks[static_cast<std::size_t>(state.rank)];
    for (const RankAddress& other : ranks)
        if (other.rank != self.rank && other.host == self.host && other.device == self.device)
            return state.failed(NcclResult::invalid_usage,
                                "Duplicate GPU detected : rank " + std::to_string(self.rank) +
                                    " and rank " + std::to_string(other.rank) +
                                    " both on CUDA device " + std::to_string(self.device));
}

void join(State& state, const UniqueId& id, int device) {
    RootAddress root{};
    std::memcpy(&root, id.bytes, sizeof root);
    RankAddress self;
    self.rank = state.rank;
    self.size = state.size;
    self.device = device;
    self.host = host_hash();
    try {
        while (wanted("FAKE_NCCL_HANG_INIT", state.rank, 1)) {
            if (state.shared->aborted) return;
            ::usleep(1'000);
        }
        state.shared->mesh = std::make_shared<Mesh>(root, self, state.shared->aborted);
        refuse_shared_gpu(state);
    } catch (const Aborted&) {
    } catch (const Broken& broken) {
        state.failed(NcclResult::system_error, broken.what());
    }
}

NcclResult init(NcclComm** comm, int size, const UniqueId& id, int rank, const NcclConfig* config) {
    if (config->magic != 0xcafebeef || config->size != 80 || config->version == 0)
        return refuse(NcclResult::invalid_argument, "config was not initialised");
    if (std::memcmp(id.bytes, "fakenccl", 8) != 0 || rank < 0 || rank >= size)
        return refuse(NcclResult::invalid_argument, "no unique id, or no such rank");
    *comm = new NcclComm{std::make_shared<State>()};
    State& state = *(*comm)->state;
    state.shared->comms.push_back(*comm);
    state.rank = rank;
    state.size = size;
    state.blocking = config->blocking != 0;
    return launch(*comm, [&state, id, device = current_device()] { join(state, id, device); });
}

void enqueue(const std::vector<Group::Call>& calls) {
    for (std::size_t i = 0; i < calls.size();) {
        std::vector<Task> tasks;
        const std::size_t first = i;
        while (i < calls.size() && calls[i].stream == calls[first].stream &&
               calls[i].comm == calls[first].comm)
            tasks.push_back(calls[i++].task);
        stream_of(calls[first].stream)
            .enqueue([state = calls[first].comm->state, all = std::move(tasks)] {
                perform(*state, all);
            });
    }
}

NcclResult call(NcclComm* comm, GpuStream* stream, const Task& task);

std::size_t bytes_read(const Task& task, int size, bool root) {
    const std::size_t part = task.count * bytes_of(task.type);
    const bool parts = task.kind == Kind::reduce_scatter || task.kind == Kind::all_to_all ||
                       task.kind == Kind::scatter;
    if (task.kind == Kind::recv) return 0;
    if ((task.kind == Kind::scatter || task.kind == Kind::broadcast) && !root) return 0;
    return parts ? part * static_cast<std::size_t>(size) : part;
}

std::size_t bytes_written(const Task& task, int size, bool root) {
    const std::size_t part = task.count * bytes_of(task.type);
    const bool parts =
        task.kind == Kind::all_gather || task.kind == Kind::all_to_all || task.kind == Kind::gather;
    if (task.kind == Kind::send) return 0;
    if ((task.kind == Kind::gather || task.kind == Kind::reduce) && !root) return 0;
    return parts ? part * static_cast<std::size_t>(size) : part;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

NcclResult ncclGetVersion(int* version) {
    const char* const other = std::getenv("FAKE_NCCL_VERSION");
    *version = other == nullptr ? 22809 : std::atoi(other);
    return NcclResult::success;
}

NcclResult ncclGetUniqueId(UniqueId* id) {
    const RootAddress root = start_root();
    std::memset(id->bytes, 0, sizeof id->bytes);
    std::memcpy(id->bytes, &root, sizeof root);
    return NcclResult::success;
}

NcclResult ncclCommInitRankConfig(NcclComm** comm, int size, UniqueId id, int rank,
                                  NcclConfig* config) {
    return init(comm, size, id, rank, config);
}

NcclResult ncclCommInitRankScalable(NcclComm** comm, int size, int rank, int ids, UniqueId* all,
                                    NcclConfig* config) {
    for (int i = 1; i < ids; ++i)
        if (std::memcmp(all[i].bytes, "fakenccl", 8) != 0 ||
            std::memcmp(all[i].bytes, all[0].bytes, sizeof(UniqueId)) == 0)
            return refuse(NcclResult::invalid_argument, "not so many unique ids");
    return init(comm, size, all[0], rank, config);
}

/// Only into one that has the same ranks.
NcclResult ncclCommSplit(NcclComm* comm, int colour, int key, NcclComm** made, NcclConfig* config) {
    if (const NcclResult now = ready(comm); now != NcclResult::success) return now;
    if (colour != 0 || key != comm->state->rank || config->magic != 0xcafebeef)
        return refuse(NcclResult::invalid_argument, "not what the fake library can do");
    auto child = std::make_shared<State>();
    State& parent = *comm->state;
    child->shared = parent.shared;
    const char* const share = std::getenv("NCCL_COMM_SPLIT_SHARE_RESOURCES");
    if (share != nullptr && std::strcmp(share, "0") == 0) {
        child->shared = std::make_shared<Shared>();
        child->shared->other = parent.shared;
        child->shared->mesh = parent.shared->mesh;
    }
    child->rank = parent.rank;
    child->size = parent.size;
    child->blocking = config->blocking != 0;
    *made = nullptr;
    const NcclResult begun = launch(comm, [&parent, child, made] {
        const Task barrier{Kind::all_reduce, nullptr, nullptr, 0, NcclType::u8};
        perform(parent, {barrier});
        *made = new NcclComm{child};
        child->shared->comms.push_back(*made);
    });
    // The real library does not tell here that the work is under way (2.28.9).
    return begun == NcclResult::in_progress ? NcclResult::success : begun;
}

NcclResult ncclCommFinalize(NcclComm* comm) {
    if (const NcclResult now = ready(comm); now != NcclResult::success) return now;
    return launch(comm, [] {});
}

NcclResult ncclCommDestroy(NcclComm* comm) {
    const NcclResult now = ready(comm);
    delete comm;
    return now;
}

NcclResult ncclCommAbort(NcclComm* comm) {
    comm->state->shared->aborted = true;
    // Who is left alone leaves what it has made, and that is no leak of the product.
    static auto& left_alone = *new std::vector<std::shared_ptr<Shared>>;
    if (wanted("FAKE_NCCL_HANG_ABORT", comm->state->rank, 1))
        left_alone.push_back(comm->state->shared);
    while (wanted("FAKE_NCCL_HANG_ABORT", comm->state->rank, 1)) ::usleep(1'000);
    if (comm->state->background.joinable()) comm->state->background.join();
    delete comm;
    return NcclResult::success;
}

NcclResult ncclCommGetAsyncError(NcclComm* comm, NcclResult* result) {
    *result = comm->state->result;
    return NcclResult::success;
}

const char* ncclGetErrorString(NcclResult result) {
    switch (result) {
        case NcclResult::success:
            return "no error";
        case NcclResult::unhandled_cuda_error:
            return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
        case NcclResult::system_error:
            return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
        case NcclResult::internal_error:
            return "internal error - please report this issue to the NCCL developers";
        case NcclResult::invalid_argument:
            return "invalid argument (run with NCCL_DEBUG=WARN for details)";
        case NcclResult::invalid_usage:
            return "invalid usage (run with NCCL_DEBUG=WARN for details)";
        case NcclResult::remote_error:
            return "remote process exited or there was a network error";
        case NcclResult::in_progress:
            return "NCCL operation in progress";
    }
    return "unknown result code";
}

const char* ncclGetLastError(NcclComm* comm) {
    if (comm != nullptr && !comm->state->error().empty()) last_error = comm->state->error();
    return last_error.c_str();
}

NcclResult ncclGroupStart() {
    ++group.depth;
    return NcclResult::success;
}

NcclResult ncclGroupEnd() {
    if (--group.depth > 0) return NcclResult::success;
    const std::vector<Group::Call> calls = std::exchange(group.calls, {});
    if (calls.empty()) return NcclResult::success;
    NcclComm* const comm = calls.front().comm;
    ++comm->calls;
    return launch(comm, [comm, calls] {
        const State& state = *comm->state;
        while (wanted("FAKE_NCCL_BLOCK", state.rank, comm->calls) && !state.shared->aborted)
            ::usleep(1'000);
        enqueue(calls);
    });
}

NcclResult ncclAllReduce(const void* in, void* out, std::size_t count, NcclType type, NcclOp op,
                         NcclComm* comm, GpuStream* stream) {
    return call(comm, stream, {Kind::all_reduce, in, out, count, type, op});
}

NcclResult ncclReduce(const void* in, void* out, std::size_t count, NcclType type, NcclOp op,
                      int root, NcclComm* comm, GpuStream* stream) {
    return call(comm, stream, {Kind::reduce, in, out, count, type, op, root});
}

NcclResult ncclReduceScatter(const void* in, void* out, std::size_t count, NcclType type, NcclOp op,
                             NcclComm* comm, GpuStream* stream) {
    return call(comm, stream, {Kind::reduce_scatter, in, out, count, type, op});
}

NcclResult ncclBroadcast(const void* in, void* out, std::size_t count, NcclType type, int root,
                         NcclComm* comm, GpuStream* stream) {
    return call(comm, stream, {Kind::broadcast, in, out, count, type, NcclOp::sum, root});
}

NcclResult ncclAllGather(const void* in, void* out, std::size_t count, NcclType type,
                         NcclComm* comm, GpuStream* stream) {
    return call(comm, stream, {Kind::all_gather, in, out, count, type});
}

NcclResult ncclAlltoAll(const void* in, void* out, std::size_t count, NcclType type, NcclComm* comm,
                        GpuStream* stream) {
    return call(comm, stream, {Kind::all_to_all, in, out, count, type});
}

NcclResult ncclGather(const void* in, void* out, std::size_t count, NcclType type, int root,
                      NcclComm* comm, GpuStream* stream) {
    return call(comm, stream, {Kind::gather, in, out, count, type, NcclOp::sum, root});
}

NcclResult ncclScatter(const void* in, void* out, std::size_t count, NcclType type, int root,
                       NcclComm* comm, GpuStream* stream) {
    return call(comm, stream, {Kind::scatter, in, out, count, type, NcclOp::sum, root});
}

NcclResult ncclSend(const void* in, std::size_t count, NcclType type, int peer, NcclComm* comm,
                    GpuStream* stream) {
    return call(comm, stream, {Kind::send, in, nullptr, count, type, NcclOp::sum, peer});
}

NcclResult ncclRecv(void* out, std::size_t count, NcclType type, int peer, NcclComm* comm,
                    GpuStream* stream) {
    return call(comm, stream, {Kind::recv, nullptr, out, count, type, NcclOp::sum, peer});
}

}  // extern "C"
#pragma GCC visibility pop

namespace {

/// A call outside of a group is a group of its own.
NcclResult call(NcclComm* comm, GpuStream* stream, const Task& task) {
    if (const NcclResult now = ready(comm); now != NcclResult::success) return now;
    const int size = comm->state->size;
    const bool root = comm->state->rank == task.peer;
    if (task.peer < 0 || task.peer >= size)
        return refuse(NcclResult::invalid_argument, "no such rank");
    if (const std::size_t bytes = bytes_read(task, size, root);
        bytes > 0 && !is_device_memory(task.in, bytes))
        return refuse(NcclResult::invalid_argument, "data to send are not in a GPU's memory");
    if (const std::size_t bytes = bytes_written(task, size, root);
        bytes > 0 && !is_device_memory(task.out, bytes))
        return refuse(NcclResult::invalid_argument, "data to receive are not in a GPU's memory");
    ncclGroupStart();
    group.calls.push_back({comm, stream, task});
    return ncclGroupEnd();
}

}  // namespace
