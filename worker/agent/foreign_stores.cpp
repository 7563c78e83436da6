#include "worker/agent/foreign_stores.h"

#include "base/interfaces.h"
#include "base/loop/net.h"
#include "rendezvous/wire/modes.h"
#include "rendezvous/wire/rank_messages.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

namespace dtrun::agent {
namespace {

/// \param port  that it got
Result<Fd> bind_loopback(std::uint16_t& port) {
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (!socket ||
        ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
        return fail(Errc::internal, "torch's store on loopback: {}", std::strerror(errno));
    port = ntohs(address.sin_port);
    return socket;
}

/// Whether rank 0 is one of a host's.
bool has_rank_0(const Assign& assign) {
    return std::ranges::any_of(assign.ranks,
                               [](const RankSlot& slot) { return slot.rank == Rank{0}; });
}

}  // namespace

ForeignStores::ForeignStores(Parts parts)
    : parts_(std::move(parts)),
      relayed_(parts_.executor, parts_.send),
      remote_processes_(relayed_),
      torch_(parts_.executor),
      horovod_(parts_.executor, parts_.rejoins) {}

Result<void> ForeignStores::open(contracts::ContractFacts& facts) {
    const auto port = horovod_.listen();
    if (!port) return std::unexpected(port.error());
    facts.horovod_port = *port;
    if (!parts_.torch_proxy) return {};
    auto socket = bind_loopback(facts.proxy_port);
    if (!socket) return std::unexpected(socket.error());
    torch_listens_ = true;
    return torch_.listen(std::move(*socket));
}

Result<void> ForeignStores::begin(const Assign& assign) {
    const TorchStore torch = contracts::torch_store_for(assign, parts_.facts, parts_.user);
    Fd master;
    if (torch == TorchStore::agent && has_rank_0(assign) && !torch_listens_)
        master = parts_.ports.take_first();
    remote_processes_.begin();
    relayed_.begin(assign.generation);
    if (auto done = begin_torch(assign, torch, std::move(master)); !done) return done;
    horovod_.begin(relayed_, assign);
    return {};
}

Result<void> ForeignStores::offer(const Assign&, const RankSlot& rank, ranks::RankOffer& offer) {
    if (!parts_.elastic) return {};
    const auto port = horovod_.listen_for(rank.place);
    if (!port) return std::unexpected(port.error());
    offer.horovod_port = *port;
    return {};
}

/// The store of the generation before ends after the last connection that may use it.
Result<void> ForeignStores::begin_torch(const Assign& assign, TorchStore torch, Fd master) {
    if (torch == TorchStore::proxy) {
        torch_.begin(relayed_, assign.world_size, {});
        return {};
    }
    if (torch == TorchStore::agent && !has_rank_0(assign))
        remote_processes_.answer_for(
            address_towards(assign.master_address));  // from where our ranks come to it
    if (torch == TorchStore::rank0 || !has_rank_0(assign)) {
        // Rank 0 may listen on that port now, or is elsewhere.
        torch_.end();
        local_.reset();
        torch_listens_ = false;
        return {};
    }
    if (!torch_listens_) {
        if (!master)
            return fail(Errc::internal, "port {}, for torch's store, is not free any more",
                        assign.master_port);
        if (auto done = torch_.listen(std::move(master)); !done) return done;
        torch_listens_ = true;
    }
    auto store = std::make_unique<stores::LocalStore>(parts_.executor);
    const auto ask = [this](const tcp::endpoint& there, const tcp::endpoint& here,
                            stores::RemoteProcesses::Told told) {
        remote_processes_.ask(there, here, std::move(told));
    };
    torch_.begin(*store, assign.world_size, {assign.peers, ask});
    local_ = std::move(store);
    return {};
}

void ForeignStores::add_waits(std::vector<RankWait>& waits) const {
    std::ranges::move(torch_.waits(), std::back_inserter(waits));
    std::ranges::move(horovod_.waits(), std::back_inserter(waits));
}

void ForeignStores::add_endpoints(std::set<ranks::Endpoint>& endpoints) const {
    for (const auto& [address, port] : horovod_.endpoints()) endpoints.insert({address, port});
}

void ForeignStores::stop() noexcept {
    torch_.stop();
    horovod_.stop();
}

asio::awaitable<void> ForeignStores::join() {
    co_await torch_.join();
    co_await horovod_.join();
}

}  // namespace dtrun::agent
