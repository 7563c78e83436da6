#pragma once

#include "collectives/backends/nccl/api.h"
#include "tests/collectives/nccl/fake_mesh.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace fake {

using dtrun::collectives::nccl::GpuStream;
using dtrun::collectives::nccl::NcclComm;
using dtrun::collectives::nccl::NcclConfig;
using dtrun::collectives::nccl::NcclOp;
using dtrun::collectives::nccl::NcclResult;
using dtrun::collectives::nccl::NcclType;
using dtrun::collectives::nccl::UniqueId;

enum class Kind {
    all_reduce,
    reduce,
    reduce_scatter,
    broadcast,
    all_gather,
    all_to_all,
    gather,
    scatter,
    send,
    recv
};

/// A call of the library, until it is done in a stream.
struct Task {
    Kind kind;
    const void* in;
    void* out;
    std::size_t count;
    NcclType type;
    NcclOp op = NcclOp::sum;
    int peer = 0;  ///< or root
};

/// What a communicator shares with those that were split of it.
struct Shared {
    std::atomic<bool> aborted{false};
    std::shared_ptr<Shared> other;  ///< whose flag the mesh looks at, if not this one's
    std::shared_ptr<Mesh> mesh;
    std::atomic<int> operations{0};
    std::vector<NcclComm*>
        comms;  ///< that share it, so that they are found if one of them is left alone
};

/// A communicator, which its operations keep alive.
struct State {
    std::shared_ptr<Shared> shared = std::make_shared<Shared>();
    int rank = 0;
    int size = 1;
    bool blocking = true;
    std::atomic<NcclResult> result{NcclResult::success};
    std::thread background;  ///< joined before the next

    void failed(NcclResult why, const std::string& text);
    std::string error();

private:
    std::mutex mutex_;
    std::string error_;
};

/// Does tasks of one group one after the other, messages among them at once. Never throws; when it
/// fails it does not return before the communicator is aborted, as on a GPU.
void perform(State& state, const std::vector<Task>& tasks);

/// Whether a failure is wanted of this rank now: `name` is "rank:operation" in the environment,
/// operations counted from 1.
bool wanted(const char* name, int rank, int operation);

std::size_t bytes_of(NcclType type);

}  // namespace fake
