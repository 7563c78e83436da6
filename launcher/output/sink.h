#pragma once

#include "base/result.h"
#include "base/threads.h"
#include "launcher/output/buffer_queue.h"

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace dtrun::output {

/// Called on a sink's thread after each buffer, perhaps with an empty list.
using WrittenFunction = std::function<void(std::span<const Written>)>;

/// One place that output goes to: what its queue is filled with is written by a thread of its own.
///
/// A write may never return, as on a file system that does not answer. So the thread shares the sink, and is left
/// behind with it; what `taken` refers to has to live as long, or to be held by it.
///
/// Thread: the owner's, which is a Running; queue(), take_failure() and is_silent() any.
class Sink {
public:
    virtual ~Sink() = default;
    Sink(const Sink&) = delete;
    Sink& operator=(const Sink&) = delete;

    BufferQueue& queue() { return queue_; }
    const BufferQueue& queue() const { return queue_; }

    /// The next failure that nobody has taken yet. Errc: closed (EPIPE), timed_out (bytes were given up at the
    /// end), internal
    std::optional<Error> take_failure();

    /// Lets the thread write what there is until the deadline.
    /// \param abandoned_bytes  bytes that never reached the queue, for the error message
    void stop(Deadline deadline, std::size_t abandoned_bytes = 0);
    /// After stop(): waits for the thread's end, but not for a write that does not return. Idempotent.
    void join();
    bool answers() const { return answers_; }  ///< false: join() has left the thread behind
    /// Whether a disk has not taken for some seconds what is written to it. Who reads a pipe or a terminal may rest.
    bool is_silent() const;

protected:
    /// \param name   for error messages, e.g. "standard output"
    /// \param tardy  why not all is written in time, e.g. "too slow"
    Sink(std::string name, std::string_view tardy, BufferQueue::Options options,
         WrittenFunction written);

    // On the thread.
    virtual void write_out(BufferQueue::Buffer& buffer) = 0;
    virtual void batch_written() {}
    virtual void end() {}  ///< of the thread

    virtual void interrupt() {}                      ///< stop() was called
    virtual bool may_rest() const { return false; }  ///< it is no disk
    bool is_late() const;                            ///< the time of stop() is over
    void add_failure(Error failure);

    const std::string name_;

    // The thread's own.
    bool failed_ = false;  ///< nothing is written any more, and why has been told
    std::atomic<std::size_t> unwritten_bytes_ = 0;

    std::mutex mutex_;

private:
    template <class S>
    friend class Running;
    void start(std::shared_ptr<Sink> self);
    void run();

    const std::string_view tardy_;
    const WrittenFunction taken_;
    BufferQueue queue_;
    std::deque<Error> failures_;       // guarded by mutex_
    std::size_t abandoned_bytes_ = 0;  // guarded by mutex_
    std::atomic<Deadline> writing_since_{Deadline::max()};
    Deadline deadline_ = Deadline::max();
    bool answers_ = true;
    Thread thread_;
};

/// A sink whose thread runs as soon as there is something for it. The destructor stops it at once.
template <class S>
class Running {
public:
    Running() = default;
    explicit Running(std::shared_ptr<S> sink) : sink_(std::move(sink)) { sink_->start(sink_); }
    Running(Running&&) noexcept = default;
    Running& operator=(Running&& other) noexcept {
        std::swap(sink_, other.sink_);
        return *this;
    }
    ~Running() {
        if (!sink_) return;
        sink_->stop(Clock::now());
        sink_->join();
    }

    S* operator->() const { return sink_.get(); }
    S& operator*() const { return *sink_; }
    explicit operator bool() const { return sink_ != nullptr; }

private:
    std::shared_ptr<S> sink_;
};

}  // namespace dtrun::output
