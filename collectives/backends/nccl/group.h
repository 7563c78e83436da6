#pragma once

#include "collectives/backends/nccl/bootstrap.h"
#include "collectives/backends/nccl/codec_cuda.h"
#include "collectives/backends/nccl/facts.h"
#include "collectives/backends/nccl/library.h"
#include "collectives/backends/nccl/streams.h"
#include "collectives/group.h"

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace dtrun::collectives::nccl {

/// A group of ranks with a GPU each, over NCCL or RCCL.
///
/// Operations run in a stream of the group's own and have ended when they return, so that whatever
/// the caller gives any stream then comes after them. They come after a mark() in the caller's
/// stream, or after what the default stream was given before.
///
/// Messages of start() are sent when the caller waits or polls, together with all that were started
/// until then: NCCL runs one group of messages after the other, and ranks that each wait for the
/// other's second group would deadlock.
///
/// It has many members because stream, memory and communicators have one state together: whatever
/// fails ends all of them, and abort() may come from another thread while any of them is in use.
class NcclGroup final : public Group {
public:
    /// Chooses a GPU, which stays the current one of the calling thread, and makes the group on it.
    static Result<std::unique_ptr<Group>> connect(std::shared_ptr<const NcclLibrary> library,
                                                  const GroupSpec& spec, const Settings& settings);
    ~NcclGroup() override;
    NcclGroup(const NcclGroup&) = delete;
    NcclGroup& operator=(const NcclGroup&) = delete;

    GroupFacts facts() const override;
    bool on_device() const override { return true; }

    Result<void> run(const Operation& what) override;
    Result<void> allreduce_many(std::span<const Array> arrays, DType type, Reduce reduce) override;
    /// With the codecs of libdtrun_codec_cuda.so: `in`, `out` and `error` are memory of the GPU.
    Result<void> allreduce_compressed(std::span<const Segment> segments, Reduce reduce,
                                      const Compression& compression, std::uint64_t call) override;
    Result<void> allgather_on_host(const void* in, void* out, std::size_t bytes) override;
    Result<std::unique_ptr<Pending>> start(std::span<const Send> sends,
                                           std::span<const Receive> receives) override;
    void abort() noexcept override;
    std::shared_ptr<void> mark(void* stream) override {
        return marks_.set(static_cast<GpuStream*>(stream));
    }
    void follow(std::shared_ptr<void> mark) override {
        followed_ = std::static_pointer_cast<Mark>(std::move(mark));
    }

private:
    class Compressed;
    class Messages;
    struct Batch;
    /// Puts work into the stream; returns the first failure of its calls.
    using Enqueue = std::function<NcclResult(NcclComm* comm, GpuStream* stream)>;

    NcclGroup(std::shared_ptr<const NcclLibrary> library, const GroupSpec& spec,
              const Settings& settings, int device, Communicators communicators);
    Result<void> prepare();

    /// Runs one operation to its end: one call puts its work into the stream ...
    Result<void> perform(const char* what, const Enqueue& enqueue);
    /// ... or several calls do.
    Result<void> perform(const char* what, const std::function<Result<void>()>& body);
    Result<void> begin();
    void end() noexcept;
    Result<void> put(const char* what, const Enqueue& enqueue);
    Result<void> copy(const char* what, void* to, const void* from, std::size_t bytes);
    Result<void> after_caller();
    Result<void> launch_messages();
    Result<void> finish(Batch& batch);
    Result<void> wait(const char* what, const std::function<int()>& query);
    /// Checks that the GPU can reach the data: if not, its context would end, with all data of the
    /// process.
    Result<void> check(const char* what, const void* data, std::size_t bytes) const;
    Result<void> state();
    Result<void> copy_segments(std::span<const Segment> segments);
    Result<void> reserve(std::size_t bytes);
    /// Whether all ranks have codecs, and this much memory for them. All ranks call it.
    /// Errc: invalid_input (names a rank that has not, and nothing is broken); as an operation
    Result<void> agree_on_codecs(std::size_t workspace_bytes);
    Result<void> open_codecs();
    /// Whether an average is better made of a sum and a division. All ranks call it.
    Result<bool> averages_by_division(DType type, Reduce reduce);
    Result<void> reduce(const Operation& what);
    // They put their work into the stream.
    NcclResult move(const Operation& what, NcclComm* comm, GpuStream* stream);
    NcclResult allgatherv(const Operation& what, NcclComm* comm, GpuStream* stream);
    NcclResult gather(const Operation& what, NcclComm* comm, GpuStream* stream);
    NcclResult scatter(const Operation& what, NcclComm* comm, GpuStream* stream);
    NcclResult alltoall(const Operation& what, NcclComm* comm, GpuStream* stream);
    Result<void> run_reduction(const char* what, DType type, Reduce reduce,
                               std::span<const Array> results,
                               const std::function<Result<void>(NcclOp op)>& enqueue);
    NcclResult copy_own_part(void* to, const void* from, std::size_t bytes) const;
    NcclResult grouped(const std::function<NcclResult()>& calls) const;

    std::unexpected<Error> broken(Error error);
    std::unexpected<Error> broken(const char* what, NcclResult result);
    std::unexpected<Error> broken_gpu(const char* what, int code);
    void close() noexcept;

    std::shared_ptr<const NcclLibrary> library_;
    KeyStore* const store_;
    const std::string prefix_;
    const std::uint32_t rank_;
    const std::uint32_t size_;
    const int device_;
    const std::size_t scratch_bytes_;
    const std::chrono::milliseconds close_within_;
    const std::chrono::milliseconds abort_within_;
    GpuStream* stream_ = nullptr;
    Marks marks_;
    std::shared_ptr<Mark> followed_;  ///< of the operation under way
    void* scratch_ = nullptr;         ///< memory of the GPU, for barrier() and allgather_on_host()
    void* staging_ = nullptr;         ///< pinned memory of the host, of the same size
    const std::size_t compressed_values_;
    const std::string codecs_path_;
    const CudaCodecs* codecs_ = nullptr;  ///< once they are needed
    void* workspace_ = nullptr;           ///< memory of the GPU, for what is compressed
    std::size_t workspace_bytes_ = 0;
    std::size_t workspace_agreed_ = 0;  ///< which all ranks have
    std::string codecs_lacking_;        ///< why not all ranks have codecs, once that is known
    std::shared_ptr<Batch> queued_;     ///< messages that have not been launched

    std::atomic<bool> aborted_{false};
    std::mutex ending_;            ///< serializes aborts, as communicators may share resources
    std::mutex mutex_;             ///< of what follows
    bool busy_ = false;            ///< an operation is under way; it checks aborted_ ...
    bool inside_library_ = false;  ///< ... except while its thread is inside NCCL
    Communicators communicators_;
    std::optional<Error> error_;  ///< after which nothing works
};

}  // namespace dtrun::collectives::nccl
