#include "launcher/transport/onward_channel.h"

#include "rendezvous/wire/message.h"

#include <string.h>
#include <algorithm>
#include <utility>

namespace dtrun::transport {
namespace {

constexpr std::size_t kInputPieceBytes = Seal::kPlainBytesMax;  // one record

}  // namespace

OnwardChannel::OnwardChannel(Parts parts, const LoginOrder& order)
    : parts_(std::move(parts)),
      has_news_(parts_.executor, Timer::time_point::max()),
      has_room_(parts_.executor, Timer::time_point::max()) {
    say(LoginEvent::open, encode(order));
}

OnwardChannel::~OnwardChannel() {
    close();
    parts_.gone();
}

void OnwardChannel::take(const LoginStream& said) {
    switch (said.event) {
        case LoginEvent::output:
            output_ += said.bytes;
            break;
        case LoginEvent::errors:
            errors_ += said.bytes;
            if (errors_.size() > kErrorBytesMax) errors_.erase(0, errors_.size() - kErrorBytesMax);
            say(LoginEvent::taken, {}, static_cast<std::uint32_t>(said.bytes.size()));
            break;
        case LoginEvent::output_end:
            output_ended_ = true;
            break;
        case LoginEvent::exited:
            output_ended_ = true;
            ending_ = said.bytes;
            has_room_.cancel();
            break;
        case LoginEvent::taken:
            room_ = std::min(room_ + said.bytes_taken, kLoginInputBytes);
            has_room_.cancel();
            return;
        default:
            return;  // ours
    }
    has_news_.cancel();
}

void OnwardChannel::lost(std::string why) {
    if (!ending_.empty()) return;
    output_ended_ = true;
    ending_ = std::move(why);
    has_news_.cancel();
    has_room_.cancel();
}

asio::awaitable<Result<std::size_t>> OnwardChannel::read(std::span<char> into, Deadline deadline) {
    while (output_.empty() && !output_ended_ && !closed_) {
        if (Clock::now() >= deadline) co_return fail(Errc::timed_out, "no answer");
        has_news_.expires_at(deadline);
        co_await has_news_.async_wait(use_tuple);
    }
    if (closed_) co_return fail(Errc::cancelled, "closed");
    const std::size_t n = output_.copy(into.data(), into.size());
    output_.erase(0, n);
    if (n > 0) say(LoginEvent::taken, {}, static_cast<std::uint32_t>(n));
    co_return n;
}

asio::awaitable<Result<void>> OnwardChannel::write(std::string_view bytes, Deadline deadline) {
    while (!bytes.empty()) {
        if (closed_) co_return fail(Errc::cancelled, "closed");
        if (!ending_.empty()) co_return fail(Errc::closed, "{}", ending_);
        const std::string_view piece = bytes.substr(0, kInputPieceBytes);
        const auto sealed = static_cast<std::uint32_t>(piece.size() + Seal::kOverheadBytes);
        if (room_ >= sealed) {
            room_ -= sealed;
            say(LoginEvent::input, piece);
            bytes.remove_prefix(piece.size());
            continue;
        }
        if (Clock::now() >= deadline) co_return fail(Errc::timed_out, "no answer");
        has_room_.expires_at(deadline);
        co_await has_room_.async_wait(use_tuple);
    }
    co_return Result<void>{};
}

asio::awaitable<std::string> OnwardChannel::ending(Deadline deadline) {
    while (!is_over() && Clock::now() < deadline) {
        has_news_.expires_at(deadline);
        co_await has_news_.async_wait(use_tuple);
    }
    co_return ending_;
}

void OnwardChannel::close() noexcept {
    if (closed_) return;
    if (ending_.empty()) say(LoginEvent::input_end);
    closed_ = true;
    has_news_.cancel();
    has_room_.cancel();
}

/// \param plain  is sealed: what the head would have said through an ssh of its own
void OnwardChannel::say(LoginEvent event, std::string_view plain, std::uint32_t taken) {
    if (is_over()) return;
    LoginStream said;
    said.login = parts_.login;
    said.event = event;
    parts_.seal.seal(plain, said.bytes);
    said.bytes_taken = taken;
    parts_.send(said);
}

}  // namespace dtrun::transport
