#include "collectives/backends/nccl/streams.h"

namespace dtrun::collectives::nccl {

GpuScope::GpuScope(const GpuFunctions& gpu, int device) : gpu_(gpu) {
    if (gpu_.exchange_capture_mode != nullptr) gpu_.exchange_capture_mode(&capture_mode_);
    if (gpu_.get_device(&before_) != kGpuSuccess || before_ == device) return;
    gpu_.set_device(device);
    changed_ = true;
}

GpuScope::~GpuScope() {
    if (changed_) gpu_.set_device(before_);
    if (gpu_.exchange_capture_mode != nullptr) gpu_.exchange_capture_mode(&capture_mode_);
}

void forget_not_ready(const GpuFunctions& gpu) {
    if (gpu.peek_at_last_error == nullptr || gpu.peek_at_last_error() == kGpuNotReady)
        gpu.get_last_error();
}

SpareEvents::~SpareEvents() {
    for (GpuEvent* const event : spare_) library_->gpu.event_destroy(event);
}

int SpareEvents::take(GpuEvent*& event) {
    {
        const std::lock_guard lock(mutex_);
        if (!spare_.empty()) {
            event = spare_.back();
            spare_.pop_back();
            return kGpuSuccess;
        }
    }
    return library_->gpu.event_create_with_flags(&event, kEventDisableTiming);
}

void SpareEvents::give_back(GpuEvent* event) {
    const std::lock_guard lock(mutex_);
    spare_.push_back(event);
}

/// A call that waits for its result has no place in a graph, and would spoil the one in the making.
Result<void> Marks::check_not_captured(GpuStream* stream) const {
    const GpuFunctions& gpu = library_->gpu;
    if (gpu.stream_is_capturing == nullptr) return {};
    int status = kNotCaptured;
    const int code = gpu.stream_is_capturing(stream, &status);
    if (code == kGpuSuccess && status == kNotCaptured) return {};
    if (code != kGpuSuccess) gpu.get_last_error();
    if (code == kGpuSuccess || code == kGpuCaptureImplicit)
        return fail(Errc::invalid_input,
                    "nccl: the caller's stream is being captured into a graph, of which dtrun's "
                    "operations cannot be part: call them outside of it");
    return fail(Errc::invalid_input, "nccl: the caller's stream: {}", library_->gpu_error(code));
}

std::shared_ptr<Mark> Marks::set(GpuStream* stream) {
    auto mark = std::make_shared<Mark>();
    const GpuFunctions& gpu = library_->gpu;
    const GpuScope scope(gpu, device_);
    if (auto ok = check_not_captured(stream); !ok) {
        mark->error = ok.error();
        return mark;
    }
    int code = gpu.stream_query(stream);
    if (code == kGpuSuccess) return mark;
    if (code == kGpuNotReady) {
        forget_not_ready(gpu);
        mark->events = events_;
        code = events_->take(mark->event);
        if (code == kGpuSuccess) code = gpu.event_record(mark->event, stream);
        if (code == kGpuSuccess) return mark;
    }
    gpu.get_last_error();
    mark->error = Error{Errc::invalid_input,
                        fmt::format("nccl: work that the caller's stream was given before: {} (is "
                                    "it a stream of GPU {}?)",
                                    library_->gpu_error(code), device_)};
    return mark;
}

}  // namespace dtrun::collectives::nccl
