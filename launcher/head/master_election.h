#pragma once

#include "base/loop/asio.h"
#include "base/numbered.h"
#include "launcher/head/hosts.h"
#include "rendezvous/wire/router.h"
#include "rendezvous/wire/start_messages.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::head {

/// Finds where the ranks of a job meet: an address of rank 0's host that every other host can reach.
///
/// Thread: the loop's. Lifetime: what it was given outlives it.
class MasterElection {
public:
    /// \param given_up  nobody wants to know any more
    MasterElection(asio::any_io_executor executor, Hosts& hosts, Router<HostId>& router,
                   std::function<bool()> given_up);

    /// Has `others` try to connect to each of `addresses`.
    /// \param last  no other addresses will be tried: a failure is followed by a warning
    /// \return the first address that all of them reach; empty if there is none, or it is given up
    asio::awaitable<std::string> common_address(std::vector<std::string> addresses,
                                                std::uint16_t port, std::vector<HostId> others,
                                                bool last);
    void wake() { answered_.cancel(); }  ///< it may be given up

private:
    void reached(HostId host, const Reached& reached);
    void warn(const std::vector<std::string>& addresses) const;

    Hosts& hosts_;
    std::function<bool()> given_up_;
    std::map<HostId, Reached> answers_;  ///< by host
    bool asking_ = false;
    Timer answered_;  ///< cancelled when a host has answered
};

}  // namespace dtrun::head
