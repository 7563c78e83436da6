#pragma once

#include "base/fd.h"
#include "base/result.h"
#include "base/text_layout.h"
#include "launcher/output/buffer_queue.h"

#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>

namespace dtrun::output {

/// Called on a sink's thread after each buffer, perhaps with an empty list.
using TakenFunction = std::function<void(std::span<const Taken>)>;

/// Writes what its queue is filled with to one inherited descriptor, on a thread of its own.
///
/// The descriptor keeps its flags, since other processes share them; still no write blocks where it
/// can be avoided: pipes and terminals are opened a second time, sockets know MSG_DONTWAIT. After
/// the first error (EPIPE, a full disk) everything else is dropped, and counts as taken.
///
/// Thread: any, but stop() and join() only the owner's. Lifetime: the descriptor outlives it.
class FdWriter {
public:
    /// \param name  for error messages, e.g. "standard output"
    FdWriter(int fd, std::string name, BufferQueue::Options options, TakenFunction taken);
    ~FdWriter();  ///< stop() at once
    FdWriter(const FdWriter&) = delete;
    FdWriter& operator=(const FdWriter&) = delete;

    BufferQueue& queue() { return queue_; }
    const BufferQueue& queue() const { return queue_; }

    /// One line kept below everything else on a terminal, cut to its width; elsewhere nothing
    /// happens.
    void set_status(std::string_view text);
    bool is_terminal() const { return terminal_; }
    std::size_t columns() const { return terminal_columns(inherited_); }

    /// The error that ended the output, once. Errc: closed (EPIPE), timed_out (stop()), internal
    std::optional<Error> take_failure();

    /// Lets the thread write what there is until the deadline; join() waits for its end.
    /// \param abandoned_bytes  bytes that never reached the queue, for the error message
    void stop(Deadline deadline, std::size_t abandoned_bytes = 0);
    void join();

private:
    enum class Mode {
        blocking,     // a file or a device: does not wait for anybody
        nonblocking,  // a description of our own
        socket,
        pieces,  // no other way: poll, then write so little that it fits
    };

    void choose_mode();
    void run();
    void write_out(std::string_view bytes);
    std::string_view put(std::string_view bytes);
    ssize_t put_some(std::string_view bytes);
    void wait_writable();
    void give_up(Errc code, std::string why);
    void erase_status();
    void draw_status();

    BufferQueue queue_;
    const int inherited_;
    const std::string name_;
    const TakenFunction taken_;
    Fd own_;
    int fd_;
    Mode mode_ = Mode::blocking;
    std::size_t piece_bytes_ = 0;  // with Mode::pieces
    bool terminal_ = false;
    Fd interrupt_;  // readable once stop() was called

    std::mutex mutex_;
    std::string status_;               // guarded by mutex_
    std::optional<Error> failure_;     // guarded by mutex_
    std::size_t abandoned_bytes_ = 0;  // guarded by mutex_

    // The thread's own.
    bool failed_ = false;
    bool at_line_start_ = true;
    std::string drawn_;  // the status line that can be seen
    std::size_t unwritten_bytes_ = 0;

    std::thread thread_;
};

/// Both lead to the same file, pipe or terminal, so that writes to them must take turns.
bool same_file(int fd_a, int fd_b);

}  // namespace dtrun::output
