#pragma once

#include "base/loop/accept.h"
#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::watch {

struct HttpRequest {
    std::string path;    ///< "/api/view"
    std::string query;   ///< what follows '?', as it is
    std::string key;     ///< of "Authorization: Bearer KEY"; empty: none
    std::string host{};  ///< "localhost:8080", by which the browser knows us

    /// The value of `name` in the query; empty: there is none. Only for names and numbers: nothing is decoded.
    std::string_view value(std::string_view name) const;
};

struct HttpReply {
    unsigned status = 200;
    std::string type = "application/json";
    std::string body{};
    bool is_trusted = false;  ///< who has asked has shown the key
};

/// Whether a browser that asks for `host` is at this machine's loopback on purpose: "127.0.0.1:80", "localhost",
/// "[::1]:80", or nothing at all. A page of somebody else's can have its own name lead here (DNS rebinding).
bool is_loopback_name(std::string_view host);

/// Answers GET over HTTP/1.1, for pages and numbers that a person asked dtrun to show. It takes no more than a few
/// dozen connections, small requests without bodies, and waits for none of them for long. Beyond these the oldest
/// makes room that has shown no key, one that is being answered last.
///
/// Thread: the executor's. Lifetime: join() before destruction, unless the process ends.
class HttpServer {
public:
    using Handler = std::function<asio::awaitable<HttpReply>(HttpRequest)>;

    /// \param address  numeric, or "localhost". \param port  0: any free one
    /// Errc: invalid_input (no such address here, or the port is taken)
    static Result<std::unique_ptr<HttpServer>> open(asio::any_io_executor executor,
                                                    const std::string& address, std::uint16_t port,
                                                    Handler handler);
    ~HttpServer();

    /// "127.0.0.1:8080"
    std::string place() const;
    bool is_on_loopback() const;  ///< nobody else can reach it
    /// Stops it, and returns once nothing of it runs.
    asio::awaitable<void> join();

private:
    HttpServer(asio::any_io_executor executor, Handler handler);
    struct Guest;
    asio::awaitable<void> accept();
    bool make_room();
    asio::awaitable<void> serve(tcp::socket socket);
    asio::awaitable<void> answer(std::list<Guest>::iterator guest);

    asio::any_io_executor executor_;
    Handler handler_;
    tcp::acceptor acceptor_;
    std::list<Guest> guests_;  ///< the oldest first
    TaskGroup tasks_;
};

/// The answer to who does not have the page's key.
HttpReply wrong_key();

}  // namespace dtrun::watch
