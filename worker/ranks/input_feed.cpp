#include "worker/ranks/input_feed.h"

namespace dtrun::ranks {

InputFeed::InputFeed(asio::any_io_executor executor, Fd pipe) : pipe_(executor, pipe.release()) {}

void InputFeed::push(Chunk chunk) {
    if (!pipe_.is_open()) return;  // the rank has closed its end: nobody will read this
    queue_.push_back(std::move(chunk));
    write();
}

void InputFeed::end() {
    ending_ = true;
    write();
}

void InputFeed::write() {
    if (writing_ || !pipe_.is_open()) return;
    if (queue_.empty()) {
        if (ending_) close();
        return;
    }
    writing_ = true;
    const auto rest = asio::buffer(*queue_.front()) + offset_;
    // A write that has completed is not cancelled by our end: its handler is in the executor's queue.
    pipe_.async_write_some(rest, [this, alive = std::weak_ptr(alive_)](
                                     boost::system::error_code error, std::size_t bytes) {
        if (!alive.expired()) written(error, bytes);
    });
}

void InputFeed::written(boost::system::error_code error, std::size_t bytes) {
    writing_ = false;
    if (error) {
        close();
        queue_.clear();
        return;
    }
    offset_ += bytes;
    if (offset_ == queue_.front()->size()) {
        queue_.pop_front();
        offset_ = 0;
    }
    write();
}

void InputFeed::close() {
    boost::system::error_code ignored;
    pipe_.close(ignored);
}

}  // namespace dtrun::ranks
