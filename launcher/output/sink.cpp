#include "launcher/output/sink.h"

#include <fmt/format.h>
#include <system_error>
#include <vector>

namespace dtrun::output {
namespace {

/// How long a write that is under way at the deadline may take to return.
constexpr std::chrono::seconds kLastWrite{1};
constexpr std::chrono::seconds kSilent{5};

}  // namespace

Sink::Sink(std::string name, std::string_view tardy, BufferQueue::Options options,
           WrittenFunction taken)
    : name_(std::move(name)), tardy_(tardy), taken_(std::move(taken)), queue_(options) {}

void Sink::start(std::shared_ptr<Sink> self) {
    queue_.start_when_needed([self = std::move(self)] {
        try {
            self->thread_ = Thread([self] { self->run(); });
        } catch (const std::system_error&) {
            return false;  // as where ranks have taken all threads that a container may have
        }
        return true;
    });
}

void Sink::run() {
    std::vector<BufferQueue::Buffer> batch;
    while (queue_.take(batch)) {
        for (BufferQueue::Buffer& buffer : batch) {
            writing_since_ = Clock::now();
            write_out(buffer);
            writing_since_ = Deadline::max();
            queue_.release(buffer);
            taken_(buffer.pieces);
            queue_.recycle(std::move(buffer));
        }
        batch.clear();
        batch_written();
    }
    end();
    {
        const std::lock_guard lock(mutex_);
        unwritten_bytes_ += abandoned_bytes_;
    }
    if (unwritten_bytes_ > 0 && !failed_)
        add_failure({Errc::timed_out, fmt::format("{}: {}, {} bytes not written", name_, tardy_,
                                                  unwritten_bytes_.load())});
    taken_({});
}

std::optional<Error> Sink::take_failure() {
    const std::lock_guard lock(mutex_);
    if (failures_.empty()) return std::nullopt;
    Error first = std::move(failures_.front());
    failures_.pop_front();
    return first;
}

void Sink::add_failure(Error failure) {
    const std::lock_guard lock(mutex_);
    failures_.push_back(std::move(failure));
}

bool Sink::is_silent() const {
    const Deadline since = writing_since_;
    return since != Deadline::max() && !may_rest() && Clock::now() - since > kSilent;
}

bool Sink::is_late() const {
    return queue_.closed() && queue_.time_left() <= Clock::duration::zero();
}

void Sink::stop(Deadline deadline, std::size_t abandoned_bytes) {
    {
        const std::lock_guard lock(mutex_);
        abandoned_bytes_ += abandoned_bytes;
    }
    deadline_ = deadline;
    queue_.close(deadline);
    interrupt();
}

void Sink::join() {
    if (!thread_.joinable() && !queue_.idle()) run();  // there was no thread to be had
    if (!thread_.joinable() || thread_.join_until(deadline_ + kLastWrite)) return;
    answers_ = false;
    const std::lock_guard lock(mutex_);
    failures_.push_back(
        {Errc::timed_out,
         fmt::format("{}: does not answer, {} bytes not written", name_,
                     queue_.pending_bytes() + abandoned_bytes_ + unwritten_bytes_)});
}

}  // namespace dtrun::output
