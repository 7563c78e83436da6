#pragma once

#include "base/fd.h"
#include "base/result.h"
#include "launcher/buffer_queue.h"
#include "launcher/fd_writer.h"

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace dtrun {

/// "rank.07": zero padded to the width of the highest rank.
std::string rank_directory(int rank, int world_size);

/// The ranks' bytes as they came, in DIRECTORY/rank.N/stdout and …/stderr, written on a thread of
/// their own so that a slow disk keeps nobody else waiting.
///
/// At most `open_max` files are open at a time, so thousands of ranks need no higher limit of
/// descriptors. A file that fails gets nothing more, and what was meant for it counts as taken.
///
/// Thread: one, except take_failures().
class RankFiles {
public:
    /// Makes all directories and empty files. Errc: not_found, denied, internal; names the path
    static Result<std::unique_ptr<RankFiles>> create(std::string directory, int world_size,
                                                     std::size_t open_max,
                                                     BufferQueue::Options options,
                                                     TakenFunction taken);
    ~RankFiles();  ///< stop() at once
    RankFiles(const RankFiles&) = delete;
    RankFiles& operator=(const RankFiles&) = delete;

    void add(int rank, Stream stream, std::string_view bytes);
    bool idle() const { return queue_.idle(); }

    /// Once for each file that failed. Errc: internal, timed_out (stop())
    std::vector<Error> take_failures();

    /// Lets the thread write what there is until the deadline; join() waits for its end.
    void stop(Deadline deadline);
    void join();

private:
    struct File {
        Fd fd;
        bool failed = false;
    };
    struct Segment {
        std::uint32_t stream;
        std::string_view bytes;
    };

    RankFiles(std::string directory, int world_size, std::size_t open_max,
              BufferQueue::Options options, TakenFunction taken);
    Result<void> make_files();
    std::string path(std::size_t stream) const;
    bool open(std::size_t stream, int flags);
    bool close_oldest();
    void run();
    void write_out(const BufferQueue::Buffer& buffer);
    void write_file(std::size_t stream, const Segment* begin, const Segment* end);
    void give_up(std::size_t stream, std::string_view why);

    const std::string directory_;
    const int world_size_;
    const std::size_t open_max_;
    const TakenFunction taken_;
    BufferQueue queue_;

    // The thread's own once it runs.
    std::vector<File> files_;             // by stream_index()
    std::deque<std::size_t> open_files_;  // longest open first
    std::vector<Segment> segments_;
    std::size_t unwritten_bytes_ = 0;

    std::mutex mutex_;
    std::vector<Error> failures_;  // guarded by mutex_

    std::thread thread_;
};

}  // namespace dtrun
