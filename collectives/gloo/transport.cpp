#include "collectives/gloo/transport.h"

#include "collectives/quiet_thread.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <string_view>
#include <thread>
#include <utility>

namespace dtrun::collectives::over_gloo {
std::string reason_of(const std::exception& error) {
    const std::string_view text = error.what();
    const auto place = text.starts_with('[') ? text.find("] ") : text.npos;
    return std::string(place == text.npos ? text : text.substr(place + 2));
}

class Transport::Ticker final : public Handler {
public:
    Ticker() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE)) {}
    ~Ticker() override {
        if (fd_ >= 0) close(fd_);
    }
    Ticker(const Ticker&) = delete;
    Ticker& operator=(const Ticker&) = delete;

    int fd() const { return fd_; }
    void start() const { eventfd_write(fd_, 1); }
    void stop() const {
        eventfd_t one = 0;
        eventfd_read(fd_, &one);
    }
    void handleEvents(int) override { std::this_thread::sleep_for(std::chrono::microseconds(500)); }

private:
    int fd_;
};

Transport::Hurry::Hurry(Transport& transport) : transport_(transport) {
    transport_.ticker_->start();
}

Transport::Hurry::~Hurry() {
    transport_.ticker_->stop();
}

Transport::Transport(std::shared_ptr<::gloo::transport::tcp::Device> device)
    : device_(std::move(device)), ticker_(std::make_unique<Ticker>()) {}

Transport::~Transport() {
    unwatch(ticker_->fd(), *ticker_);
    device_.reset();
}

Result<std::unique_ptr<Transport>> Transport::open(const std::string& ip) {
    try {
        const NoSignals guard;
        auto device = ::gloo::transport::tcp::CreateDevice(ip.c_str());
        std::unique_ptr<Transport> transport(new Transport(
            std::static_pointer_cast<::gloo::transport::tcp::Device>(std::move(device))));
        Ticker& ticker = *transport->ticker_;
        if (auto watched = transport->watch(ticker.fd(), EPOLLIN, ticker); !watched)
            return std::unexpected(watched.error());
        return transport;
    } catch (const std::exception& error) {
        return fail(Errc::internal, "Gloo on {}: {}", ip, reason_of(error));
    }
}

std::shared_ptr<::gloo::transport::Context> Transport::make_context(
    std::uint32_t rank, std::uint32_t size, std::chrono::milliseconds timeout) {
    auto context = device_->createContext(static_cast<int>(rank), static_cast<int>(size));
    set_timeout(*context, timeout);
    return context;
}

void Transport::set_timeout(::gloo::transport::Context& context,
                            std::chrono::milliseconds timeout) {
    // A pair waits five times its timeout for its connection.
    context.setTimeout(timeout / 5 + std::chrono::milliseconds(1));
}

Result<void> Transport::watch(int fd, int events, Handler& handler) {
    try {
        device_->registerDescriptor(fd, events, &handler);
        return {};
    } catch (const std::exception& error) {
        return fail(Errc::internal, "Gloo: {}", reason_of(error));
    }
}

void Transport::unwatch(int fd, Handler& handler) noexcept {
    try {
        device_->unregisterDescriptor(fd, &handler);
    } catch (const std::exception&) {
        // It was not watched any more.
    }
}

Transport::Watch::Watch(Transport& transport, int fd, int events, Event event)
    : transport_(transport),
      fd_(fd),
      event_(std::move(event)),
      watched_(transport.watch(fd, events, *this).has_value()) {}

Transport::Watch::~Watch() {
    if (watched_) transport_.unwatch(fd_, *this);
    // If handleEvents() has unwatched it already, that call may still be running.
    const std::lock_guard lock(mutex_);
}

void Transport::Watch::handleEvents(int events) {
    const std::lock_guard lock(mutex_);
    if (!event_(events)) transport_.unwatch(fd_, *this);
}

}  // namespace dtrun::collectives::over_gloo
