#include "launcher/watch/http_server.h"

#include "base/log.h"
#include "base/loop/net.h"
#include "base/strings.h"

#include <fmt/format.h>
#include <algorithm>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <chrono>
#include <utility>

namespace dtrun::watch {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;

constexpr std::size_t kConnectionsMax = 64;
constexpr std::uint32_t kHeaderBytesMax = 16u << 10;
constexpr std::chrono::seconds kPatience{30};  // for the next request, and for a reply to leave
constexpr std::string_view kBearer = "Bearer ";

HttpRequest request_of(const http::request<http::empty_body>& message) {
    HttpRequest request;
    const auto target = message.target();
    const std::string_view text(target.data(), target.size());
    request.path = text.substr(0, text.find('?'));
    if (request.path.size() < text.size()) request.query = text.substr(request.path.size() + 1);
    const auto found = message[http::field::authorization];
    const std::string_view authorization(found.data(), found.size());
    if (authorization.starts_with(kBearer)) request.key = authorization.substr(kBearer.size());
    const auto host = message[http::field::host];
    request.host.assign(host.data(), host.size());
    return request;
}

/// A page of ours asks nobody else for anything, is shown in no other's frame, and is not kept.
http::response<http::string_body> response_of(HttpReply reply,
                                              const http::request<http::empty_body>& asked) {
    http::response<http::string_body> response(static_cast<http::status>(reply.status),
                                               asked.version());
    response.set(http::field::content_type, reply.type);
    response.set(http::field::cache_control, "no-store");
    response.set("X-Content-Type-Options", "nosniff");
    response.set("Referrer-Policy", "no-referrer");
    response.set("Content-Security-Policy",
                 "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
                 "connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'");
    response.keep_alive(asked.keep_alive());
    response.body() = std::move(reply.body);
    response.prepare_payload();
    if (asked.method() == http::verb::head) response.body().clear();
    return response;
}

}  // namespace

std::string_view HttpRequest::value(std::string_view name) const {
    for (const std::string_view pair : split(query, '&'))
        if (pair.starts_with(name) && pair.substr(name.size(), 1) == "=")
            return pair.substr(name.size() + 1);
    return {};
}

HttpReply wrong_key() {
    return {401, "text/plain", "the address has no key, or a wrong one\n"};
}

bool is_loopback_name(std::string_view host) {
    const std::size_t colon = host.rfind(':');
    const bool has_port = colon != std::string_view::npos && !host.ends_with(']');
    std::string_view name = has_port ? host.substr(0, colon) : host;
    if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
    if (name.empty() || name == "localhost") return true;
    boost::system::error_code error;
    const auto address = asio::ip::make_address(std::string(name), error);
    return !error && address.is_loopback();
}

/// A connection.
struct HttpServer::Guest {
    explicit Guest(tcp::socket socket) : stream(std::move(socket)) {}

    beast::tcp_stream stream;
    bool is_trusted = false;   ///< has shown the key
    bool is_answered = false;  ///< its request has come
    bool is_leaving = false;
};

Result<std::unique_ptr<HttpServer>> HttpServer::open(asio::any_io_executor executor,
                                                     const std::string& address, std::uint16_t port,
                                                     Handler handler) {
    std::unique_ptr<HttpServer> server(new HttpServer(std::move(executor), std::move(handler)));
    boost::system::error_code error;
    const auto numeric =
        asio::ip::make_address(address == "localhost" ? "127.0.0.1" : address, error);
    if (error) return fail(Errc::invalid_input, "'{}' is not a numeric address", address);
    const tcp::endpoint endpoint(numeric, port);
    tcp::acceptor& acceptor = server->acceptor_;
    acceptor.open(endpoint.protocol(), error);
    if (!error) close_on_exec(acceptor.native_handle());
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
    if (error) return fail(Errc::invalid_input, "{} port {}: {}", address, port, error.message());
    server->tasks_.spawn(server->accept());
    return server;
}

HttpServer::HttpServer(asio::any_io_executor executor, Handler handler)
    : executor_(executor), handler_(std::move(handler)), acceptor_(executor), tasks_(executor) {}

std::string HttpServer::place() const {
    boost::system::error_code ignored;
    const tcp::endpoint here = acceptor_.local_endpoint(ignored);
    const std::string address = numeric(here.address());
    return here.address().is_v6() ? fmt::format("[{}]:{}", address, here.port())
                                  : fmt::format("{}:{}", address, here.port());
}

bool HttpServer::is_on_loopback() const {
    boost::system::error_code ignored;
    return acceptor_.local_endpoint(ignored).address().is_loopback();
}

HttpServer::~HttpServer() = default;

asio::awaitable<void> HttpServer::accept() {
    AcceptTrouble trouble("the page");
    for (;;) {
        auto socket = co_await accept_next(acceptor_, trouble);
        if (!socket) co_return;
        if (guests_.size() >= kConnectionsMax && !make_room()) continue;  // it is closed
        tasks_.spawn(serve(std::move(*socket)));
    }
}

/// Closes the oldest of those that may as well be strangers who keep others out.
bool HttpServer::make_room() {
    const auto is_stranger = [](const Guest& guest) {
        return !guest.is_trusted && !guest.is_leaving;
    };
    auto oldest = std::ranges::find_if(
        guests_, [&](const Guest& guest) { return is_stranger(guest) && !guest.is_answered; });
    // Whoever does not take an answer is no better, but comes last.
    if (oldest == guests_.end()) oldest = std::ranges::find_if(guests_, is_stranger);
    if (oldest == guests_.end()) return false;
    oldest->is_leaving = true;
    oldest->stream.close();
    return true;
}

asio::awaitable<void> HttpServer::serve(tcp::socket socket) {
    const auto guest = guests_.emplace(guests_.end(), std::move(socket));
    co_await answer(guest);
    boost::system::error_code ignored;
    guest->stream.socket().shutdown(tcp::socket::shutdown_both, ignored);
    guests_.erase(guest);
}

/// Until one of the two has enough.
asio::awaitable<void> HttpServer::answer(std::list<Guest>::iterator guest) {
    beast::tcp_stream& stream = guest->stream;
    beast::flat_buffer buffer(kHeaderBytesMax);
    for (;;) {
        http::request_parser<http::empty_body> parser;
        parser.header_limit(kHeaderBytesMax);
        parser.body_limit(0);
        stream.expires_after(kPatience);
        const auto [error, bytes] = co_await http::async_read(stream, buffer, parser, use_tuple);
        if (error) co_return;
        guest->is_answered = true;
        const auto& asked = parser.get();
        HttpReply reply;
        if (asked.method() == http::verb::get || asked.method() == http::verb::head) {
            HttpRequest request = request_of(asked);
            reply = co_await handler_(std::move(request));
        } else {
            reply = {405, "text/plain", "only GET\n"};
        }
        guest->is_trusted = guest->is_trusted || reply.is_trusted;
        auto response = response_of(std::move(reply), asked);
        const bool goes_on = response.keep_alive();
        stream.expires_after(kPatience);
        const auto [failed, written] = co_await http::async_write(stream, response, use_tuple);
        guest->is_answered = false;
        if (failed || !goes_on) co_return;
    }
}

asio::awaitable<void> HttpServer::join() {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    tasks_.stop();
    co_await tasks_.join();
}

}  // namespace dtrun::watch
