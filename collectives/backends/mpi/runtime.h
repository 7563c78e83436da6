#pragma once

#include "collectives/backends/mpi/choose_mpi.h"
#include "collectives/backends/mpi/rank_status.h"
#include "collectives/types.h"

#include <mpi.h>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>

namespace dtrun::collectives {

#ifdef OPEN_MPI
inline constexpr MpiLibrary kMpiLibrary = MpiLibrary::openmpi;
#else
inline constexpr MpiLibrary kMpiLibrary = MpiLibrary::mpich;
#endif

/// What an MPI function has returned, as an error: "MPI_Allreduce: message truncated".
std::unexpected<Error> mpi_failed(int code, const char* function);

/// MPI of this process: whoever begins it, it begins once and ends once.
///
/// Thread: any.
class MpiRuntime {
public:
    /// MPI itself is there once in a process, and so is this.
    static MpiRuntime& of_process();

    /// Whether this process can take part in a group.
    RankStatus status(const GroupSpec& spec);

    /// Calls MPI_Init unless the program has. If it does, MPI_Finalize follows when the process
    /// exits with status 0: another status ends the job anyway, and must not be delayed by
    /// MPI_Finalize, which waits for ranks that still work.
    /// \param interfaces  names of those to use; empty: MPI's own choice
    Result<void> begin(std::span<const std::string> interfaces);

    struct Reduction {
        MPI_Datatype type;
        MPI_Op op;
    };
    Reduction reduction(DType type, Reduce reduce) const;

    /// A lock to hold during MPI calls, where MPI allows one thread at a time.
    std::unique_lock<std::mutex> turn() {
        return serial_ ? std::unique_lock(one_at_a_time_) : std::unique_lock<std::mutex>();
    }

    /// How many MPI functions or messages a group has under way. Written by one thread at a time.
    class Activity {
    public:
        void add(int calls) {
            under_way_.store(under_way_.load(std::memory_order_relaxed) + calls,
                             std::memory_order_relaxed);
        }
        bool any() const { return under_way_.load(std::memory_order_relaxed) != 0; }

    private:
        std::atomic<int> under_way_{0};
    };
    void enter(const Activity* activity);
    void leave(const Activity* activity);

    /// Whether MPI_Finalize has been called, after which no MPI function may be.
    static bool ended();

    /// For reports: who has begun MPI, how many threads it takes, which interfaces it was told.
    std::string begun_by() const { return ours_ ? "dtrun" : "the program"; }
    std::string threads() const;
    const std::string& settings() const { return settings_; }

private:
    MpiRuntime() = default;
    void prepare(std::span<const std::string> interfaces);
    void end(int status);

    std::mutex mutex_;  ///< of what follows
    bool adopted_ = false;
    bool ours_ = false;
    pid_t pid_ = 0;  ///< a child of fork() is not to call MPI_Finalize
    std::optional<std::uint64_t> generation_;
    std::set<const Activity*> activities_;
    std::string settings_;

    int thread_level_ = MPI_THREAD_SINGLE;
    bool serial_ = false;
    std::mutex one_at_a_time_;
    /// Sum, product, min and max by reduce_into(): for halves, which MPI lacks, for bytes, which
    /// MPICH 4.0 always compares as signed and Open MPI 4.1 adds without wrapping around, and for
    /// min and max of other floats, where MPI's own lose NaNs.
    struct Operations {
        MPI_Op by_reduce[4] = {};
    };
    template <DType type>
    static int create(Operations& operations);
    Operations f32_;
    Operations f64_;
    Operations f16_;
    Operations bf16_;
    Operations i8_;
    Operations u8_;
};

}  // namespace dtrun::collectives
