#include "worker/input_feed.h"

namespace dtrun {

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
        if (ending_) pipe_.close();
        return;
    }
    writing_ = true;
    const auto rest = asio::buffer(*queue_.front()) + offset_;
    pipe_.async_write_some(rest, [this](boost::system::error_code error, std::size_t bytes) {
        if (error == asio::error::operation_aborted) return;
        writing_ = false;
        if (error) {
            pipe_.close();
            queue_.clear();
            return;
        }
        offset_ += bytes;
        if (offset_ == queue_.front()->size()) {
            queue_.pop_front();
            offset_ = 0;
        }
        write();
    });
}

}  // namespace dtrun
