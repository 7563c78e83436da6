#pragma once

#include "base/loop/asio.h"
#include "base/loop/local_acceptor.h"
#include "base/loop/task_group.h"
#include "base/numbered.h"
#include "base/result.h"
#include "launcher/head/hosts.h"
#include "rendezvous/links/tunnel_end.h"
#include "rendezvous/wire/look_messages.h"
#include "rendezvous/wire/router.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace dtrun::head {

/// A port of our own loopback that leads to the debugger of a rank, for the user alone, who is told of it when the
/// rank waits for one.
///
/// Thread: the executor's. Lifetime: `hosts` outlives it; the owner calls stop() and awaits join() before
/// destruction, unless the process ends.
class PortForward {
public:
    /// \param tell  shows the user a text
    PortForward(asio::any_io_executor executor, Hosts& hosts, Router<HostId>& router,
                std::function<void(std::string_view)> tell);

    void stop() noexcept;
    asio::awaitable<void> join() { co_await tasks_.join(); }

private:
    void rank_waits(HostId host, const DebugStatus& news);
    void take(HostId host, const Tunnel& tunnel);
    asio::awaitable<void> accept();
    asio::awaitable<void> run(std::uint32_t number);

    asio::any_io_executor executor_;
    Hosts& hosts_;
    std::function<void(std::string_view)> tell_;
    HostId host_{};
    std::uint16_t port_ = 0;
    LocalAcceptor acceptor_;
    std::map<std::uint32_t, std::unique_ptr<TunnelEnd>> ends_;
    std::uint32_t last_number_ = 0;
    TaskGroup tasks_;
};

/// What the user is told when a rank waits for its debugger: where, and what to paste.
std::string debugger_text(const DebugStatus& news, const std::string& host, std::uint16_t port);

}  // namespace dtrun::head
