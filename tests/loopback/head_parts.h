#pragma once

#include "base/fd.h"
#include "base/loop/asio.h"
#include "launcher/output/output.h"
#include "launcher/transport/channel.h"

#include <sys/socket.h>
#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// What a head of a simulation has in place of a terminal and of a log-in.

namespace dtrun::loopback {

using Pair = std::pair<Fd, Fd>;

inline Pair socket_pair() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        throw std::runtime_error("socketpair");
    return {Fd(ends[0]), Fd(ends[1])};
}

/// Passes on what comes, few bytes at a time, until either of the two is closed.
inline asio::awaitable<void> pass_on(Unix::socket& from, Unix::socket& to) {
    std::array<char, 5'000> bytes;
    const auto buffer = asio::buffer(bytes);
    for (;;) {
        const auto [error, n] = co_await from.async_read_some(buffer, use_tuple);
        if (error) break;
        const auto piece = asio::buffer(bytes, n);
        const auto [failed, written] = co_await asio::async_write(to, piece, use_tuple);
        if (failed) break;
    }
}

/// Keeps everything in memory; a reader that pauses leaves it there.
class MemoryOutput final : public output::Output {
public:
    MemoryOutput(asio::any_io_executor executor, std::function<void()> wake)
        : executor_(std::move(executor)), wake_(std::move(wake)) {}

    void add_slots(output::MoreSlots) override {}
    void set_numbers(const plan::RankNumbers&) override {}
    void begin_attempt(int) override {}
    void add(plan::SlotId rank, Stream stream, std::int64_t, std::string_view bytes) override {
        bytes_ += bytes.size();
        waiting_.push_back({rank, stream, bytes.size()});
        read();
    }
    void finish(plan::SlotId, Stream) override {}
    void message(std::string_view lines) override {
        text_ += lines;
        if (text_.size() > text_max_) text_.erase(0, text_.size() - text_max_ / 2);
    }
    void set_status(std::string_view) override {}
    bool has_status() const override { return false; }
    std::span<const output::OutputCredit> collect() override {
        collected_ = std::exchange(left_, {});
        return collected_;
    }
    bool idle() const override { return waiting_.empty() && left_.empty(); }
    std::vector<Error> take_failures() override { return {}; }
    std::vector<std::string> tail(plan::SlotId) const override { return {}; }
    void stop(Deadline) override {}

    void pause(bool paused) {
        paused_ = paused;
        read();
    }
    /// From now on forgets the older ones of many messages.
    void keep_last(std::size_t bytes) { text_max_ = bytes; }
    const std::string& text() const { return text_; }
    std::size_t bytes() const { return bytes_; }

private:
    void read() {
        if (paused_ || waiting_.empty()) return;
        std::ranges::move(waiting_, std::back_inserter(left_));
        waiting_.clear();
        asio::post(executor_, wake_);
    }

    asio::any_io_executor executor_;
    std::function<void()> wake_;
    std::string text_;
    std::size_t text_max_ = SIZE_MAX;
    std::size_t bytes_ = 0;
    bool paused_ = false;
    std::vector<output::OutputCredit> waiting_, left_, collected_;
};

/// The standard streams of an agent, in memory.
class FakeChannel final : public transport::Channel {
public:
    FakeChannel(asio::any_io_executor executor, std::shared_ptr<std::string> said, Fd input,
                std::shared_ptr<Timer> news)
        : said_(std::move(said)), news_(std::move(news)), input_(std::move(executor)) {
        if (input) input_.assign(Unix(), input.release());
    }
    ~FakeChannel() override { *handle_ = nullptr; }

    /// By which others reach it as long as it is there.
    using Handle = std::shared_ptr<FakeChannel*>;
    const Handle& handle() const { return handle_; }
    static void close(const Handle& handle) {
        if (handle && *handle != nullptr) (*handle)->close();
    }

    asio::awaitable<Result<std::size_t>> read(std::span<char> into, Deadline deadline) override {
        while (said_->empty() && !closed_) {
            if (Clock::now() >= deadline) co_return fail(Errc::timed_out, "timed out");
            news_->expires_at(deadline);
            co_await news_->async_wait(use_tuple);
        }
        const std::size_t n = std::min(into.size(), said_->size());
        std::copy_n(said_->begin(), n, into.begin());
        said_->erase(0, n);
        co_return n;
    }
    asio::awaitable<Result<void>> write(std::string_view bytes, Deadline) override {
        const auto buffer = asio::buffer(bytes);
        const auto [error, n] = co_await asio::async_write(input_, buffer, use_tuple);
        if (error) co_return fail(Errc::closed, "{}", error.message());
        co_return Result<void>{};
    }
    std::string take_errors() override { return {}; }
    asio::awaitable<std::string> ending(Deadline) override { co_return "exit status 1"; }
    void close() noexcept override {
        closed_ = true;
        boost::system::error_code ignored;
        input_.close(ignored);
        news_->cancel();
    }

private:
    std::shared_ptr<std::string> said_;
    std::shared_ptr<Timer> news_;
    Unix::socket input_;
    bool closed_ = false;
    Handle handle_ = std::make_shared<FakeChannel*>(this);
};

}  // namespace dtrun::loopback
