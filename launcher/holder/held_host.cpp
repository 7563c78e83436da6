#include "launcher/holder/held_host.h"

#include "base/log.h"
#include "base/strings.h"
#include "rendezvous/wire/message.h"

#include <string.h>
#include <algorithm>
#include <array>
#include <utility>

namespace dtrun::holder {
namespace {

constexpr std::chrono::seconds kEndLimit{1};     // for a program that carries the log-in
constexpr std::chrono::seconds kWriteLimit{10};  // for a host to take a piece of what is sent to it
constexpr std::size_t kFullBytes = 256u << 10;   // unsent
/// From the loss of a host until it is worth another log-in.
constexpr std::chrono::seconds kAgainPause{5};

std::uint32_t ms_until(Deadline when) {
    const Deadline now = Clock::now();
    if (when <= now || when == Deadline::max()) return 0;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(when - now);
    return static_cast<std::uint32_t>(std::min<long long>(left.count(), UINT32_MAX));
}

}  // namespace

HeldHost::HeldHost(Parts parts, HeldEvents& events)
    : parts_(std::move(parts)), events_(events), room_(parts_.executor, Timer::time_point::max()) {
    terms_ = {parts_.keep, Clock::now()};
}

/// What others see of it is true before it runs.
asio::awaitable<void> HeldHost::run() {
    if (state_ == HeldState::gone) state_ = HeldState::logging_in;
    is_awaited_ = false;
    why_.clear();
    return stay();
}

asio::awaitable<void> HeldHost::stay() {
    Result<void> done = fail(Errc::cancelled, "released");
    if (state_ == HeldState::logging_in) {
        logging_in_.emplace(parts_.executor);
        logging_in_->spawn(log_in(done));
        co_await logging_in_->join();
        logging_in_.reset();
    }
    if (done && state_ == HeldState::logging_in) {
        state_ = HeldState::ready;
        terms_.used = Clock::now();
        heard_ = Clock::now();
        events_.changed(key());
        why_ = co_await listen();
    } else if (why_.empty()) {
        why_ = done.error().message;
        if (done.error().code == Errc::timed_out)
            why_ +=
                fmt::format(" within {:.3g} s (--connect-timeout)",
                            std::chrono::duration<double>(parts_.patience.connect_timeout).count());
    }
    log::info("{}: {}", name(), why_);
    state_ = HeldState::gone;
    lost_ = Clock::now();
    streams_.clear();
    unsent_.clear();
    received_.clear();
    const std::shared_ptr<transport::Channel> channel = std::move(channel_);
    room_.cancel();
    is_ending_ = channel != nullptr;
    events_.changed(key());
    if (!channel) co_return;
    co_await channel->end(kEndLimit);
    is_ending_ = false;
    events_.changed(key());
}

/// Again and again, as long as a host that is not there yet is awaited; one that hangs up for --connect-timeout at least.
/// \param done  stays as it is if this is cancelled
asio::awaitable<void> HeldHost::log_in(Result<void>& done) {
    std::optional<Deadline> hangs_up_until;
    bool was_awaited = false;
    for (unsigned attempt = 0;; ++attempt) {
        auto opened = co_await open();
        const Errc code = opened ? Errc::internal : opened.error().code;
        if (code == Errc::closed && !hangs_up_until)
            hangs_up_until = after(parts_.patience.connect_timeout);
        const Deadline until = code == Errc::closed
                                   ? std::max(*hangs_up_until, parts_.awaited_until)
                                   : parts_.awaited_until;
        if (opened || !transport::may_come(code) || Clock::now() >= until) {
            done = std::move(opened);
            if (!done)
                done = std::unexpected(
                    transport::given_up(std::move(done.error()), parts_.patience, was_awaited));
            co_return;
        }
        was_awaited = Clock::now() < parts_.awaited_until;
        log::info("{}: {}; trying again", name(), opened.error().message);
        const auto pause =
            transport::pause_before(attempt, parts_.number, transport::kLastLongPause);
        const std::shared_ptr<transport::Channel> failed = channel_;  // what carried it may live on
        if (failed) co_await failed->end(kEndLimit);
        if (state_ != HeldState::logging_in) co_return;
        channel_.reset();
        is_awaited_ = true;
        events_.changed(key());
        Timer next(parts_.executor, std::min(after(pause), until));
        const auto [error] = co_await next.async_wait(use_tuple);
        if (error) co_return;
    }
}

asio::awaitable<Result<void>> HeldHost::open() {
    transport::LoginPass pass(parts_.gate);
    co_await pass.wait(parts_.route);
    is_awaited_ = false;
    if (state_ != HeldState::logging_in) co_return fail(Errc::cancelled, "released");
    Deadline deadline = after(parts_.patience.connect_timeout);
    const std::function<void(const char*)> phase = [this, &pass](const char* what) {
        pass.now(what);
        log::info("{}: {}", name(), what);
    };
    auto opened = co_await parts_.open(deadline, phase);
    if (!opened) co_return std::unexpected(opened.error());
    channel_ = std::move(*opened);
    pass.watch(channel_);
    transport::LineReader lines(*channel_);
    const auto patience = parts_.patience.connect_timeout;
    auto greeted =
        co_await transport::greet_agent(*channel_, lines, parts_.copies, deadline, patience, phase);
    co_return greeted;
}

/// \return why the log-in has ended
asio::awaitable<std::string> HeldHost::listen() {
    const auto channel = channel_;
    std::array<char, 16384> bytes;
    for (;;) {
        const auto n = co_await channel->read(bytes, Deadline::max());
        if (!why_.empty()) co_return why_;  // of cut()
        if (!n) co_return "the log-in has ended: " + n.error().message;
        if (*n == 0) {
            const std::string said(trim(channel->take_errors()));
            co_return fmt::format("its keeper has ended{}{}", said.empty() ? "" : ": ", said);
        }
        heard_ = Clock::now();
        received_.append(bytes.data(), *n);
        if (const auto taken = take_frames(); !taken) co_return taken.error().message;
    }
}

Result<void> HeldHost::take_frames() {
    std::string_view rest = received_;
    for (;;) {
        const auto frame = next_frame(rest);
        if (!frame) return std::unexpected(frame.error());
        if (!*frame) break;
        const auto said = decode<WarmStream>((*frame)->payload);
        if ((*frame)->type != FrameType::warm_stream || !said)
            return fail(Errc::invalid_input, "its keeper speaks another language");
        take(*said);
    }
    received_.erase(0, received_.size() - rest.size());
    return {};
}

void HeldHost::take(const WarmStream& said) {
    const auto stream = streams_.find(said.stream);
    if (stream == streams_.end()) return;
    events_.said(said);
    if (said.event != WarmEvent::exited) return;
    streams_.erase(stream);
    terms_.used = Clock::now();
    events_.changed(key());
}

bool HeldHost::say(std::uint32_t stream, WarmEvent event, std::string_view bytes) {
    if (!channel_) return false;
    WarmStream said;
    said.stream = stream;
    said.event = event;
    said.bytes = bytes;
    Bytes frame = encode(said);
    ::explicit_bzero(said.bytes.data(), said.bytes.size());
    unsent_ += frame;
    ::explicit_bzero(frame.data(), frame.size());
    return !std::exchange(is_writing_, true);
}

asio::awaitable<void> HeldHost::write() {
    while (channel_ && !unsent_.empty()) {
        const auto channel = channel_;
        std::string now = std::exchange(unsent_, {});
        const auto done = co_await transport::send_in_pieces(*channel, now, kWriteLimit);
        ::explicit_bzero(now.data(), now.size());
        room_.cancel();
        if (!done && channel == channel_) cut("it takes nothing: " + done.error().message);
    }
    is_writing_ = false;
}

bool HeldHost::is_full() const {
    return unsent_.size() > kFullBytes;
}

asio::awaitable<void> HeldHost::room() {
    while (is_full()) co_await room_.async_wait(use_tuple);
}

bool HeldHost::log_out() {
    if (state_ == HeldState::logging_in) cut("released");
    if (state_ != HeldState::ready) return false;
    why_ = "released";
    state_ = HeldState::leaving;
    return say(0, WarmEvent::input_end);
}

void HeldHost::cut(std::string why) {
    if (why_.empty()) why_ = std::move(why);
    if (state_ == HeldState::logging_in) {
        state_ = HeldState::leaving;
        if (logging_in_) logging_in_->stop();
        return;
    }
    if (channel_) channel_->close();
}

bool HeldHost::may_log_in_again() const {
    return state_ == HeldState::gone && !is_ending_ && !terms_.released &&
           Clock::now() >= lost_ + kAgainPause;
}

HeldStatus HeldHost::status() const {
    HeldStatus status;
    status.host = name();
    status.key = key();
    status.state = state_;
    if (terms_.released && state_ == HeldState::ready) status.state = HeldState::leaving;
    status.jobs = static_cast<std::uint32_t>(streams_.size());
    status.taken = taken_;
    status.left_ms = ms_until(ends());
    if (state_ == HeldState::gone) status.why = why_;
    return status;
}

}  // namespace dtrun::holder
