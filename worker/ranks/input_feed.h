#pragma once

#include "base/fd.h"
#include "base/loop/asio.h"

#include <deque>
#include <memory>
#include <string>

namespace dtrun::ranks {

/// Feeds one rank's standard input from memory, as fast as the rank reads.
///
/// Thread: the executor's. May be destroyed at any time on it: what was not written is dropped.
class InputFeed {
public:
    /// Released (the last copy destroyed) when every rank that was to get it has taken it.
    using Chunk = std::shared_ptr<const std::string>;

    InputFeed(asio::any_io_executor executor, Fd pipe);

    void push(Chunk chunk);
    void end();  ///< closes the rank's standard input once everything was taken

private:
    void write();
    void written(boost::system::error_code error, std::size_t bytes);
    void close();

    asio::posix::stream_descriptor pipe_;
    std::deque<Chunk> queue_;
    std::size_t offset_ = 0;  ///< of queue_.front(), already written
    bool writing_ = false;
    bool ending_ = false;
    std::shared_ptr<char> alive_ = std::make_shared<char>();  ///< for what is queued when we die
};

}  // namespace dtrun::ranks
