#include "worker/ranks/output_pump.h"

#include "base/simulated.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <algorithm>
#include <chrono>
#include <functional>
#include <ranges>
#include <utility>

namespace dtrun::ranks {
namespace {

using std::chrono::microseconds;

constexpr std::uint32_t kReservedPart = 8;  // of the window: one of so many
/// A stream that had less in its pipe rests after a transfer.
constexpr std::size_t kTrickleBytes = 32u << 10;
constexpr microseconds kRestMax{2000};
constexpr microseconds kRestMin{50};
/// What a stream should have in its pipe after a rest: a quarter of the pipe (rank_process.cpp), so that a
/// rank that has become four times as fast still does not wait for us.
constexpr std::size_t kBytesAfterRest = 64u << 10;

/// How long a stream shall rest, of which a rest of `rest` has left `bytes` in its pipe.
microseconds next_rest(microseconds rest, std::size_t bytes) {
    const double factor = static_cast<double>(kBytesAfterRest) / static_cast<double>(bytes);
    const double wanted = static_cast<double>(rest.count()) * factor;
    if (wanted >= static_cast<double>(kRestMax.count())) return kRestMax;
    return std::max(kRestMin, microseconds(static_cast<microseconds::rep>(wanted)));
}

std::size_t available(int pipe) {
    int bytes = 0;
    if (::ioctl(pipe, FIONREAD, &bytes) != 0) return 0;
    return static_cast<std::size_t>(bytes);
}

/// Nobody has the other end open any more, and nothing is left to read.
bool at_end(int pipe) {
    pollfd state{pipe, POLLIN, 0};
    return ::poll(&state, 1, 0) == 1 && (state.revents & POLLIN) == 0;
}

}  // namespace

OutputPump::Source::Source(asio::any_io_executor executor, SlotIndex place_, Stream stream_,
                           Fd pipe_)
    : place(place_), stream(stream_), pipe(std::move(pipe_)), rest(kRestMax), watcher(executor) {}

OutputPump::OutputPump(asio::any_io_executor executor, Link& link, std::uint32_t window_bytes,
                       std::function<void(SlotIndex, Stream)> ended)
    : executor_(executor),
      link_(link),
      window_(window_bytes),
      reserve_(window_bytes / kReservedPart),
      ended_(std::move(ended)),
      rest_timer_(executor) {}

void OutputPump::add(SlotIndex place, Stream stream, Fd pipe) {
    watch(sources_.emplace(sources_.end(), executor_, place, stream, std::move(pipe)));
}

void OutputPump::watch(Handle source) {
    boost::system::error_code error;
    source->watcher.assign(source->pipe.get(), error);
    source->watcher.async_wait(asio::posix::descriptor_base::wait_read,
                               [this, source](boost::system::error_code failed) {
                                   if (failed) return;
                                   source->watcher.release();
                                   ready_.push_back(source);
                                   pump();
                               });
}

void OutputPump::credit(std::uint64_t bytes) {
    window_ += bytes;
    ready_.insert(ready_.begin(), held_.begin(), held_.end());
    held_.clear();
    pump();
}

std::size_t OutputPump::room_for(Handle source) const {
    const std::uint64_t kept = source->stream == Stream::err ? 0 : std::min(window_, reserve_);
    return std::min<std::size_t>(window_ - kept, OutputHeader::kDataBytesMax);
}

void OutputPump::pump() {
    if (std::exchange(pumping_, true)) return;  // a transfer that ended at once calls back
    while (window_ > 0 && !ready_.empty()) {
        const Handle source = ready_.front();
        ready_.pop_front();
        const int pipe = source->pipe.get();
        const std::size_t bytes = available(pipe);
        const std::size_t room = room_for(source);
        if (bytes > 0 && room == 0) {
            held_.push_back(source);
        } else if (bytes > 0) {
            transfer(source, bytes, room);
        } else if (at_end(pipe)) {
            const SlotIndex place = source->place;
            const Stream stream = source->stream;
            sources_.erase(source);
            ended_(place, stream);
        } else {
            watch(source);
        }
    }
    pumping_ = false;
}

/// \param there  in the pipe; what the window has no room for shall follow with the next credit, without a rest
void OutputPump::transfer(Handle source, std::size_t there, std::size_t room) {
    if (std::exchange(source->rested, false)) source->rest = next_rest(source->rest, there);
    const std::size_t bytes = std::min(there, room);
    window_ -= bytes;
    const OutputHeader header{source->place, source->stream, since_1970().count()};
    const auto head = encode_output_header(header, static_cast<std::uint32_t>(bytes));
    link_.send_from_pipe(Bytes(head.data(), head.size()), source->pipe.get(), bytes,
                         [this, source, there] { transferred(source, there); });
}

void OutputPump::transferred(Handle source, std::size_t were_there) {
    if (were_there < kTrickleBytes)
        rest(source);
    else
        ready_.push_back(source);
    pump();
}

void OutputPump::rest(Handle source) {
    source->rests_until = after(source->rest);
    resting_.push_back(source);
    if (resting_.size() == 1 || source->rests_until < rest_timer_.expiry()) wait_for_resting();
}

void OutputPump::wait_for_resting() {
    const auto until = [](Handle source) { return source->rests_until; };
    rest_timer_.expires_at(std::ranges::min(resting_ | std::views::transform(until)));
    rest_timer_.async_wait([this](boost::system::error_code error) {
        if (!error) wake_resting(Clock::now());
    });
}

void OutputPump::hurry() {
    rest_timer_.cancel();
    wake_resting(Clock::time_point::max());
}

void OutputPump::wake_resting(Clock::time_point now) {
    const auto is_over = [now](Handle source) { return source->rests_until <= now; };
    const auto first = std::ranges::stable_partition(resting_, std::not_fn(is_over)).begin();
    for (auto source = first; source != resting_.end(); ++source) {
        (*source)->rested = (*source)->rests_until <= Clock::now();
        ready_.push_back(*source);
    }
    resting_.erase(first, resting_.end());
    if (!resting_.empty()) wait_for_resting();
    pump();
}

}  // namespace dtrun::ranks
