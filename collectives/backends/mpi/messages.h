#pragma once

#include "collectives/backends/mpi/runtime.h"
#include "collectives/group.h"

#include <mpi.h>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace dtrun::collectives {

#ifdef DTRUN_MPI_CHUNK_BYTES  // a small one, for tests
inline constexpr std::size_t kChunkBytes = DTRUN_MPI_CHUNK_BYTES;
#else
/// Most bytes of one MPI call, whose counts are ints.
inline constexpr std::size_t kChunkBytes = std::size_t{1} << 30;
#endif

/// Messages between members of a communicator that nobody else uses.
class MpiMessages final : public Pending {
public:
    /// \param call  of Group::expect()
    static Result<std::unique_ptr<Pending>> start(MpiRuntime& runtime,
                                                  MpiRuntime::Activity& activity, MPI_Comm comm,
                                                  std::uint64_t call, std::span<const Send> sends,
                                                  std::span<const Receive> receives);
    ~MpiMessages() override;
    void poll() override;
    Result<void> wait() override;

private:
    MpiMessages(MpiRuntime& runtime, MpiRuntime::Activity& activity, std::size_t chunks);
    /// \param post  MPI_Isend or MPI_Irecv of a chunk
    template <class Post>
    int begin(std::size_t bytes, bool receives, Post post);
    void advance(int code, const char* function, bool done, const MPI_Status& status);
    std::optional<Error> wrong_size(const MPI_Status& status) const;

    static constexpr std::size_t kFew = 8;

    MpiRuntime& runtime_;
    MpiRuntime::Activity& activity_;
    /// A chunk of a message.
    struct Request {
        MPI_Request handle;
        int expected;  ///< bytes that are received; -1: it is sent
    };
    Request few_[kFew];
    std::vector<Request> many_;
    Request* requests_;
    int count_ = 0;
    /// Index of the first incomplete chunk. Chunks are waited for one by one: MPI_Waitall of Open
    /// MPI 4.1 with MPI_THREAD_MULTIPLE does not return when one fails.
    int next_ = 0;
    Result<void> result_;
};

}  // namespace dtrun::collectives
