#pragma once

#include "base/result.h"

#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace dtrun::collectives::over_gloo {

/// Gloo's error message, without the place in its sources.
std::string reason_of(const std::exception& error);

/// Gloo's device on one address: a thread that makes connections and moves asynchronous messages.
class Transport {
public:
    using Handler = ::gloo::transport::tcp::Handler;

    /// Errc: internal
    static Result<std::unique_ptr<Transport>> open(const std::string& ip);
    ~Transport();
    Transport(const Transport&) = delete;
    Transport& operator=(const Transport&) = delete;

    /// \param timeout  for making a connection
    std::shared_ptr<::gloo::transport::Context> make_context(std::uint32_t rank, std::uint32_t size,
                                                             std::chrono::milliseconds timeout);
    /// Sets the connect timeout of connections that are made from now on.
    static void set_timeout(::gloo::transport::Context& context, std::chrono::milliseconds timeout);

    /// Calls handler.handleEvents() in the device's thread for EPOLL... events of a descriptor.
    Result<void> watch(int fd, int events, Handler& handler);
    /// Once this returns no call of the handler is running, unless the handler called this.
    void unwatch(int fd, Handler& handler) noexcept;

    /// Making or closing a connection waits for the next turn of Gloo's event loop, which turns
    /// once in 10 ms. While a Hurry lives the loop turns often.
    class Hurry {
    public:
        explicit Hurry(Transport& transport);
        ~Hurry();
        Hurry(const Hurry&) = delete;
        Hurry& operator=(const Hurry&) = delete;

    private:
        Transport& transport_;
    };

    /// Calls `event` in the device's thread, until it returns false, for EPOLL... events of a
    /// descriptor.
    class Watch;

private:
    /// Is always ready while its eventfd counts more than nothing.
    class Ticker;

    explicit Transport(std::shared_ptr<::gloo::transport::tcp::Device> device);

    std::shared_ptr<::gloo::transport::tcp::Device> device_;
    std::unique_ptr<Ticker> ticker_;
};

class Transport::Watch final : public Handler {
public:
    using Event = std::function<bool(int events)>;

    Watch(Transport& transport, int fd, int events, Event event);
    ~Watch() override;
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    void handleEvents(int events) override;

private:
    Transport& transport_;
    int fd_;
    Event event_;
    std::mutex mutex_;  ///< held while event_ is under way
    bool watched_;
};

}  // namespace dtrun::collectives::over_gloo
