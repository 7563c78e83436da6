#pragma once

#include "base/result.h"
#include "collectives/compression.h"
#include "collectives/key_store.h"
#include "collectives/operation.h"
#include "collectives/topology.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace dtrun::collectives {

struct HostTopology;

/// What a backend is told to make a group of ranks.
struct GroupSpec {
    std::uint32_t rank = 0;  ///< of this process in the group
    std::uint32_t size = 1;
    /// Ranks of the job by rank of the group; a group of all is 0, 1, 2, ...
    std::vector<std::uint32_t> members;
    Topology topology;          ///< which of them are on one host
    KeyStore* store = nullptr;  ///< outlives the group
    /// Begins every key that the group uses. Never the same for two groups of a job.
    std::string prefix;
    /// Timeout for all ranks to come, and for a connection that is made later.
    std::chrono::milliseconds timeout{300'000};
    /// Network interfaces that may be used, in order of preference, or an address of this host;
    /// empty: the backend's own choice.
    std::vector<std::string> interfaces;
    std::string address;  ///< of this host, at which the other members reach it; "" unknown
    std::uint32_t local_rank = 0;  ///< of this process on its host: its GPU, among other things
    int gpu = -1;                  ///< of this process, that was asked for by its number; -1: none
    bool encrypt = false;          ///< the job's; only dtrun's own backend can
    std::uint64_t generation = 0;  ///< of the job's membership; MPI does not survive a change
    /// Asked now and then by a thread that waits in an operation: true ends it. May be empty.
    std::function<bool()> interrupted{};
};

/// A message of start(). Between two ranks, messages are matched in the order in which they are
/// started; sizes must be equal on both sides.
struct Send {
    std::uint32_t peer;
    const void* data;
    std::size_t bytes;
};
struct Receive {
    std::uint32_t peer;
    void* data;
    std::size_t bytes;
};

/// Messages that are under way. Its destructor waits.
class Pending {
public:
    virtual ~Pending() = default;
    /// Lets the backend work, without waiting. Some send only while somebody calls them.
    virtual void poll() {}
    virtual Result<void> wait() = 0;
};

/// One of many arrays of a call; reduced in place.
struct Array {
    void* data;
    std::size_t count;
    float* error = nullptr;  ///< for error feedback, or nullptr
};

/// What a backend says of itself and of the group, for reports.
struct GroupFacts {
    std::string version;    ///< "Open MPI 4.1.4"
    std::string transport;  ///< "tcp over eth0", "shared memory and tcp"
    /// "GPUDirect P2P" -> "yes" or "no: ...": for `dtrun bench --explain`
    std::vector<std::pair<std::string, std::string>> details;
};

/// A communicator of one library. Calls must be made by all ranks, in the same order, with the same
/// arguments (the data aside); sizes may be 0.
///
/// In place, as operations.def says: arrays of the same length may be the same, and the shorter one may be this rank's
/// part of the longer one. Otherwise they do not overlap.
///
/// Errors of all: closed (a peer is gone; `lost` tells which if that is known), cancelled (by
/// abort()), timed_out, internal. After an error only destruction is allowed.
///
/// Thread: one at a time; abort() from any thread.
class Group {
public:
    virtual ~Group() = default;

    /// Called once, before all operations but barriers and allgathers on the host: which ranks can share
    /// memory, and the way to do it, both of which outlive the group. A library of its own need not care, and a
    /// plug-in is not asked, as that memory is not for other libraries' code.
    virtual Result<void> set_topology(const HostTopology& host_topology) {
        static_cast<void>(host_topology);
        return {};
    }

    virtual GroupFacts facts() const = 0;
    /// Data are in memory of the GPU, not of the host.
    virtual bool on_device() const { return false; }

    /// Does what all ranks call at the same time. What is only moved is bytes: its type is u8. Never adasum, which is
    /// made of messages, as is what a library has not got (by_messages.h).
    virtual Result<void> run(const Operation& what) = 0;

    /// Whether allreduce_many() takes many small arrays as one; else the communicator copies them together.
    virtual bool fuses() const { return on_device(); }
    /// The same as an allreduce of each, without a wait in between where a backend can do that.
    virtual Result<void> allreduce_many(std::span<const Array> arrays, DType type, Reduce reduce) {
        for (const Array& array : arrays) {
            auto ok = run(op::allreduce(array.data, array.data, array.count, type, reduce));
            if (!ok) return ok;
        }
        return {};
    }
    /// The counterpart of CompressedAllreduce for groups on_device(), on GPU memory.
    /// \param call  see CompressedAllreduce::run()
    /// Errc: invalid_input (reduce; no codecs for this device)
    virtual Result<void> allreduce_compressed(std::span<const Segment> segments, Reduce reduce,
                                              const Compression& compression, std::uint64_t call) {
        static_cast<void>(segments), static_cast<void>(reduce);
        static_cast<void>(compression), static_cast<void>(call);
        return fail(Errc::invalid_input, "compression is for host memory: copy the data there");
    }
    /// An allgather in host memory, for the communicator's own small messages.
    virtual Result<void> allgather_on_host(const void* in, void* out, std::size_t bytes) {
        return run(op::allgather(in, out, bytes));
    }

    /// The host's memory of set_topology() has failed, with which the communicator works by itself: ends the group.
    /// \return what the operation fails with
    virtual Error failed_in_memory(const Error& error) { return error; }

    /// Starts messages between pairs of ranks, which are not mixed up with other calls' messages.
    /// None may go to this rank itself. The caller leaves the data alone until wait() has returned.
    virtual Result<std::unique_ptr<Pending>> start(std::span<const Send> sends,
                                                   std::span<const Receive> receives) = 0;

    /// Interrupts operations of other threads, here and, by and by, at the other members.
    virtual void abort() noexcept = 0;
    /// The member whose connection broke first here, after an error.
    virtual std::optional<std::uint32_t> lost() const { return std::nullopt; }

    /// Sets a mark behind what the caller has given `stream` of the GPU, a cudaStream_t (nullptr: the
    /// legacy default stream). By any thread, at any time.
    /// \return nullptr if the data are not on_device()
    virtual std::shared_ptr<void> mark(void* stream) {
        static_cast<void>(stream);
        return nullptr;
    }
    /// What follows comes after the mark; nullptr: after the legacy default stream as it is then.
    virtual void follow(std::shared_ptr<void> mark) { static_cast<void>(mark); }
    /// Announces the next call, by a number that is the same on all ranks. A backend that can keeps
    /// calls with different numbers apart, so that ranks that disagree wait instead of corrupting
    /// data.
    virtual void expect(std::uint64_t call) { static_cast<void>(call); }
};

/// Whether a backend can be had in this process, and why not.
struct Availability {
    bool available = false;
    std::string why;  ///< "no libnccl.so.2: ..."; or what was found, if it is available
};

}  // namespace dtrun::collectives
