#pragma once

#include "base/loop/deadline.h"
#include "launcher/output/output_stream.h"

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::output {

/// Hands bytes from one thread to another in large buffers that are used again and again.
///
/// The producer fills the open buffer under a lock, the consumer takes all there is: so what one
/// Filler wrote is taken as a whole, and the fuller the consumer's hands, the larger its next
/// batch. A consumer that comes back sooner than `gather` after the last time waits for that moment
/// or for `gather_bytes`, so that many small writes cost neither a system call nor a switch of
/// threads each.
class BufferQueue {
public:
    struct Options {
        std::size_t buffer_bytes = 256u << 10;
        std::size_t pending_bytes_max = 4u << 20;  ///< full() from here on; not enforced
        std::size_t gather_bytes = 64u << 10;
        std::chrono::microseconds gather{1000};
    };
    struct Buffer {
        std::unique_ptr<char[]> data;  ///< `buffer_bytes`, or null
        std::size_t size = 0;
        std::vector<Written> pieces;  ///< what has been taken for good once this buffer is written
    };
    class Filler;

    explicit BufferQueue(Options options) : options_(options) {}
    BufferQueue(const BufferQueue&) = delete;
    BufferQueue& operator=(const BufferQueue&) = delete;

    /// Has `start` called when there is a reason for take() to return before close(): the consumer may begin then. It says
    /// whether it could start one, and is called again at the next bytes if not. It is called under our lock, so it must not use us.
    void start_when_needed(std::function<bool()> start) { start_ = std::move(start); }

    /// Consumer: waits for bytes, poke() or close(). False: closed and nothing left.
    /// \param batch  empty; receives the buffers in order, none after a poke
    bool take(std::vector<Buffer>& batch);
    /// Consumer: `buffer` has been dealt with; its bytes are not pending any more.
    void release(const Buffer& buffer);
    /// Consumer: the buffer's memory may be used again; after release().
    void recycle(Buffer buffer);

    /// Any thread: makes take() return although there may be nothing.
    void poke();
    /// Any thread: take() ends when all is taken, and the consumer should give up at `deadline`.
    void close(Deadline deadline);
    bool closed() const { return close_at_.load() != kOpen; }
    /// Time until the consumer should give up; only once closed.
    Clock::duration time_left() const;

    std::size_t pending_bytes() const { return pending_bytes_; }  ///< filled and not released
    bool full() const { return pending_bytes_.load() >= options_.pending_bytes_max; }
    bool idle() const;  ///< everything that was filled has been released

private:
    using Ticks = Clock::duration::rep;
    static constexpr Ticks kOpen = Clock::duration::max().count();
    enum class Waiting { no, for_any, for_batch };

    bool any() const { return !sealed_.empty() || filling_.size > 0 || !filling_.pieces.empty(); }
    void need_consumer();
    void seal();
    void open_buffer();

    const Options options_;
    std::atomic<std::size_t> pending_bytes_ = 0;  // filled and not released
    std::atomic<Ticks> close_at_ = kOpen;

    mutable std::mutex mutex_;  // guards all below
    std::condition_variable changed_;
    std::function<bool()> start_;  // empty: nobody waits for it
    Buffer filling_;
    std::vector<Buffer> sealed_;
    std::vector<Buffer> free_;
    std::size_t untaken_bytes_ = 0;
    std::size_t held_ = 0;  // buffers the consumer has
    bool poked_ = false;
    Waiting waiting_ = Waiting::no;
    Clock::time_point last_take_{};
};

/// Exclusive right to append to a queue, as long as it lives.
class BufferQueue::Filler {
public:
    explicit Filler(BufferQueue& queue);
    ~Filler();
    Filler(const Filler&) = delete;
    Filler& operator=(const Filler&) = delete;

    /// The free end of the open buffer. Whoever writes there tells by advance().
    char* at() const { return at_; }
    const char* end() const { return end_; }
    void advance(char* to) { at_ = to; }

    /// Appends as much as fits the open buffer, or the next if that is full; at least one byte.
    std::size_t write_some(std::string_view bytes);
    void write(std::string_view bytes) {
        while (!bytes.empty()) bytes.remove_prefix(write_some(bytes));
    }

    /// Counts `bytes` of `stream` as taken once the open buffer is written.
    void account(std::uint32_t stream, std::size_t bytes);

private:
    void commit();

    BufferQueue& queue_;
    std::unique_lock<std::mutex> lock_;
    char* at_ = nullptr;
    char* end_ = nullptr;
};

}  // namespace dtrun::output
