#pragma once

#include "base/ids.h"
#include "base/loop/asio.h"
#include "base/numbered.h"
#include "launcher/head/hosts.h"
#include "launcher/transport/onward_channel.h"
#include "rendezvous/wire/login_messages.h"
#include "rendezvous/wire/router.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace dtrun::head {

/// The channels of log-ins that relays do, over the connections of these relays.
///
/// Thread: the executor's. Lifetime: `hosts` outlives it, and it the channels.
class TreeLogins {
public:
    TreeLogins(asio::any_io_executor executor, Hosts& hosts, const Secret& secret)
        : executor_(std::move(executor)), hosts_(hosts), secret_(secret) {}

    /// It receives what relays say of log-ins.
    void subscribe(Router<HostId>& router);
    /// Has a relay log in. \param address  of the host, numeric; empty: not known
    std::unique_ptr<transport::Channel> open(HostId relay, LoginOrder order, std::string address);
    /// All that it has carried ends.
    void relay_lost(HostId relay);

private:
    struct Login {
        HostId relay{};
        transport::OnwardChannel* channel = nullptr;
    };

    asio::any_io_executor executor_;
    Hosts& hosts_;
    Secret secret_;
    std::map<HostId, std::string> commands_;  ///< the last that each relay was told
    std::map<std::uint32_t, Login> logins_;
    std::uint32_t last_ = 0;
};

}  // namespace dtrun::head
