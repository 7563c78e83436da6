#include "launcher/warm/warm_channel.h"

#include "rendezvous/wire/message.h"

#include <string.h>
#include <utility>

namespace dtrun::warm {
namespace {

constexpr std::size_t kPieceBytes = 1u << 20;  // of input, in a frame

class WarmChannel final : public transport::Channel {
public:
    explicit WarmChannel(HolderConnection connection) : connection_(std::move(connection)) {}
    ~WarmChannel() override { connection_.close(); }

    asio::awaitable<Result<std::size_t>> read(std::span<char> into, Deadline deadline) override {
        while (output_.empty() && !output_ended_) {
            const auto received = co_await receive(deadline);
            if (!received) co_return std::unexpected(received.error());
        }
        const std::size_t n = output_.copy(into.data(), into.size());
        output_.erase(0, n);
        co_return n;
    }

    asio::awaitable<Result<void>> write(std::string_view bytes, Deadline deadline) override {
        while (!bytes.empty()) {
            WarmStream piece;
            piece.event = WarmEvent::input;
            piece.bytes = bytes.substr(0, kPieceBytes);
            bytes.remove_prefix(piece.bytes.size());
            Bytes frame = encode(piece);
            ::explicit_bzero(piece.bytes.data(), piece.bytes.size());
            const auto sent = co_await connection_.send(std::move(frame), deadline);
            if (!sent) co_return sent;
        }
        co_return Result<void>{};
    }

    std::string take_errors() override { return std::exchange(errors_, {}); }

    asio::awaitable<std::string> ending(Deadline deadline) override {
        while (ending_.empty()) {
            const auto received = co_await receive(deadline);
            if (!received) break;
        }
        co_return ending_;
    }

    void close() noexcept override { connection_.close(); }

private:
    asio::awaitable<Result<void>> receive(Deadline deadline) {
        auto said = co_await connection_.receive<WarmStream>(deadline);
        if (!said) co_return std::unexpected(said.error());
        if (said->event == WarmEvent::output) output_ += said->bytes;
        if (said->event == WarmEvent::errors) errors_ += said->bytes;
        if (errors_.size() > kErrorBytesMax) errors_.erase(0, errors_.size() - kErrorBytesMax);
        output_ended_ = output_ended_ || said->event == WarmEvent::output_end;
        if (said->event == WarmEvent::exited) ending_ = said->bytes;
        co_return Result<void>{};
    }

    HolderConnection connection_;
    std::string output_, errors_, ending_;
    bool output_ended_ = false;
};

}  // namespace

std::unique_ptr<transport::Channel> make_warm_channel(HolderConnection connection) {
    return std::make_unique<WarmChannel>(std::move(connection));
}

}  // namespace dtrun::warm
