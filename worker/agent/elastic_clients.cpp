#include "worker/agent/elastic_clients.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <algorithm>
#include <array>

namespace dtrun::agent {

ElasticClients::ElasticClients(Parts parts)
    : parts_(std::move(parts)), overdue_(parts_.executor), tasks_(parts_.executor) {
    parts_.connections.from_ranks().on<Rejoin>(this, &ElasticClients::rejoin);
    parts_.connections.from_ranks().on<Section>(this, &ElasticClients::section);
    parts_.connections.from_ranks().on<Stall>(this, &ElasticClients::stall);
}

const RankSlot* ElasticClients::slot_of(SlotIndex place) const {
    const auto found = std::ranges::find(world_.ranks, place, &RankSlot::place);
    return found == world_.ranks.end() ? nullptr : &*found;
}

std::optional<Rank> ElasticClients::rank_of(PeerId peer) const {
    const auto client = clients_.find(peer);
    if (client == clients_.end()) return parts_.connections.rank_of(peer);
    const RankSlot* const rank = slot_of(client->second.place);
    return rank != nullptr ? std::optional(rank->rank) : std::nullopt;
}

Result<std::optional<Welcome>> ElasticClients::hello(PeerId peer, SlotIndex place,
                                                     const Hello& hello) {
    Client client{.place = place, .elastic = hello.elastic, .ticket = {}};
    if (parts_.rejoins.is_early(place)) {
        client.ticket =
            parts_.rejoins.hold(place, [this, peer](const RankSlot& rank, const Assign& world) {
                welcome(peer, rank, world);
            });
        clients_[peer] = client;
        return std::nullopt;
    }
    const RankSlot* const rank = slot_of(place);
    if (rank == nullptr)
        return fail(Errc::denied, "this process has no place in generation {}", world_.generation);
    clients_[peer] = client;
    if (hello.elastic) {
        parts_.rejoins.supports_rejoin(place);
        parts_.rejoins.rendezvoused(place);
    }
    return parts_.describe(*rank, world_);
}

/// Gives a client its place in a generation that has begun while it waited.
void ElasticClients::welcome(PeerId peer, const RankSlot& rank, const Assign& world) {
    const auto found = clients_.find(peer);
    if (found == clients_.end()) return;
    Client& client = found->second;
    client.ticket.reset();
    parts_.connections.welcome(peer, parts_.describe(rank, world));
    if (!client.elastic) return;
    parts_.rejoins.supports_rejoin(client.place);
    parts_.rejoins.rendezvoused(client.place);
}

void ElasticClients::give_board(PeerId peer, const Hello& hello) {
    if (!hello.board || !board_.is_open()) return;
    Fd bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!bell) return;
    const std::array descriptors{board_.fd(), bell.get()};
    const Bytes frame = encode(BoardOpened{ChangeBoard::kBytes});
    if (parts_.connections.send_descriptors(peer, frame, descriptors))
        bells_[peer] = std::move(bell);
}

void ElasticClients::ring() {
    for (const auto& [peer, bell] : bells_) (void)::eventfd_write(bell.get(), 1);
}

Result<void> ElasticClients::section(PeerId peer, const Section& section) {
    auto taken = hang_detector_.says(peer, section, Clock::now());
    overdue_.cancel();
    if (taken && !std::exchange(watching_, true)) tasks_.spawn(watch_sections());
    return taken;
}

Result<void> ElasticClients::stall(PeerId peer, const Stall& stall) {
    return stalls_.says(peer, stall, Clock::now());
}

void ElasticClients::add_waits(std::vector<RankWait>& waits) const {
    const auto rank = [this](PeerId peer) { return rank_of(peer); };
    stalls_.add_waits(waits, rank, Clock::now());
}

Result<void> ElasticClients::rejoin(PeerId peer, const Rejoin& rejoin) {
    const auto found = clients_.find(peer);
    if (found == clients_.end() || !found->second.elastic)
        return fail(Errc::invalid_input, "only a client that says elastic can rejoin");
    Client& client = found->second;
    if (!parts_.rejoins.runs(client.place)) return {};  // bytes of a process that has ended
    if (client.ticket) return {};                       // it has asked already
    const RankSlot* const rank = slot_of(client.place);
    if (rank != nullptr && rejoin.generation < world_.generation) {
        welcome(peer, *rank, world_);
        return {};
    }
    if (rank != nullptr)
        parts_.connections.relay().fail_fences(fmt::format(
            "rank {} on {} asks for a place in the next generation", rank->rank, parts_.host_name));
    client.ticket = parts_.rejoins.ask(
        client.place,
        [this, peer](const RankSlot& given, const Assign& world) { welcome(peer, given, world); });
    return {};
}

void ElasticClients::left(PeerId peer) {
    const auto client = clients_.extract(peer);
    if (!client.empty() && client.mapped().ticket) parts_.rejoins.forget(*client.mapped().ticket);
    bells_.erase(peer);
    hang_detector_.left(peer);
    stalls_.left(peer);
}

void ElasticClients::begin(const Assign& world) {
    world_ = world;
    told_ = {.generation = world.generation, .next = world.generation};
    board_.write(told_);
    ring();
    // Who has come here has left what it did in the last world.
    hang_detector_.clear();
    stalls_.clear();
}

void ElasticClients::announce(const Change& change, std::uint32_t grace_ms,
                              const std::string& why) {
    if (change.generation != world_.generation || change == told_) return;
    const bool is_news = told_.next != change.next || told_.reason != change.reason;
    told_ = change;
    board_.write(change);
    ring();
    if (is_news)
        parts_.connections.relay().announce(
            {RankEvent::Kind::membership, change.next, grace_ms, why, change.reason});
}

void ElasticClients::dismiss(const std::vector<SlotIndex>& places, std::uint32_t grace_ms) {
    for (const auto& [peer, client] : clients_) {
        if (!client.ticket || std::ranges::find(places, client.place) == places.end()) continue;
        const RankEvent event{RankEvent::Kind::shutdown,
                              world_.generation,
                              grace_ms,
                              "this process has no place in the next generation",
                              {}};
        parts_.connections.send(peer, encode(event));
    }
}

asio::awaitable<void> ElasticClients::watch_sections() {
    while (!tasks_.stopping()) {
        overdue_.expires_at(hang_detector_.next_deadline());
        co_await overdue_.async_wait(use_tuple);
        tell_overdue();
    }
}

void ElasticClients::tell_overdue() {
    for (const HangDetector::Overdue& late : hang_detector_.take_overdue(Clock::now())) {
        const auto rank = rank_of(late.peer);
        if (!rank) continue;  // it is being ended
        parts_.hangs(
            *rank,
            fmt::format("rank {} is in section \"{}\" for longer than its limit of {:.3g} s", *rank,
                        late.name, std::chrono::duration<double>(late.limit).count()));
    }
}

void ElasticClients::stop() noexcept {
    tasks_.stop();
    overdue_.cancel();
}

asio::awaitable<void> ElasticClients::join() {
    return tasks_.join();
}

}  // namespace dtrun::agent
