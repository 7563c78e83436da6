#pragma once

#include "base/fd.h"
#include "base/result.h"
#include "launcher/output/buffer_queue.h"
#include "launcher/output/fd_writer.h"
#include "launcher/output/rotation.h"

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace dtrun::output {

/// A file to which everything is appended that its queue is filled with, on a thread of its own. It is set aside
/// as Rotation says. After the first error everything else is dropped, and counts as taken.
///
/// Thread: one, except queue() and take_failure().
class LogFile {
public:
    /// Errc: invalid_input, internal; names the path
    static Result<std::unique_ptr<LogFile>> open(std::string path, Rotation rotation,
                                                 BufferQueue::Options options, TakenFunction taken);
    ~LogFile();  ///< stop() at once
    LogFile(const LogFile&) = delete;
    LogFile& operator=(const LogFile&) = delete;

    BufferQueue& queue() { return queue_; }
    const BufferQueue& queue() const { return queue_; }
    /// The error that ended it, once. Errc: internal, timed_out (stop())
    std::optional<Error> take_failure();

    /// Lets the thread write what there is until the deadline; join() waits for its end.
    /// \param abandoned_bytes  bytes that never reached the queue, for the error message
    void stop(Deadline deadline, std::size_t abandoned_bytes = 0);
    void join();

private:
    LogFile(std::string path, Rotation rotation, BufferQueue::Options options, TakenFunction taken);
    Result<void> open_file();
    void run();
    Result<void> write(std::string_view bytes);
    Result<void> write_part(std::string_view bytes);
    Result<void> wait_for_reader();
    void give_up(Error why);

    const std::string path_;
    Rotation rotation_;
    const TakenFunction taken_;
    BufferQueue queue_;

    // The thread's own once it runs.
    Fd file_;
    Fill fill_;
    bool failed_ = false;
    std::size_t unwritten_bytes_ = 0;

    std::mutex mutex_;
    std::optional<Error> failure_;     // guarded by mutex_
    std::size_t abandoned_bytes_ = 0;  // guarded by mutex_

    std::thread thread_;
};

}  // namespace dtrun::output
