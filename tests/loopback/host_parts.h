#pragma once

#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/simulated.h"
#include "tests/loopback/fake_ranks.h"
#include "tests/loopback/head_parts.h"
#include "tests/loopback/simulation.h"
#include "worker/agent/agent.h"

#include <array>
#include <list>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// What hosts of a simulation are made of.

namespace dtrun::loopback {

/// Takes the place of a network: moves bytes between two sockets, each piece a little later.
class Wire {
public:
    /// \param slow  how much later at least
    Wire(asio::any_io_executor executor, std::mt19937& random, Fd host, Fd head, milliseconds slow)
        : random_(random),
          slow_(slow),
          host_(executor),
          head_(executor),
          goes_on_(executor, Timer::time_point::max()),
          tasks_(executor) {
        host_.assign(Unix(), host.release());
        head_.assign(Unix(), head.release());
        tasks_.spawn(move(host_, head_, Way::from_host));
        tasks_.spawn(move(head_, host_, Way::to_host));
    }

    /// Delivers nothing that goes this way, or all again.
    void stall(std::optional<Way> way) {
        stalled_ = way;
        goes_on_.cancel();
    }
    void cut() {
        boost::system::error_code ignored;
        host_.close(ignored);
        head_.close(ignored);
    }
    asio::awaitable<void> join() {
        cut();
        tasks_.stop();
        co_await tasks_.join();
    }

private:
    bool is_stalled(Way way) const { return stalled_ == Way::both || stalled_ == way; }

    asio::awaitable<void> move(Unix::socket& from, Unix::socket& to, Way way) {
        std::array<char, 32 << 10> bytes;
        const auto buffer = asio::buffer(bytes);
        Timer delay(from.get_executor());
        for (;;) {
            const auto [error, n] = co_await from.async_read_some(buffer, use_tuple);
            if (error) break;
            delay.expires_after(slow_ + std::chrono::microseconds(random_() % 2'000));
            co_await delay.async_wait(use_tuple);
            while (is_stalled(way)) co_await goes_on_.async_wait(use_tuple);
            const auto piece = asio::buffer(bytes, n);
            const auto [failed, written] = co_await asio::async_write(to, piece, use_tuple);
            if (failed) break;
        }
        boost::system::error_code ignored;
        to.shutdown(Unix::socket::shutdown_send, ignored);
    }

    std::mt19937& random_;
    milliseconds slow_;
    Unix::socket host_;
    Unix::socket head_;
    Timer goes_on_;
    std::optional<Way> stalled_;
    TaskGroup tasks_;
};

/// One host: its agent, and what connects it to the head.
struct HostHere {
    std::list<std::unique_ptr<agent::Agent>> agents;  ///< the last one is today's
    std::vector<FakeRanks*> ranks;                    ///< of each agent
    std::list<std::unique_ptr<Wire>> wires;           ///< likewise
    FakeChannel::Handle channel;
    bool gone = false;  ///< it has no power

    std::size_t running() const {
        std::size_t running = 0;
        for (const FakeRanks* each : ranks) running += each->running();
        return running;
    }
    void vanish() {
        for (FakeRanks* each : ranks) each->vanish();
    }
    void cut() {
        if (!wires.empty()) wires.back()->cut();
    }
    void stall(std::optional<Way> way) {
        if (!wires.empty()) wires.back()->stall(way);
    }
};

/// A service that has something to say before its host has joined.
class Warns final : public ranks::RankService {
public:
    Warns(std::function<void(const MpiStatus&)> tell, std::string text)
        : tell_(std::move(tell)), text_(std::move(text)) {}

    Result<void> open(contracts::ContractFacts&) override {
        MpiStatus news;
        news.note = text_;
        tell_(news);
        return {};
    }

private:
    std::function<void(const MpiStatus&)> tell_;
    std::string text_;
};

/// Draws from the seed what dtrun draws. Nothing of a head and its agents blocks.
class Randomness final : public SimulatedSystem {
public:
    explicit Randomness(std::mt19937& random) : random_(random) { current = this; }
    ~Randomness() override { current = nullptr; }

    void random_bytes(std::span<std::uint8_t> out) override {
        for (std::uint8_t& byte : out) byte = static_cast<std::uint8_t>(random_());
    }
    std::chrono::nanoseconds wall_time() override {
        return std::chrono::hours(500'000) + Clock::now().time_since_epoch();
    }
    std::uint64_t free_bytes(const std::string&) override { return UINT64_MAX; }
    void rename_file(const std::string&, const std::string&) override { blocks(); }
    std::unique_ptr<Thread> start_thread(std::function<void()>) override { blocks(); }
    bool wait_on(const void*, Deadline) override { blocks(); }
    void wake_one(const void*) override { blocks(); }
    void wake_all(const void*) override { blocks(); }
    int poll(int, short, Deadline) override { blocks(); }
    int connect(const sockaddr&) override { blocks(); }
    void exit_process(int) override { blocks(); }

private:
    [[noreturn]] static void blocks() { throw std::logic_error("a head or an agent blocks"); }

    std::mt19937& random_;
};

}  // namespace dtrun::loopback
