#pragma once

#include "base/loop/accept.h"
#include "base/loop/asio.h"
#include "base/loop/task_group.h"
#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::watch {

struct HttpRequest {
    std::string path;   ///< "/api/view"
    std::string query;  ///< what follows '?', as it is
    std::string key;    ///< of "Authorization: Bearer KEY"; empty: none

    /// The value of `name` in the query; empty: there is none. Only for names and numbers: nothing is decoded.
    std::string_view value(std::string_view name) const;
};

struct HttpReply {
    unsigned status = 200;
    std::string type = "application/json";
    std::string body{};
};

/// Answers GET over HTTP/1.1, for pages and numbers that a person asked dtrun to show. It takes no more than a few
/// dozen connections, small requests without bodies, and waits for none of them for long.
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

    /// "127.0.0.1:8080"
    std::string place() const;
    /// Stops it, and returns once nothing of it runs.
    asio::awaitable<void> join();

private:
    HttpServer(asio::any_io_executor executor, Handler handler);
    asio::awaitable<void> accept();
    asio::awaitable<void> serve(tcp::socket socket);

    asio::any_io_executor executor_;
    Handler handler_;
    tcp::acceptor acceptor_;
    std::size_t connections_ = 0;
    TaskGroup tasks_;
};

/// The answer to who does not have the page's key.
HttpReply wrong_key();
/// Whether two secrets are the same, in a time that does not tell how much of them is.
bool same_key(std::string_view a, std::string_view b);

}  // namespace dtrun::watch
