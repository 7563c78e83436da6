#include "launcher/head/port_forward.h"

#include "base/log.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/modes.h"

#include <fmt/format.h>
#include <utility>

namespace dtrun::head {

PortForward::PortForward(asio::any_io_executor executor, Hosts& hosts, Router<HostId>& router,
                         std::function<void(std::string_view)> tell)
    : executor_(executor),
      hosts_(hosts),
      tell_(std::move(tell)),
      acceptor_(executor, "a rank's debugger"),
      tasks_(executor) {
    router.on<DebugStatus>(this, &PortForward::rank_waits);
    router.on<Tunnel>(this, &PortForward::take);
}

/// Listens, unless it does already.
void PortForward::rank_waits(HostId host, const DebugStatus& news) {
    host_ = host;
    if (port_ == 0) {
        const auto port = acceptor_.listen();
        if (!port) return log::error("--debug-rank: {}", port.error().message);
        port_ = *port;
        tasks_.spawn(accept());
    }
    tell_(debugger_text(news, hosts_.name(host), port_));
}

asio::awaitable<void> PortForward::accept() {
    for (;;) {
        auto socket = co_await acceptor_.next();
        if (!socket) co_return;
        const std::uint32_t number = ++last_number_;
        const auto send = [this](const Tunnel& tunnel) { hosts_.send(host_, encode(tunnel)); };
        ends_[number] = std::make_unique<TunnelEnd>(executor_, number, send);
        ends_[number]->open(std::move(*socket));
        hosts_.send(
            host_, encode(Tunnel{number, {}, 0, false}));  // it may be the debugger's turn to speak
        tasks_.spawn(run(number));
    }
}

asio::awaitable<void> PortForward::run(std::uint32_t number) {
    co_await ends_.at(number)->run();
    ends_.erase(number);
}

void PortForward::take(HostId host, const Tunnel& tunnel) {
    const auto found = ends_.find(tunnel.connection);
    if (host == host_ && found != ends_.end()) found->second->take(tunnel);
}

void PortForward::stop() noexcept {
    acceptor_.close();
    for (const auto& [number, end] : ends_) end->stop();
}

std::string debugger_text(const DebugStatus& news, const std::string& host, std::uint16_t port) {
    std::string text =
        fmt::format("dtrun: rank {} on {} waits for {} at 127.0.0.1:{}\n", news.rank, host,
                    news.debugger == Debugger::gdb ? "gdb" : "a debugger", port);
    if (news.debugger == Debugger::gdb)
        return text + fmt::format("  gdb -ex 'target remote 127.0.0.1:{}' {}\n", port,
                                  shell_quote(printable_line(news.program)));
    return text +
           fmt::format(R"(  VS Code, launch.json: {{"name": "rank {}", "type": "debugpy", )"
                       R"("request": "attach", "connect": {{"host": "127.0.0.1", "port": {}}}}})"
                       "\n",
                       news.rank, port);
}

}  // namespace dtrun::head
