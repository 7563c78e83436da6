#include "collectives/backends/nccl/group.h"

#include "base/milliseconds.h"
#include "collectives/backends/nccl/network.h"
#include "collectives/quiet_thread.h"

#include <sched.h>
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <thread>

namespace dtrun::collectives::nccl {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

/// Longest wait for aborted work to leave the GPU.
constexpr std::chrono::seconds kStopWithin{2};
/// Longer operations are awaited with sleeps instead of spinning.
constexpr microseconds kSpin{5'000};
constexpr unsigned kSpinsPerQuestion = 32;
/// Bytes that allgather_on_host() sends at a time, of all ranks together. They are allocated with
/// the group, since allocating waits for whatever the GPU is doing.
constexpr std::size_t kScratchBytes = 64 << 10;
constexpr std::size_t kScratchBytesOfRankMin = 16;
/// In larger groups, facts() looks only at the ranks nearby.
constexpr std::uint32_t kPlacesMax = 256;

/// The GPU that was asked for, else one that this thread has chosen itself, else the one of the rank's number on its host.
Result<int> choose_device(const NcclLibrary& library, const GroupSpec& spec) {
    const auto count = library.device_count();
    if (!count) return std::unexpected(count.error());
    if (spec.gpu >= *count)
        return fail(Errc::invalid_input, "there is no GPU {} on this host, which has {}: 0 to {}",
                    spec.gpu, *count, *count - 1);
    int device = spec.gpu;
    if (device < 0) library.gpu.get_device(&device);
    if (spec.gpu < 0 && device == 0) device = static_cast<int>(spec.local_rank) % *count;
    int code = library.gpu.set_device(device);
    // Before CUDA 12 only this runtime library knows the choice until a call uses the GPU, and NCCL
    // and the codecs have runtime libraries of their own.
    if (code == kGpuSuccess) code = library.gpu.free(nullptr);
    if (code != kGpuSuccess)
        return fail(Errc::internal, "GPU {}: {}", device, library.gpu_error(code));
    return device;
}

/// Pauses between polls: yields in short operations, sleeps at most 1 % of the time so far in long
/// ones.
void pause(Clock::time_point since) {
    const auto span = Clock::now() - since;
    if (span < kSpin)
        ::sched_yield();
    else
        std::this_thread::sleep_for(std::min<Clock::duration>(span / 100, microseconds(500)));
}

Error cancelled() {
    return {Errc::cancelled, "nccl: the communicator was aborted"};
}

/// Finalizes a non-blocking communicator, and waits until that is done.
void finalize(const NcclFunctions& nccl, NcclComm* comm, const std::atomic<bool>& aborted) {
    NcclResult result = nccl.comm_finalize(comm);
    const auto since = Clock::now();
    while (result == NcclResult::in_progress && !aborted) {
        pause(since);
        if (nccl.comm_get_async_error(comm, &result) != NcclResult::success) break;
    }
}

/// Calls a function after a timeout, unless it is destroyed before.
class Alarm {
public:
    Alarm(std::chrono::milliseconds time, std::function<void()> ring)
        : thread_(quiet_thread([this, time, ring = std::move(ring)] {
              std::unique_lock lock(mutex_);
              if (!off_.wait_for(lock, time, [this] { return is_off_; })) ring();
          })) {}
    ~Alarm() {
        {
            const std::lock_guard lock(mutex_);
            is_off_ = true;
        }
        off_.notify_one();
        thread_.join();
    }
    Alarm(const Alarm&) = delete;
    Alarm& operator=(const Alarm&) = delete;

private:
    std::mutex mutex_;
    std::condition_variable off_;
    bool is_off_ = false;
    std::thread thread_;
};

}  // namespace

/// Messages that are launched together.
struct NcclGroup::Batch {
    explicit Batch(std::shared_ptr<const NcclLibrary> of) : library(std::move(of)) {}
    ~Batch() {
        if (event != nullptr) library->gpu.event_destroy(event);
    }
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;

