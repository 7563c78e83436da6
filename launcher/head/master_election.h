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
#include <set>
#include <string>
#include <vector>

namespace dtrun::head {

/// Finds where the ranks of a job meet: an address of rank 0's host that every other host can reach.
///
/// Thread: the loop's. Lifetime: what it was given outlives it.
class MasterElection {
public:
    /// \param given_up  nobody wants to know any more
    MasterElection(asio::any_io_executor executor, const plan::JobSpec& spec, Hosts& hosts,
                   Router<HostId>& router, std::function<bool()> given_up);

    /// Puts that address, or the best guess, into what each host is told of a world. Hosts are asked only if some of
    /// them were not in the last world, or rank 0 was elsewhere.
    asio::awaitable<void> elect(std::map<HostId, Assign>& assigns);
    /// Of the last world; empty before the first.
    const std::string& address() const { return address_; }
    void wake() { answered_.cancel(); }  ///< it may be given up

private:
    asio::awaitable<std::string> reachable_address(const Assign& assign, HostId first,
                                                   const std::vector<HostId>& others);
    asio::awaitable<std::string> common_address(std::vector<std::string> addresses,
                                                std::uint16_t port, std::vector<HostId> others,
                                                bool last);
    bool ranks_meet() const;
    void reached(HostId host, const Reached& reached);
    void warn(const std::vector<std::string>& addresses) const;

    const plan::JobSpec& spec_;
    Hosts& hosts_;
    std::function<bool()> given_up_;
    std::string address_;
    std::optional<HostId> met_at_;       ///< the host that has it
    std::set<HostId> met_;               ///< hosts that reach it
    std::map<HostId, Reached> answers_;  ///< by host
    bool asking_ = false;
    Timer answered_;  ///< cancelled when a host has answered
};

}  // namespace dtrun::head
