#pragma once

#include "base/fd.h"
#include "base/result.h"
#include "bench/rendezvous_protocol.h"

#include <sys/socket.h>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::bench {

using Clock = std::chrono::steady_clock;

/// Where clients connect to. With several, clients take them in turn.
struct Endpoint {
    sockaddr_storage address{};
    socklen_t address_bytes = 0;
    std::uint32_t first_rank = 0;  ///< of its ranks; they are consecutive
};

/// Errc: invalid_input; \param text  HOST:PORT, HOST being an IPv4 address
Result<Endpoint> tcp_endpoint(const std::string& text);
/// Errc: invalid_input; \param text  a path or @NAME, and for an agent =FIRST_RANK
Result<Endpoint> unix_endpoint(const std::string& text);

/// All clients' connections, on one thread. A connection is opened when there is something to send.
///
/// Lifetime: `protocol` outlives it. The first failure stays: poll() returns it from then on.
class Engine {
public:
    using Done = std::function<void(std::uint32_t client)>;

    Engine(Protocol& protocol, std::vector<Endpoint> endpoints, std::uint32_t clients);

    /// Makes a client, which must be idle, begin a task and sends the first bytes.
    /// \return true: the task is done already
    bool begin(std::uint32_t client, Task task);

    /// Waits for something to happen, at most until `until`, and handles what has; `done` is called
    /// for each client whose task is, and may begin the next. Errc: closed, internal
    Result<void> poll(Clock::time_point until, const Done& done);

private:
    struct Slot {
        Fd fd;
        Connection connection;
        std::string carry;     ///< received, but not a whole answer yet
        std::size_t sent = 0;  ///< of connection.out
        bool wants_room = false;
        Task task{};
        bool busy = false;
    };

    void open(Slot& slot);
    void send(Slot& slot);
    void want_room(Slot& slot, bool wanted);
    void receive(Slot& slot, const Done& done);
    void received(Slot& slot, std::string_view bytes, const Done& done);
    void send_later(const Slot& slot);
    std::uint32_t index_of(const Slot& slot) const;
    const Endpoint& endpoint_of(const Slot& slot) const;
    void failed(const Slot& slot, const char* what, int error = 0);

    Protocol& protocol_;
    std::vector<Endpoint> endpoints_;
    std::vector<Slot> slots_;
    Fd epoll_;
    std::multimap<Clock::time_point, std::uint32_t> later_;  ///< slots that send then
    std::string buffer_;
    std::optional<Error> failure_;
};

}  // namespace dtrun::bench