    std::shared_ptr<const NcclLibrary> library;
    std::vector<Send> sends;
    std::vector<Receive> receives;
    GpuEvent* event = nullptr;  ///< follows the messages in the stream, once they are launched
    std::optional<Result<void>> outcome;
};

class NcclGroup::Messages final : public Pending {
public:
    Messages(NcclGroup& group, std::shared_ptr<Batch> batch)
        : group_(group), batch_(std::move(batch)) {}
    ~Messages() override { static_cast<void>(wait()); }
    Messages(const Messages&) = delete;
    Messages& operator=(const Messages&) = delete;

    void poll() override {
        if (batch_ == nullptr || batch_->event != nullptr || batch_->outcome) return;
        const GpuScope scope(group_.library_->gpu, group_.device_);
        // A failure is kept, for wait().
        if (group_.begin()) static_cast<void>(group_.launch_messages());
        group_.end();
    }

    Result<void> wait() override {
        if (batch_ == nullptr) return {};
        if (!batch_->outcome) batch_->outcome = group_.finish(*batch_);
        return *batch_->outcome;
    }

private:
    NcclGroup& group_;
    std::shared_ptr<Batch> batch_;  ///< nullptr: no messages at all
};

// ---- life ---------------------------------------------------------------------------------------

Result<std::unique_ptr<Group>> NcclGroup::connect(std::shared_ptr<const NcclLibrary> library,
                                                  const GroupSpec& spec, const Settings& settings) {
    const auto failed = [&spec](const Error& error) {
        report_failure(spec, error);
        return std::unexpected(error);
    };
    const auto device = choose_device(*library, spec);
    if (!device) return failed(device.error());
    const auto sockets = choose_sockets(spec.interfaces, spec.address, all_interfaces());
    if (!sockets) return failed(sockets.error());
    export_sockets(*sockets);
    auto communicators = bootstrap(*library, spec, settings, *device);
    if (!communicators) return std::unexpected(communicators.error());
    std::unique_ptr<NcclGroup> group(
        new NcclGroup(std::move(library), spec, settings, *device, *communicators));
    if (auto ok = group->prepare(); !ok) return failed(ok.error());
    return group;
}

NcclGroup::NcclGroup(std::shared_ptr<const NcclLibrary> library, const GroupSpec& spec,
                     const Settings& settings, int device, Communicators communicators)
    : library_(std::move(library)),
      store_(spec.store),
      prefix_(spec.prefix),
      rank_(spec.rank),
      size_(spec.size),
      device_(device),
      scratch_bytes_(std::max(kScratchBytes, size_ * kScratchBytesOfRankMin)),
      close_within_(settings.close_within),
      abort_within_(settings.abort_within),
      marks_(library_, device),
      compressed_values_(settings.compressed_values),
      codecs_path_(settings.codecs),
      communicators_(communicators) {}

Result<void> NcclGroup::prepare() {
    const GpuFunctions& gpu = library_->gpu;
    int code = gpu.stream_create_with_flags(&stream_, kStreamNonBlocking);
    if (code == kGpuSuccess) code = gpu.malloc(&scratch_, scratch_bytes_);
    if (code == kGpuSuccess) code = gpu.host_alloc(&staging_, scratch_bytes_, 0);
    if (code != kGpuSuccess)
        return broken({Errc::internal, fmt::format("a stream and memory on GPU {}: {}", device_,
                                                   library_->gpu_error(code))});
    return {};
}

NcclGroup::~NcclGroup() {
    const GpuScope scope(library_->gpu, device_);
    followed_ = std::make_shared<Mark>();  // the end waits for nobody's stream
    close();
    const GpuFunctions& gpu = library_->gpu;
    queued_.reset();
    if (workspace_ != nullptr) gpu.free(workspace_);
    if (staging_ != nullptr) gpu.host_free(staging_);
    if (scratch_ != nullptr) gpu.free(scratch_);
    if (stream_ != nullptr) gpu.stream_destroy(stream_);
}

/// Waits for all ranks, since they may still read from each other's memory, but not long, since a
/// rank may be gone.
void NcclGroup::close() noexcept {
    if (!state() || staging_ == nullptr) {
        abort_all(*library_, communicators_, abort_within_);
        return;
    }
    const Alarm alarm(close_within_, [this] { abort(); });
    if (size_ > 1 && !run(op::barrier())) return;  // the failed barrier has aborted
    if (!begin()) return;
    const NcclFunctions& nccl = library_->nccl;
    // `work` ends first, then `parent`, whose resources it shares.
    const auto ok =
        put("the end", [&](NcclComm* work, GpuStream*) { return nccl.comm_finalize(work); });
    if (ok && communicators_.parent != nullptr) finalize(nccl, communicators_.parent, aborted_);
    end();
    const std::lock_guard lock(mutex_);
    const auto free_one = aborted_ ? nccl.comm_abort : nccl.comm_destroy;
    for (NcclComm* const comm : {communicators_.work, communicators_.parent})
        if (comm != nullptr) free_one(comm);
    communicators_ = {};
}

void NcclGroup::abort() noexcept {
    aborted_ = true;
    Communicators given_up;
    {
        const std::lock_guard lock(mutex_);
        if (error_) return;
        if (busy_) {
            // The operation's own thread aborts once its NCCL call returns. A blocked call on
            // `work` returns when `parent`, which shares its abort flag, is aborted.
            if (inside_library_) std::swap(given_up.parent, communicators_.parent);
        } else {
            error_ = cancelled();
            std::swap(given_up, communicators_);
        }
    }
    const GpuScope scope(library_->gpu, device_);
    const std::lock_guard lock(ending_);
    abort_all(*library_, given_up, abort_within_);
}

std::unexpected<Error> NcclGroup::broken(Error error) {
    if (aborted_) error = cancelled();
    Communicators given_up;
    {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = std::move(error);
        error = *error_;
        std::swap(given_up, communicators_);
    }
    {
        const std::lock_guard lock(ending_);
        if (!abort_all(*library_, given_up, abort_within_))
            error.message +=
                fmt::format(" (and NCCL's abort has not ended within {}: end the process)",
                            in_seconds(abort_within_));
    }
    // The caller may free its data once it has the error.
    const auto since = Clock::now();
    while (stream_ != nullptr && Clock::now() - since < kStopWithin &&
           library_->gpu.stream_query(stream_) == kGpuNotReady)
        pause(since);
    return std::unexpected(std::move(error));
}

std::unexpected<Error> NcclGroup::broken(const char* what, NcclResult result) {
    std::string text = library_->nccl_error(result, communicators_.work);
    const bool lost = result == NcclResult::remote_error;
    return broken({lost ? Errc::closed : Errc::internal, fmt::format("nccl: {}: {}", what, text)});
}

std::unexpected<Error> NcclGroup::broken_gpu(const char* what, int code) {
    library_->gpu.get_last_error();
    return broken({Errc::internal, fmt::format("nccl: {}: {}", what, library_->gpu_error(code))});
}

// ---- one operation ------------------------------------------------------------------------------

Result<void> NcclGroup::state() {
    const std::lock_guard lock(mutex_);
    if (error_) return std::unexpected(*error_);
    return {};
}

Result<void> NcclGroup::begin() {
    const std::lock_guard lock(mutex_);
    if (error_) return std::unexpected(*error_);
    busy_ = true;
    return {};
}

void NcclGroup::end() noexcept {
    {
        const std::lock_guard lock(mutex_);
        busy_ = false;
        if (!aborted_ || error_) return;
    }
    // abort() came when the operation had ended.
    static_cast<void>(broken(cancelled()));
}

Result<void> NcclGroup::perform(const char* what, const Enqueue& enqueue) {
    return perform(what, std::function([&] { return put(what, enqueue); }));
}

Result<void> NcclGroup::perform(const char* what, const std::function<Result<void>()>& body) {
    const GpuScope scope(library_->gpu, device_);
    auto ok = begin();
    if (!ok) return ok;
    ok = launch_messages();
    if (ok) ok = after_caller();
    if (ok) ok = body();
    if (ok) ok = wait(what, [this] { return library_->gpu.stream_query(stream_); });
    end();
    return ok;
}

Result<void> NcclGroup::put(const char* what, const Enqueue& enqueue) {
    NcclComm* comm = nullptr;
    {
        const std::lock_guard lock(mutex_);
        inside_library_ = !aborted_;
        comm = communicators_.work;
    }
    if (aborted_) return broken(cancelled());
    NcclResult result = enqueue(comm, stream_);
    {
        const std::lock_guard lock(mutex_);
        inside_library_ = false;
    }
    const auto since = Clock::now();
    while (result == NcclResult::in_progress && !aborted_) {
        const NcclResult asked = library_->nccl.comm_get_async_error(comm, &result);
        if (asked != NcclResult::success) result = asked;
        if (result == NcclResult::in_progress) pause(since);
    }
    if (aborted_) return broken(cancelled());
    if (result != NcclResult::success) return broken(what, result);
    return {};
}

Result<void> NcclGroup::copy(const char* what, void* to, const void* from, std::size_t bytes) {
    const int code = library_->gpu.memcpy_async(to, from, bytes, kMemcpyDefault, stream_);
    if (code != kGpuSuccess) return broken_gpu(what, code);
    return {};
}

/// Orders the stream after the caller's, so that the caller need not wait for that.
Result<void> NcclGroup::after_caller() {
    const auto mark = followed_ != nullptr ? followed_ : marks_.set(nullptr);
    if (mark->error) return std::unexpected(*mark->error);
    if (mark->event == nullptr) return {};
    const int code = library_->gpu.stream_wait_event(stream_, mark->event, 0);
    if (code != kGpuSuccess) return broken_gpu("work that was given to the GPU before", code);
    return {};
}

Result<void> NcclGroup::wait(const char* what, const std::function<int()>& query) {
    const auto since = Clock::now();
    for (unsigned turn = 1;; ++turn) {
        const int code = query();
        if (code == kGpuSuccess) {
            if (turn > 1) forget_not_ready(library_->gpu);
            return {};
        }
        if (code != kGpuNotReady) return broken_gpu(what, code);
        if (aborted_) return broken(cancelled());
        if (turn % kSpinsPerQuestion == 0 || Clock::now() - since > kSpin) {
            NcclResult result = NcclResult::success;
            const NcclResult asked =
                library_->nccl.comm_get_async_error(communicators_.work, &result);
            if (is_error(asked)) result = asked;
            if (is_error(result)) return broken(what, result);
        }
        pause(since);
    }
}

Result<void> NcclGroup::check(const char* what, const void* data, std::size_t bytes) const {
    const auto ask = library_->gpu.pointer_get_attributes;
    if (ask == nullptr || bytes == 0) return {};
    PointerAttributes found;
    const int code = ask(&found, data);
    if (code != kGpuSuccess) library_->gpu.get_last_error();
    const bool known = library_->rccl ? found.device_pointer != nullptr
                                      : found.type == PointerAttributes::kDevice ||
                                            found.type == PointerAttributes::kManaged;
    if (code != kGpuSuccess || !known)
        return fail(Errc::invalid_input,
                    "nccl: {}: data are not in the GPU's memory, and NCCL takes no other", what);
    if (!library_->rccl && found.type == PointerAttributes::kDevice && found.device != device_)
        return fail(Errc::invalid_input,
                    "nccl: {}: data are in memory of GPU {}, and the communicator is on GPU {}",
                    what, found.device, device_);
    return {};
}

NcclResult NcclGroup::grouped(const std::function<NcclResult()>& calls) const {
    NcclResult result = library_->nccl.group_start();
    if (is_error(result)) return result;
    result = calls();
    const NcclResult ended = library_->nccl.group_end();
    return is_error(result) ? result : ended;
}

// ---- messages -----------------------------------------------------------------------------------

Result<std::unique_ptr<Pending>> NcclGroup::start(std::span<const Send> sends,
                                                  std::span<const Receive> receives) {
    if (auto ok = state(); !ok) return std::unexpected(ok.error());
    for (const Send& send : sends)
        if (auto ok = check("send", send.data, send.bytes); !ok) return std::unexpected(ok.error());
    for (const Receive& receive : receives)
        if (auto ok = check("receive", receive.data, receive.bytes); !ok)
            return std::unexpected(ok.error());
    const auto empty = [](const auto& message) { return message.bytes == 0; };
    if (std::all_of(sends.begin(), sends.end(), empty) &&
        std::all_of(receives.begin(), receives.end(), empty))
        return std::make_unique<Messages>(*this, nullptr);
    if (queued_ == nullptr) queued_ = std::make_shared<Batch>(library_);
    queued_->sends.insert(queued_->sends.end(), sends.begin(), sends.end());
    queued_->receives.insert(queued_->receives.end(), receives.begin(), receives.end());
    return std::make_unique<Messages>(*this, queued_);
}

Result<void> NcclGroup::launch_messages() {
    if (queued_ == nullptr) return {};
    if (auto ok = after_caller(); !ok) return ok;
    const std::shared_ptr<Batch> batch = std::exchange(queued_, nullptr);
    const NcclFunctions& nccl = library_->nccl;
    auto ok = put("messages", [&](NcclComm* comm, GpuStream* stream) {
        return grouped([&] {
            NcclResult result = NcclResult::success;
            for (const Send& send : batch->sends)
                if (send.bytes > 0 && !is_error(result))
                    result = nccl.send(send.data, send.bytes, NcclType::u8,
                                       static_cast<int>(send.peer), comm, stream);
            for (const Receive& receive : batch->receives)
                if (receive.bytes > 0 && !is_error(result))
                    result = nccl.recv(receive.data, receive.bytes, NcclType::u8,
                                       static_cast<int>(receive.peer), comm, stream);
            return result;
        });
    });
    if (!ok) return ok;
    const GpuFunctions& gpu = library_->gpu;
    int code = gpu.event_create_with_flags(&batch->event, kEventDisableTiming);
    if (code == kGpuSuccess) code = gpu.event_record(batch->event, stream_);
    if (code != kGpuSuccess) return broken_gpu("messages", code);
    return {};
}

Result<void> NcclGroup::finish(Batch& batch) {
    const GpuScope scope(library_->gpu, device_);
    auto ok = begin();
    if (!ok) return ok;
    if (batch.event == nullptr) ok = launch_messages();
    if (ok) ok = wait("messages", [&] { return library_->gpu.event_query(batch.event); });
    end();
    return ok;
}

// ---- facts --------------------------------------------------------------------------------------

GroupFacts NcclGroup::facts() const {
    std::vector<std::uint32_t> ranks;
    const std::uint32_t looked_at = std::min(size_, kPlacesMax);
    for (std::uint32_t i = 0; i < looked_at; ++i) {
        const std::uint32_t other = (rank_ + size_ - looked_at / 2 + i) % size_;
        if (other != rank_) ranks.push_back(other);
    }
    std::vector<std::string> others;
    if (!ranks.empty())
        if (auto told = places(*store_, prefix_, ranks, std::chrono::seconds(1)))
            others = std::move(*told);
    return nccl_facts(*library_, this_host(), device_, place_of(*library_, device_), others);
}

}  // namespace dtrun::collectives::nccl
