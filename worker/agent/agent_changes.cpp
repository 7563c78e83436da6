// What an agent does when hosts change, or are lost.

#include "worker/agent/agent.h"

#include "base/interfaces.h"
#include "base/loop/net.h"
#include "rendezvous/wire/member_messages.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/start_messages.h"

#include <algorithm>
#include <cstring>

namespace dtrun::agent {
namespace {

constexpr std::chrono::milliseconds kSeverAgain[] = {
    std::chrono::milliseconds(0), std::chrono::milliseconds(50), std::chrono::milliseconds(450)};
/// As clocks outside of this process have it.
std::uint64_t unix_ms_after(std::uint32_t wait_ms) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(now).count() + wait_ms);
}

}  // namespace

void Agent::pause(const Pause& pause) {
    if (ending_.leaving || ending_.orphans) return;  // there will be no other generation here
    const std::uint64_t generation = pause.generation;
    forget_start();
    const Change change{assign_.generation, generation, ChangeReason::restarted,
                        unix_ms_after(pause.grace_ms), 0};
    announce(change, pause.grace_ms, pause.why);
    runner_->stop_all(pause.signal, std::chrono::milliseconds(pause.grace_ms),
                      [this, generation](int orphans) {
                          ending_.orphans_before += orphans;
                          streams_->hurry();
                          end_services([this, generation] {
                              if (ending_.ending) return;  // the job, meanwhile
                              ending_.pausing = generation;
                              say_paused();
                          });
                      });
}

/// Ranks are told by everything through which they may learn it.
void Agent::announce(const Change& change, std::uint32_t grace_ms, const std::string& why) {
    for (const auto& service : services_) service->changing(change);
    elastic_clients_->announce(change, grace_ms, why);
}

/// The daemon of which this host is a member can be reached, perhaps again: all that it has not answered is said
/// once more, behind the sign that it comes now.
void Agent::daemon_is_there(const Heard& heard) {
    link_->send(encode(heard));
    connections_->relay().resend();
}

/// Hosts change, and ranks may go on for a while.
void Agent::notify(const Notify& notify) {
    if (notify.generation <= assign_.generation || ending_.ending) return;
    Change change{assign_.generation, notify.generation, notify.reason, 0, notify.stop_step};
    if (notify.deadline_ms > 0) change.deadline_ms = unix_ms_after(notify.deadline_ms);
    announce(change, notify.deadline_ms, "hosts change");
    for (const auto& service : services_) service->notify(notify);
    if (notify.signal != 0) runner_->signal(notify.signal);
}

/// Addresses that this host has as well, as those of a container's bridge, mean the host itself here.
void Agent::lose(ResetConnections wanted) {
    const std::vector<InterfaceAddress> own = interface_addresses();
    std::erase_if(wanted.addresses, [&own](const std::string& address) {
        return std::ranges::find(own, address, &InterfaceAddress::address) != own.end();
    });
    if (wanted.world && wanted.generation == assign_.generation) {
        announce({assign_.generation, assign_.generation + 1, ChangeReason::lost, 0, 0}, 0,
                 "a rank is lost");
        connections_->relay().fail_fences("a rank of this generation is lost");
    }
    tasks_.spawn(reset_connections(std::move(wanted)));
}

/// Resets them at once, and again while a rank that has not understood yet may have tried once more.
asio::awaitable<void> Agent::reset_connections(ResetConnections wanted) {
    Timer timer(io_);
    for (const std::chrono::milliseconds wait : kSeverAgain) {
        timer.expires_after(wait);
        co_await timer.async_wait(use_tuple);
        if (assign_.generation != wanted.generation || ending_.ending) co_return;
        ranks::ConnectionSet what{wanted.addresses, {}};
        if (wanted.world)
            for (const auto& service : services_) service->add_endpoints(what.endpoints);
        const ranks::ResetResult done = runner_->reset_connections(what);
        if (done.connections == 0 && done.error == 0) continue;
        ResetStatus news{wanted.generation, done.connections, {}};
        if (done.error != 0) news.problem = std::strerror(done.error);
        link_->send(encode(news));
    }
}

}  // namespace dtrun::agent
