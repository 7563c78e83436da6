#include "launcher/output/buffer_queue.h"

#include <algorithm>

namespace dtrun::output {

bool BufferQueue::take(std::vector<Buffer>& batch) {
    std::unique_lock lock(mutex_);
    const auto must_return = [this] { return poked_ || closed(); };
    waiting_ = Waiting::for_any;
    changed_.wait(lock, [&] { return any() || must_return(); });
    waiting_ = Waiting::for_batch;
    changed_.wait_until(lock, last_take_ + options_.gather,
                        [&] { return untaken_bytes_ >= options_.gather_bytes || must_return(); });
    waiting_ = Waiting::no;
    poked_ = false;
    if (!any()) return !closed();
    seal();
    batch.swap(sealed_);
    held_ += batch.size();
    untaken_bytes_ = 0;
    last_take_ = Clock::now();
    return true;
}

void BufferQueue::release(const Buffer& buffer) {
    const std::lock_guard lock(mutex_);
    pending_bytes_ -= buffer.size;
    held_--;
}

void BufferQueue::recycle(Buffer buffer) {
    buffer.size = 0;
    buffer.pieces.clear();
    const std::lock_guard lock(mutex_);
    if (free_.size() * options_.buffer_bytes < options_.pending_bytes_max && buffer.data)
        free_.push_back(std::move(buffer));
}

void BufferQueue::poke() {
    const std::lock_guard lock(mutex_);
    poked_ = true;
    need_consumer();
    changed_.notify_one();
}

void BufferQueue::close(Deadline deadline) {
    const std::lock_guard lock(mutex_);
    close_at_ = std::min(deadline.time_since_epoch().count(), kOpen - 1);
    start_ = nullptr;
    changed_.notify_one();
}

Clock::duration BufferQueue::time_left() const {
    return Clock::duration(close_at_.load()) - Clock::now().time_since_epoch();
}

bool BufferQueue::idle() const {
    const std::lock_guard lock(mutex_);
    return !any() && held_ == 0;
}

void BufferQueue::need_consumer() {
    if (start_ && start_()) start_ = nullptr;
}

void BufferQueue::seal() {
    if (filling_.size > 0 || !filling_.pieces.empty())
        sealed_.push_back(std::exchange(filling_, {}));
}

void BufferQueue::open_buffer() {
    if (filling_.data) return;
    if (free_.empty()) {
        filling_.data = std::make_unique_for_overwrite<char[]>(options_.buffer_bytes);
    } else {
        filling_ = std::move(free_.back());
        free_.pop_back();
    }
}

BufferQueue::Filler::Filler(BufferQueue& queue) : queue_(queue), lock_(queue.mutex_) {
    queue_.open_buffer();
    at_ = queue_.filling_.data.get() + queue_.filling_.size;
    end_ = queue_.filling_.data.get() + queue_.options_.buffer_bytes;
}

BufferQueue::Filler::~Filler() {
    commit();
    const bool enough = queue_.untaken_bytes_ >= queue_.options_.gather_bytes;
    const bool notify = (queue_.waiting_ == Waiting::for_any && queue_.any()) ||
                        (queue_.waiting_ == Waiting::for_batch && enough);
    if (notify) queue_.waiting_ = Waiting::no;
    if (queue_.any()) queue_.need_consumer();
    lock_.unlock();
    if (notify) queue_.changed_.notify_one();
}

std::size_t BufferQueue::Filler::write_some(std::string_view bytes) {
    if (at_ == end_) {
        commit();
        queue_.seal();
        queue_.open_buffer();
        at_ = queue_.filling_.data.get();
        end_ = at_ + queue_.options_.buffer_bytes;
    }
    const std::size_t fit = std::min(bytes.size(), static_cast<std::size_t>(end_ - at_));
    std::memcpy(at_, bytes.data(), fit);
    at_ += fit;
    return fit;
}

void BufferQueue::Filler::account(std::uint32_t stream, std::size_t bytes) {
    std::vector<Written>& pieces = queue_.filling_.pieces;
    if (pieces.empty() || pieces.back().stream != stream) pieces.push_back({stream, 0});
    pieces.back().bytes += bytes;
}

void BufferQueue::Filler::commit() {
    Buffer& buffer = queue_.filling_;
    const auto size = static_cast<std::size_t>(at_ - buffer.data.get());
    queue_.pending_bytes_ += size - buffer.size;
    queue_.untaken_bytes_ += size - buffer.size;
    buffer.size = size;
}

}  // namespace dtrun::output
