#include "worker/doctor/host_doctor.h"

#include "base/fd.h"
#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "rendezvous/doctor/probe_listener.h"
#include "rendezvous/wire/message.h"
#include "worker/doctor/facts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <thread>
#include <utility>

namespace dtrun::doctor {
namespace {

constexpr std::chrono::seconds kEndLimit{1};
constexpr std::uint64_t kDescriptors = 65'536;  // hosts that all visit each other at once

/// One examination, from the first frame to the end of standard input.
class HostDoctor {
public:
    explicit HostDoctor(asio::io_context& io)
        : io_(io),
          input_(io, ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)),
          tasks_(io.get_executor()) {}

    asio::awaitable<void> run();
    /// Ends programs that still tell their versions.
    void end();
    const std::string& failed() const { return failed_; }  ///< why; empty: it has not

private:
    Result<void> take(const FrameView& frame);
    Result<void> begin(const Examine& examine);
    asio::awaitable<void> pay(Visit order);
    asio::awaitable<void> trade(SpeedTest order);

    template <class Message>
    void say(const Message& message) {
        const Bytes frame = encode(message);
        if (!write_all(STDOUT_FILENO, frame)) input_.close();
    }

    asio::io_context& io_;
    asio::posix::stream_descriptor input_;
    Examine asked_;
    std::string failed_;
    std::unique_ptr<ProbeListener> listener_;
    std::promise<void> all_told_;
    std::future<void> told_ = all_told_.get_future();
    bool tells_ = false;
    TaskGroup tasks_;
};

asio::awaitable<void> HostDoctor::run() {
    std::string received;
    std::array<char, 16384> bytes;
    for (;;) {
        const auto buffer = asio::buffer(bytes);
        const auto [error, n] = co_await input_.async_read_some(buffer, use_tuple);
        if (error) co_return;
        received.append(bytes.data(), n);
        std::string_view rest = received;
        for (;;) {
            const auto frame = next_frame(rest);
            if (!frame) co_return;
            if (!*frame) break;
            if (const auto taken = take(**frame); !taken) {
                failed_ = taken.error().message;
                co_return;
            }
        }
        received.erase(0, received.size() - rest.size());
    }
}

Result<void> HostDoctor::take(const FrameView& frame) {
    if (frame.type == FrameType::examine) {
        const auto examine = decode<Examine>(frame.payload);
        return examine ? begin(*examine) : std::unexpected(examine.error());
    }
    if (frame.type == FrameType::visit && listener_) {
        auto order = decode<Visit>(frame.payload);
        if (!order) return std::unexpected(order.error());
        tasks_.spawn(pay(std::move(*order)));
    }
    if (frame.type == FrameType::speed_test && listener_) {
        auto order = decode<SpeedTest>(frame.payload);
        if (!order) return std::unexpected(order.error());
        tasks_.spawn(trade(std::move(*order)));
    }
    return {};
}

Result<void> HostDoctor::begin(const Examine& examine) {
    if (listener_ || examine.token.size() != Examine::kTokenBytes)
        return fail(Errc::invalid_input, "no examination");
    asked_ = examine;
    for (const std::string& variable : asked_.env)
        if (const std::size_t end = variable.find('='); end != std::string::npos)
            ::setenv(variable.substr(0, end).c_str(), variable.substr(end + 1).c_str(), 1);
    auto door = ProbeListener::open(io_.get_executor(), asked_.token);
    if (!door) return std::unexpected(door.error());
    listener_ = std::move(*door);
    tells_ = true;
    say(Examined{time_of_date(), listener_->port(), addresses_here()});
    std::thread([this, all = std::move(all_told_)]() mutable {
        auto facts = std::make_shared<HostFacts>(HostFacts{gather_facts(asked_.directory)});
        asio::post(io_, [this, facts] { say(*facts); });
        all.set_value();
    }).detach();
    return {};
}

asio::awaitable<void> HostDoctor::pay(Visit order) {
    const Visited visited = co_await visit(asked_.token, std::move(order));
    say(visited);
}

asio::awaitable<void> HostDoctor::trade(SpeedTest order) {
    const Speed speed = co_await test_speed(asked_.token, std::move(order));
    say(speed);
}

void HostDoctor::end() {
    ::kill(::getpid(),
           SIGTERM);  // every thread has it blocked, and waits for it beside its program
    // A program that a broken driver holds may not end at all; then we do not wait for it.
    if (tells_) told_.wait_for(kEndLimit);
}

}  // namespace

int run_host_doctor() {
    raise_descriptor_limit(kDescriptors);
    sigset_t ending;
    ::sigemptyset(&ending);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::sigaddset(&ending, signal);
    ::pthread_sigmask(SIG_BLOCK, &ending, nullptr);
    ::signal(SIGPIPE, SIG_IGN);
    if (!write_all(STDOUT_FILENO, fmt::format("dtrun-agent {}\n", kProtocolVersion))) return 1;
    // They live on while the process ends: handlers that are still queued refer to them.
    auto& io = *new asio::io_context(1);
    auto& run = *new HostDoctor(io);
    asio::co_spawn(io, run.run(), [&io](std::exception_ptr error) {
        if (error) std::rethrow_exception(error);
        io.stop();
    });
    io.run();
    run.end();
    if (run.failed().empty()) return 0;
    std::fputs((run.failed() + "\n").c_str(), stderr);
    return 1;
}

}  // namespace dtrun::doctor
