#pragma once

#include "base/asio.h"
#include "base/fd.h"

#include <deque>
#include <memory>
#include <string>

namespace dtrun {

/// Feeds one rank's standard input from memory, as fast as the rank reads.
///
/// Thread: the executor's, which must not run any more when the feed is destroyed.
class InputFeed {
public:
    /// Released (the last copy destroyed) when every rank that was to get it has taken it.
    using Chunk = std::shared_ptr<const std::string>;

    InputFeed(asio::any_io_executor executor, Fd pipe);

    void push(Chunk chunk);
    void end();  ///< closes the rank's standard input once everything was taken

private:
    void write();

    asio::posix::stream_descriptor pipe_;
    std::deque<Chunk> queue_;
    std::size_t offset_ = 0;  ///< of queue_.front(), already written
    bool writing_ = false;
    bool ending_ = false;
};

}  // namespace dtrun
