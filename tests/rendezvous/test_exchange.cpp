#include "rendezvous/exchange/hub.h"
#include "rendezvous/exchange/relay.h"
#include "rendezvous/exchange/store_replies.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/msgpack.h"
#include "tests/support/catch.h"
#include "tests/support/seed.h"

#include <algorithm>
#include <deque>
#include <random>
#include <set>

namespace dtrun {
namespace {

// Clients behind relays behind a hub, as a state machine of their own: frames are late by a random
// time, connections to the hub break and lose what is under way, and the hub is killed and goes on
// from what its journal had kept. Everything a test asserts is asserted at every step.

Bytes arguments(std::uint64_t generation, std::initializer_list<std::string_view> strings,
                std::optional<std::int64_t> number = {},
                std::optional<std::uint64_t> timeout = {}) {
    Bytes bytes;
    PackWriter out(bytes);
    out.array(
        static_cast<std::uint32_t>(1 + strings.size() + number.has_value() + timeout.has_value()));
    out.uint(generation);
    for (const std::string_view text : strings) out.bin(text);
    if (number) out.integer(*number);
    if (timeout) out.uint(*timeout);
    return bytes;
}

Bytes watch_arguments(std::uint64_t generation, std::string_view key, std::uint64_t revision) {
    Bytes bytes;
    PackWriter out(bytes);
    out.array(4);
    out.uint(generation), out.bin(key), out.uint(revision), out.uint(kForeverMs);
    return bytes;
}

/// What survives a hub: applied when the hub's outputs are let go, as a commit would be.
class MemoryJournal final : public HubJournal {
public:
    struct Kept {
        std::uint64_t generation = 0;
        struct Item {
            std::string value;
            ItemClaim claim;
        };
        std::uint64_t revision = 0;  ///< of the last change
        std::map<std::string, std::pair<std::string, ValueFacts>> values;
        std::map<std::string, std::map<std::uint64_t, Item>> items;
        /// By client; ids and replies, oldest first.
        std::map<std::uint64_t, std::vector<std::pair<std::uint64_t, std::string>>> answers;
        std::map<std::string, Fenced> fences;
        std::map<std::pair<std::string, std::uint64_t>, Fenced> failures;
        std::map<GroupFences::Key, GroupFences::End> groups;
    };

    void value_set(std::string_view key, std::string_view value, const ValueFacts& facts) override {
        next_.values[std::string(key)] = {std::string(value), facts};
        next_.revision = facts.revision;
    }
    void item_pushed(std::string_view key, std::uint64_t item, std::string_view value,
                     std::uint64_t revision) override {
        next_.items[std::string(key)][item] = {std::string(value), {}};
        next_.revision = revision;
    }
    void item_claimed(std::string_view key, std::uint64_t item, const ItemClaim& claim,
                      std::uint64_t revision) override {
        next_.items[std::string(key)][item].claim = claim;
        next_.revision = revision;
    }
    void item_popped(std::string_view key, std::uint64_t item, std::uint64_t revision) override {
        next_.items[std::string(key)].erase(item);
        next_.revision = revision;
    }
    void value_erased(std::string_view key, std::uint64_t revision) override {
        next_.values.erase(std::string(key));
        next_.revision = revision;
    }
    void queue_erased(std::string_view key, std::uint64_t revision) override {
        next_.items.erase(std::string(key));
        next_.revision = revision;
    }
    void answered(std::uint64_t client, std::uint64_t id, std::string_view reply) override {
        next_.answers[client].emplace_back(id, reply);
    }
    void answer_forgotten(std::uint64_t client, std::uint64_t id) override {
        std::erase_if(next_.answers[client], [id](const auto& one) { return one.first == id; });
    }
    void answers_forgotten(std::uint64_t client, std::uint64_t id) override {
        std::erase_if(next_.answers[client], [id](const auto& one) { return one.first <= id; });
    }
    void fence_completed(const Fenced& fenced) override { next_.fences[fenced.name] = fenced; }
    void completion_forgotten(std::string_view name) override {
        next_.fences.erase(std::string(name));
    }
    void fence_failed(const Fenced& fenced) override {
        next_.failures.try_emplace({fenced.name, fenced.round}, fenced);
    }
    void failure_forgotten(std::string_view name, std::uint64_t round) override {
        next_.failures.erase({std::string(name), round});
    }
    void group_ended(const GroupFences::Key& key, const GroupFences::End& end) override {
        next_.groups[key] = end;
    }
    void group_forgotten(const GroupFences::Key& key) override { next_.groups.erase(key); }
    void began(std::uint64_t generation, std::uint64_t revision) override {
        next_ = Kept{};
        next_.generation = generation;
        next_.revision = revision;
    }

    void commit() { kept_ = next_; }
    void roll_back() { next_ = kept_; }
    const Kept& kept() const { return kept_; }

private:
    Kept next_;
    Kept kept_;
};

class Simulation {
public:
    Simulation(unsigned seed, std::uint32_t relays, std::uint32_t ranks_each)
        : random_(seed), ranks_each_(ranks_each), world_(relays * ranks_each), nodes_(relays) {
        make_hub();
        hub_->begin(1, world_);
        commit();
        for (std::uint32_t i = 0; i < relays; ++i) {
            Node& node = nodes_[i];
            node.box = std::make_unique<NodeBox>(*this, i);
            node.relay = std::make_unique<Relay>(*node.box);
            node.relay->resend();
            node.relay->begin(1, ranks_each);
            connect(i);
            for (std::uint32_t local = 0; local < ranks_each; ++local) {
                const std::uint32_t rank = i * ranks_each + local;
                node.relay->add_peer(local, PeerKind::rank, Rank{rank});
                clients_.push_back(Client{i, local, rank, 1'000 + rank});
            }
        }
    }

    void run(int steps) {
        for (int i = 0; i < steps; ++i) step();
        settle();
    }

    std::uint64_t breaks = 0, crashes = 0, acknowledged = 0, fences = 0;

private:
    struct NodeBox final : Outbox {
        NodeBox(Simulation& s, std::uint32_t n) : simulation(s), node(n) {}
        void to_peer(PeerId peer, FrameType type, std::string_view payload) override {
            simulation.to_client(node, peer, {type, payload});
        }
        void to_root(FrameType type, std::string_view payload) override {
            Node& self = simulation.nodes_[node];
            if (self.connected) self.up.push_back({type, std::string(payload)});
        }
        Simulation& simulation;
        std::uint32_t node;
    };
    struct HubBox final : Outbox {
        explicit HubBox(Simulation& s) : simulation(s) {}
        void to_peer(PeerId peer, FrameType type, std::string_view payload) override {
            held.push_back({peer, {type, std::string(payload)}});
        }
        void to_root(FrameType, std::string_view) override { FAIL("a hub has no root"); }
        Simulation& simulation;
        std::vector<std::pair<PeerId, std::pair<FrameType, std::string>>> held;  ///< until commit
    };
    using Wire = std::deque<std::pair<FrameType, std::string>>;
    struct Node {
        std::unique_ptr<NodeBox> box;
        std::unique_ptr<Relay> relay;
        bool connected = false;
        PeerId peer = 0;
        Wire up, down;
    };
    struct Client {
        std::uint32_t node = 0;
        PeerId peer = 0;
        std::uint32_t rank = 0;
        std::uint64_t client = 0;
        std::uint64_t id = 0;
        std::optional<Op> asked{};
        std::uint64_t round = 0;
        bool fencing = false;
        std::map<std::string, std::string> written{};  ///< own keys, acknowledged
        std::string writing{};
    };

    std::uint32_t up_to(std::uint32_t n) {
        return std::uniform_int_distribution<std::uint32_t>(0, n)(random_);
    }

    void make_hub() {
        hub_box_ = std::make_unique<HubBox>(*this);
        HubOptions options;
        options.reconnects = true;
        hub_ = std::make_unique<Hub>(*hub_box_, options, &journal_);
    }

    void commit() {
        journal_.commit();
        for (auto& [peer, frame] : std::exchange(hub_box_->held, {}))
            for (Node& node : nodes_)
                if (node.connected && node.peer == peer) node.down.push_back(frame);
    }

    void connect(std::uint32_t i) {
        Node& node = nodes_[i];
        node.connected = true;
        node.peer = ++last_peer_;
        hub_->add_peer(node.peer, PeerKind::subtree, kNoRank);
        node.relay->resend();
    }

    void disconnect(std::uint32_t i) {
        Node& node = nodes_[i];
        if (!node.connected) return;
        node.connected = false;
        node.up.clear();
        node.down.clear();
        hub_->remove_peer(node.peer);
        ++breaks;
    }

    /// SIGKILL: what was not committed is gone, with everything under way.
    void crash() {
        ++crashes;
        for (std::uint32_t i = 0; i < nodes_.size(); ++i) disconnect(i);
        journal_.roll_back();
        make_hub();
        const auto& kept = journal_.kept();
        hub_->restore_generation(kept.generation, world_);
        for (const auto& [key, value] : kept.values)
            hub_->restore_store().restore_value(key, value.first, value.second);
        for (const auto& [key, items] : kept.items)
            for (const auto& [item, value] : items)
                hub_->restore_store().restore_item(key, item, value.value, value.claim);
        hub_->restore_store().restore_revision(kept.revision);
        hub_->end_restore({});
        for (const auto& [client, answers] : kept.answers)
            for (const auto& [id, reply] : answers) hub_->restore_answer(client, id, reply, {});
        for (const auto& [name, fenced] : kept.fences) hub_->restore_fence(fenced);
        for (const auto& [key, fenced] : kept.failures) hub_->restore_fence(fenced);
    }

    void step() {
        const std::uint32_t dice = up_to(999);
        if (dice < 4) return crash();
        if (dice < 20) return disconnect(up_to(static_cast<std::uint32_t>(nodes_.size()) - 1));
        if (dice < 100) return reconnect_one();
        if (dice < 500) return client_acts();
        deliver();
    }

    void reconnect_one() {
        const std::uint32_t i = up_to(static_cast<std::uint32_t>(nodes_.size()) - 1);
        if (!nodes_[i].connected) connect(i);
    }

    void deliver() {
        Node& node = nodes_[up_to(static_cast<std::uint32_t>(nodes_.size()) - 1)];
        if (!node.up.empty() && up_to(1) == 0) {
            deliver_up(node);
            if (up_to(2) == 0) commit();
        } else if (!node.down.empty()) {
            deliver_down(node);
        } else {
            commit();
        }
    }

    void deliver_up(Node& node) {
        const auto frame = node.up.front();
        node.up.pop_front();
        REQUIRE(hub_->from_peer(node.peer, {frame.first, frame.second}, Deadline{}));
    }

    void deliver_down(Node& node) {
        const auto frame = node.down.front();
        node.down.pop_front();
        REQUIRE(node.relay->from_root({frame.first, frame.second}));
    }

    void client_acts() {
        Client& client = clients_[up_to(static_cast<std::uint32_t>(clients_.size()) - 1)];
        if (client.asked || client.fencing) return;
        switch (up_to(5)) {
            case 0:
                return fence(client);
            case 1:
                ask(client, Op::add, arguments(1, {"sum"}, 1));
                ++adds_asked_;
                return;
            case 2:
                pushed_.insert(unique(client));
                return ask(client, Op::push, arguments(1, {"queue", unique(client)}));
            case 3:
                return ask(client, Op::pop, arguments(1, {"queue"}, {}, 0));
            case 4:
                client.writing = unique(client);
                return ask(client, Op::set,
                           arguments(1, {"own/" + std::to_string(client.rank), client.writing}));
            default:
                return ask(client, Op::get,
                           arguments(1, {"own/" + std::to_string(client.rank)}, {}, 0));
        }
    }

    static std::string unique(const Client& client) {
        return std::to_string(client.rank) + "." + std::to_string(client.id + 1);
    }

    void ask(Client& client, Op op, const Bytes& args) {
        client.asked = op;
        const Bytes frame = encode_request({client.client, ++client.id, 0, op}, args);
        REQUIRE(nodes_[client.node].relay->from_peer(
            client.peer, {FrameType::request, std::string_view(frame).substr(FrameHeader::kBytes)},
            Deadline{}));
    }

    void fence(Client& client) {
        client.fencing = true;
        Fence fence{
            1, "f", client.round, 1, {{Rank{client.rank}, std::to_string(client.rank * 7)}}};
        const Bytes frame = encode(fence);
        REQUIRE(nodes_[client.node].relay->from_peer(
            client.peer, {FrameType::fence, std::string_view(frame).substr(FrameHeader::kBytes)},
            Deadline{}));
    }

    void to_client(std::uint32_t node, PeerId peer, const FrameView& frame) {
        Client& client = clients_[node * ranks_each_ + peer];
        if (frame.type == FrameType::fenced) return fenced(client, frame);
        REQUIRE(frame.type == FrameType::reply);
        const auto reply = decode_reply(frame.payload);
        REQUIRE(reply);
        if (!client.asked || reply->header.id != client.id) return;  // answered twice: once counts
        REQUIRE(reply->header.client == client.client);
        const Op op = *std::exchange(client.asked, std::nullopt);
        ++acknowledged;
        PackReader in(reply->results);
        in.array();
        if (op == Op::add) {
            // Every acknowledged add happened exactly once: no sum is seen twice.
            REQUIRE(reply->header.status == Status::ok);
            REQUIRE(sums_.insert(in.integer()).second);
        } else if (op == Op::push) {
            REQUIRE(reply->header.status == Status::ok);
        } else if (op == Op::pop && reply->header.status == Status::ok) {
            // An item is given to one client only.
            REQUIRE(popped_.insert(std::string(in.bin())).second);
        } else if (op == Op::set) {
            REQUIRE(reply->header.status == Status::ok);
            client.written["own"] = client.writing;
        } else if (op == Op::get) {
            // Every acknowledged write can be read.
            if (client.written.empty())
                REQUIRE(reply->header.status == Status::not_found);
            else
                REQUIRE(in.bin() == client.written["own"]);
        }
    }

    void fenced(Client& client, const FrameView& frame) {
        const auto fenced = decode<Fenced>(frame.payload);
        REQUIRE(fenced);
        if (!client.fencing || fenced->round != client.round) return;
        REQUIRE(fenced->complete);
        REQUIRE(fenced->entries.size() == world_);
        // One assertion for all ranks, since millions would take most of the time.
        std::uint32_t rank = 0;
        REQUIRE(std::ranges::all_of(fenced->entries, [&rank](const FenceEntry& entry) {
            const std::uint32_t expected = rank++;
            return entry.rank == Rank{expected} && entry.bytes == std::to_string(expected * 7);
        }));
        // Nobody leaves a fence before everybody has come to it.
        REQUIRE(std::ranges::all_of(clients_, [&client](const Client& other) {
            return other.round > client.round || (other.round == client.round && other.fencing);
        }));
        client.fencing = false;
        ++client.round;
        ++fences;
    }

    /// Nothing breaks any more: everybody gets an answer.
    void settle() {
        drain();
        for (const Client& client : clients_) REQUIRE_FALSE(client.asked);
        // Those who are not at the last fence come to it.
        for (std::uint64_t last = last_round(); clients_.front().round < last;) {
            for (Client& client : clients_)
                if (!client.fencing && client.round < last) fence(client);
            drain();
        }
        for (const Client& client : clients_) {
            REQUIRE_FALSE(client.fencing);
            REQUIRE(client.round == clients_.front().round);
        }
        // What was asked for and acknowledged is all that happened.
        REQUIRE(sums_.size() == adds_asked_);
        if (adds_asked_ > 0) REQUIRE(*sums_.rbegin() == static_cast<std::int64_t>(adds_asked_));
        for (const std::string& item : popped_) REQUIRE(pushed_.contains(item));
    }

    /// Delivers until nothing is under way.
    void drain() {
        for (bool moved = true; moved;) {
            moved = false;
            for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
                if (!nodes_[i].connected) connect(i);
                moved |= !nodes_[i].up.empty() || !nodes_[i].down.empty();
                while (!nodes_[i].up.empty()) deliver_up(nodes_[i]);
                while (!nodes_[i].down.empty()) deliver_down(nodes_[i]);
            }
            moved |= !hub_box_->held.empty();
            commit();
        }
    }

    std::uint64_t last_round() const {
        std::uint64_t last = 0;
        for (const Client& client : clients_)
            last = std::max(last, client.round + (client.fencing ? 1 : 0));
        return last;
    }

    std::mt19937 random_;
    std::uint32_t ranks_each_;
    std::uint32_t world_;
    MemoryJournal journal_;
    std::unique_ptr<HubBox> hub_box_;
    std::unique_ptr<Hub> hub_;
    std::vector<Node> nodes_;
    std::vector<Client> clients_;
    PeerId last_peer_ = 0;
    std::set<std::int64_t> sums_;
    std::uint64_t adds_asked_ = 0;
    std::set<std::string> pushed_, popped_;
};

/// Keeps what an Exchange sends.
struct Kept final : Outbox {
    void to_peer(PeerId peer, FrameType type, std::string_view payload) override {
        peers.push_back({peer, {type, std::string(payload)}});
    }
    void to_root(FrameType type, std::string_view payload) override {
        root.push_back({type, std::string(payload)});
    }
    std::vector<std::pair<PeerId, std::pair<FrameType, std::string>>> peers;
    std::vector<std::pair<FrameType, std::string>> root;
};

template <class Message>
Result<void> give(Exchange& exchange, PeerId peer, const Message& message) {
    const Bytes frame = encode(message);
    return exchange.from_peer(
        peer, {MessageTraits<Message>::kType, std::string_view(frame).substr(FrameHeader::kBytes)},
        Deadline{});
}

}  // namespace

TEST_CASE(
    "whatever breaks, acknowledged writes stay, nothing is done twice, and fences hold for "
    "all",
    "[exchange]") {
    const std::uint32_t seed = test_seed();
    std::uint64_t breaks = 0, crashes = 0, acknowledged = 0, fences = 0;
    for (unsigned i = 0; i < 25; ++i) {
        INFO("DTRUN_SEED=" << seed << ", round " << i);
        Simulation simulation(seed + i, 1 + i % 6, 1 + i % 4);
        simulation.run(4'000);
        breaks += simulation.breaks;
        crashes += simulation.crashes;
        acknowledged += simulation.acknowledged;
        fences += simulation.fences;
    }
    WARN("DTRUN_SEED=" << seed << ": " << breaks << " broken connections, " << crashes
                       << " killed hubs, " << acknowledged << " requests and " << fences
                       << " arrivals at fences acknowledged");
    CHECK(crashes > 20);
}

TEST_CASE("the same holds for a thousand agents", "[exchange]") {
    const std::uint32_t seed = test_seed();
    INFO("DTRUN_SEED=" << seed);
    Simulation simulation(seed, 1'000, 2);
    simulation.run(12'000);
    WARN("DTRUN_SEED=" << seed << ": " << simulation.breaks << " broken connections, "
                       << simulation.crashes << " killed hubs, " << simulation.acknowledged
                       << " requests and " << simulation.fences
                       << " arrivals at fences acknowledged");
    CHECK(simulation.acknowledged > 1'000);
}

TEST_CASE("a fence of thousands of agents is one frame for each", "[exchange]") {
    constexpr std::uint32_t kAgents = 4'096, kRanksEach = 8;
    Kept out;
    Hub hub(out, {});
    hub.begin(1, kAgents * kRanksEach);
    for (PeerId agent = 0; agent < kAgents; ++agent)
        hub.add_peer(agent, PeerKind::subtree, kNoRank);
    for (PeerId agent = 0; agent < kAgents; ++agent) {
        CHECK(out.peers.empty());
        REQUIRE(give(hub, agent, Fence{1, "barrier", 0, kRanksEach, {}}));
    }
    REQUIRE(out.peers.size() == kAgents);
    const auto fenced = decode<Fenced>(out.peers.back().second.second);
    REQUIRE(fenced);
    CHECK(fenced->complete);
    CHECK(fenced->entries.empty());
}

TEST_CASE("a fence that one rank gives up fails for all, also for those who come later",
          "[exchange]") {
    Kept out;
    Hub hub(out, {});
    hub.begin(1, 3);
    for (PeerId peer = 0; peer < 3; ++peer) hub.add_peer(peer, PeerKind::rank, Rank{peer});
    REQUIRE(give(hub, 0, Fence{1, "f", 0, 1, {}}));
    REQUIRE(give(hub, 1, Fence{1, "f", 0, 1, {}}));
    REQUIRE(give(hub, 1, Unfence{1, "f", 0, "rank 1 waited 5 s"}));
    REQUIRE(give(hub, 2, Fence{1, "f", 0, 1, {}}));
    std::set<PeerId> told;
    for (const auto& [peer, frame] : out.peers) {
        const auto fenced = decode<Fenced>(frame.second);
        REQUIRE(fenced);
        CHECK_FALSE(fenced->complete);
        CHECK(fenced->why == "rank 1 waited 5 s");
        told.insert(peer);
    }
    CHECK(told.size() == 3);
}

TEST_CASE("giving up a fence that is complete changes nothing", "[exchange]") {
    Kept out;
    Hub hub(out, {});
    hub.begin(1, 2);
    for (PeerId peer = 0; peer < 2; ++peer) hub.add_peer(peer, PeerKind::rank, Rank{peer});
    for (PeerId peer = 0; peer < 2; ++peer) REQUIRE(give(hub, peer, Fence{1, "f", 0, 1, {}}));
    const std::size_t sent = out.peers.size();
    REQUIRE(give(hub, 0, Unfence{1, "f", 0, "too late"}));
    CHECK(out.peers.size() == sent);
}

TEST_CASE("the end of a rank fails the fences that wait for it, now and later", "[exchange]") {
    Kept out;
    Hub hub(out, {});
    hub.begin(1, 2);
    hub.add_peer(0, PeerKind::rank, Rank{0});
    REQUIRE(give(hub, 0, Fence{1, "f", 0, 1, {}}));
    hub.fail_fences("rank 1 on s2 has ended");
    REQUIRE(give(hub, 0, Fence{1, "g", 0, 1, {}}));
    REQUIRE(out.peers.size() == 2);
    for (const auto& [peer, frame] : out.peers)
        CHECK(decode<Fenced>(frame.second)->why == "rank 1 on s2 has ended");
}

TEST_CASE("what an old generation asks for is answered with the current one", "[exchange]") {
    Kept out;
    Hub hub(out, {});
    hub.begin(1, 1);
    hub.add_peer(0, PeerKind::rank, Rank{0});
    const auto ask = [&](std::uint64_t id, Op op, const Bytes& args) {
        const Bytes frame = encode_request({7, id, 0, op}, args);
        REQUIRE(hub.from_peer(
            0, {FrameType::request, std::string_view(frame).substr(FrameHeader::kBytes)},
            Deadline{}));
    };
    ask(1, Op::set, arguments(1, {"k", "v"}));
    ask(2, Op::get, arguments(1, {"other"}, {}, kForeverMs));
    REQUIRE(out.peers.size() == 1);
    hub.begin(2, 1);
    ask(3, Op::get, arguments(1, {"k"}, {}, 0));
    ask(4, Op::get, arguments(2, {"k"}, {}, 0));
    ask(5, Op::get, arguments(0, {"k"}, {}, 0));
    std::map<std::uint64_t, Status> statuses;
    for (const auto& [peer, frame] : out.peers)
        if (frame.first == FrameType::reply) {
            const auto reply = decode_reply(frame.second);
            statuses[reply->header.id] = reply->header.status;
        }
    CHECK(statuses[1] == Status::ok);
    CHECK(statuses[2] == Status::stale);
    CHECK(statuses[3] == Status::stale);
    CHECK(statuses[4] == Status::not_found);
    CHECK(statuses[5] == Status::not_found);
}

TEST_CASE("who watches a key over the end of a generation misses nothing", "[exchange]") {
    Kept out;
    Hub hub(out, {});
    hub.begin(1, 1);
    hub.add_peer(0, PeerKind::rank, Rank{0});
    const auto ask = [&](std::uint64_t id, Op op, const Bytes& args) {
        const Bytes frame = encode_request({7, id, 0, op}, args);
        REQUIRE(hub.from_peer(0, {FrameType::request, payload_of(frame)}, Deadline{}));
        PackReader results(decode_reply(out.peers.back().second.second)->results);
        return results.array() > 0 ? results.uint() : 0;
    };
    ask(1, Op::set, arguments(1, {"k", "v"}));
    const std::uint64_t known = ask(2, Op::watch, watch_arguments(1, "k", 0));
    hub.begin(2, 1);
    ask(3, Op::set, arguments(2, {"k", "v"}));
    const std::size_t told = out.peers.size();
    CHECK(ask(4, Op::watch, watch_arguments(2, "k", known)) > known);
    CHECK(out.peers.size() == told + 1);
}

TEST_CASE("that a rank gives up is said again after the connection was lost", "[exchange]") {
    Kept out;
    Relay relay(out);
    relay.resend();
    relay.begin(1, 2);
    relay.add_peer(0, PeerKind::rank, Rank{0});
    REQUIRE(give(relay, 0, Fence{1, "f", 0, 1, {}}));
    REQUIRE(give(relay, 0, Unfence{1, "f", 0, "waited 5 s"}));
    relay.fail_fences("rank 1 has ended");
    out.root.clear();
    relay.resend();
    REQUIRE(out.root.size() == 2);
    CHECK(out.root[0].first == FrameType::unfence);
    // What the root has answered is not said again; the end of a rank holds for the generation.
    const Bytes frame = encode(Fenced{1, "f", 0, false, "waited 5 s", {}});
    REQUIRE(relay.from_root({FrameType::fenced, payload_of(frame)}));
    out.root.clear();
    relay.resend();
    REQUIRE(out.root.size() == 1);
    CHECK(decode<Unfence>(out.root[0].second)->name.empty());
    relay.begin(2, 2);
    out.root.clear();
    relay.resend();
    CHECK(out.root.empty());
}

TEST_CASE("requests are sent again in the order in which they came, whoever asked", "[exchange]") {
    Kept out;
    Relay relay(out);
    relay.resend();
    relay.begin(1, 1);
    relay.add_peer(0, PeerKind::rank, Rank{0});
    const auto ask = [&relay](std::uint64_t client, std::uint64_t id) {
        const Bytes frame = encode_request({client, id, 0, Op::set}, arguments(1, {"k", "v"}));
        REQUIRE(relay.from_peer(0, {FrameType::request, payload_of(frame)}, {}));
    };
    ask(9, 1), ask(3, 1), ask(7, 1), ask(3, 2);
    out.root.clear();
    relay.resend();
    std::vector<std::uint64_t> clients;
    for (const auto& [type, payload] : out.root)
        clients.push_back(decode_request(payload)->header.client);
    CHECK(clients == std::vector<std::uint64_t>{9, 3, 7, 3});
    // Nobody waits for the answers of a client that has gone.
    const Bytes gone = encode(Gone{3});
    REQUIRE(relay.from_peer(0, {FrameType::gone, payload_of(gone)}, {}));
    out.root.clear();
    relay.resend();
    CHECK(out.root.size() == 2);
}

TEST_CASE("only answers of what changes something are kept for a client that may ask again",
          "[exchange]") {
    Kept out;
    MemoryJournal journal;
    HubOptions options;
    options.reconnects = true;
    Hub hub(out, options, &journal);
    hub.begin(1, 1);
    hub.add_peer(0, PeerKind::subtree, kNoRank);
    std::uint64_t id = 0;
    const auto ask = [&](Op op, const Bytes& args) {
        const auto behind = static_cast<std::uint32_t>(id);
        const Bytes frame = encode_request({7, ++id, behind, op}, args);
        REQUIRE(hub.from_peer(0, {FrameType::request, payload_of(frame)}, Deadline{}));
    };
    ask(Op::get, arguments(1, {"k"}, {}, kForeverMs));
    ask(Op::pop, arguments(1, {"q"}, {}, kForeverMs));
    ask(Op::set, arguments(1, {"k", "v"}));
    ask(Op::push, arguments(1, {"q", "item"}));
    ask(Op::get, arguments(1, {"k"}, {}, 0));
    CHECK(out.peers.size() == 5);
    journal.commit();
    std::set<std::uint64_t> kept;
    for (const auto& [request, reply] : journal.kept().answers.at(7)) kept.insert(request);
    CHECK(kept == std::set<std::uint64_t>{2, 3, 4});
}

namespace {

/// A hub whose clients may come back, and what it says.
struct Returning {
    explicit Returning(HubOptions options = {}) : hub(out, with_reconnects(std::move(options))) {
        hub.begin(1, 1);
    }
    static HubOptions with_reconnects(HubOptions options) {
        options.reconnects = true;
        return options;
    }
    /// \param behind  as in the request
    void ask(PeerId peer, std::uint64_t client, std::uint64_t id, std::uint32_t behind, Op op,
             const Bytes& args) {
        const Bytes frame = encode_request({client, id, behind, op}, args);
        REQUIRE(hub.from_peer(peer, {FrameType::request, payload_of(frame)}, now));
    }
    /// The last reply: to whom, and its first result.
    std::uint64_t last_number() const {
        const auto reply = decode_reply(out.peers.back().second.second);
        PackReader in(reply->results);
        in.array();
        return in.uint();
    }
    std::string last_bytes() const {
        const auto reply = decode_reply(out.peers.back().second.second);
        PackReader in(reply->results);
        in.array();
        return std::string(in.bytes());
    }
    Kept out;
    Deadline now{};
    Hub hub;
};

}  // namespace

TEST_CASE("the answer of a request that has waited long is kept, whatever was answered meanwhile",
          "[exchange]") {
    Returning job;
    job.hub.add_peer(1, PeerKind::subtree, kNoRank);
    job.hub.add_peer(2, PeerKind::subtree, kNoRank);
    job.ask(1, 7, 1, 0, Op::pop, arguments(1, {"q"}, {}, kForeverMs));
    for (std::uint64_t id = 2; id <= 200; ++id)
        job.ask(1, 7, id, static_cast<std::uint32_t>(id - 1), Op::set, arguments(1, {"k", "v"}));
    job.ask(2, 8, 1, 0, Op::push, arguments(1, {"q", "first"}));
    job.ask(2, 8, 2, 0, Op::push, arguments(1, {"q", "second"}));
    job.hub.remove_peer(1, job.now);
    job.hub.add_peer(3, PeerKind::subtree, kNoRank);
    job.ask(3, 7, 1, 0, Op::pop, arguments(1, {"q"}, {}, kForeverMs));
    CHECK(job.last_bytes() == "first");
    job.ask(3, 7, 201, 0, Op::pop, arguments(1, {"q"}, {}, 0));
    CHECK(job.last_bytes() == "second");
}

TEST_CASE("what arrives late over a connection that was given up for another is not done again",
          "[exchange]") {
    Returning job;
    job.hub.add_peer(1, PeerKind::subtree, kNoRank);
    job.ask(1, 7, 4, 0, Op::add, arguments(1, {"sum"}, 1));
    job.hub.add_peer(2, PeerKind::subtree, kNoRank);  // the first one is not known to be dead
    job.ask(2, 7, 5, 0, Op::add, arguments(1, {"sum"}, 1));
    job.ask(2, 7, 6, 0, Op::add, arguments(1, {"sum"}, 1));
    const std::size_t said = job.out.peers.size();
    job.ask(1, 7, 5, 0, Op::add, arguments(1, {"sum"}, 1));
    CHECK(job.out.peers.size() == said);
    // Nor when the client has said goodbye meanwhile.
    REQUIRE(give(job.hub, 2, Gone{7}));
    job.hub.remove_peer(2, job.now);
    job.ask(1, 7, 6, 0, Op::add, arguments(1, {"sum"}, 1));
    CHECK(job.out.peers.size() == said);
    job.hub.add_peer(3, PeerKind::subtree, kNoRank);
    job.ask(3, 9, 1, 0, Op::add, arguments(1, {"sum"}, 0));
    CHECK(job.last_number() == 3);
}

TEST_CASE("what a client asked before it moved is not done again when it has lost both connections",
          "[exchange]") {
    Returning job;
    job.hub.add_peer(1, PeerKind::subtree, kNoRank);
    job.ask(1, 7, 1, 0, Op::add, arguments(1, {"sum"}, 1));
    job.hub.add_peer(2, PeerKind::subtree, kNoRank);
    job.hub.set_return_limit(2, std::chrono::seconds(5));
    job.ask(2, 7, 2, 0, Op::get, arguments(1, {"sum"}, {}, 0));  // it needs no answers any more
    REQUIRE(job.hub.answer_bytes() == 0);
    job.hub.remove_peer(2, job.now);
    job.now += std::chrono::seconds(6);
    job.hub.expire(job.now);
    job.ask(1, 7, 1, 0, Op::add, arguments(1, {"sum"}, 1));
    job.hub.add_peer(3, PeerKind::subtree, kNoRank);
    job.ask(3, 9, 1, 0, Op::add, arguments(1, {"sum"}, 0));
    CHECK(job.last_number() == 1);
    // It is not remembered for ever.
    job.hub.remove_peer(3, job.now);
    job.hub.expire(job.now + std::chrono::seconds(60));
    CHECK(job.hub.next_deadline() == Deadline::max());
}

TEST_CASE("answers are kept as long as their client may come back, and counted", "[exchange]") {
    Returning job;
    const std::string large(1'000'000, 'x');
    const auto take_one = [&](PeerId peer, std::uint64_t client) {
        job.hub.add_peer(peer, PeerKind::subtree, kNoRank);
        job.ask(peer, client, 1, 0, Op::push, arguments(1, {"q", large}));
        job.ask(peer, client, 2, 0, Op::pop, arguments(1, {"q"}, {}, 0));
    };
    take_one(1, 7);
    CHECK(job.hub.store().size() == 0);
    CHECK(job.hub.answer_bytes() > large.size());
    REQUIRE(give(job.hub, 1, Gone{7}));
    CHECK(job.hub.answer_bytes() == 0);

    take_one(2, 8);
    job.hub.set_return_limit(2, std::chrono::seconds(5));
    job.hub.remove_peer(2, job.now);
    CHECK(job.hub.next_deadline() == job.now + std::chrono::seconds(5));
    job.hub.expire(job.now + std::chrono::seconds(4));
    CHECK(job.hub.answer_bytes() > large.size());
    job.hub.expire(job.now + std::chrono::seconds(5));
    CHECK(job.hub.answer_bytes() == 0);
    CHECK(job.hub.next_deadline() == Deadline::max());
}

TEST_CASE("answers count as the store's bytes do", "[exchange]") {
    HubOptions options;
    options.limits.bytes_max = 100'000;
    Returning job(options);
    job.hub.add_peer(1, PeerKind::subtree, kNoRank);
    const std::string value(30'000, 'x');
    std::uint64_t id = 0;
    const auto status = [&](Op op, const Bytes& args) {
        ++id;
        job.ask(1, 7, id, static_cast<std::uint32_t>(id - 1), op, args);
        return decode_reply(job.out.peers.back().second.second)->header.status;
    };
    for (int i = 0; i < 3; ++i) {
        REQUIRE(status(Op::push, arguments(1, {"q", value})) == Status::ok);
        REQUIRE(status(Op::pop, arguments(1, {"q"}, {}, 0)) == Status::ok);
    }
    CHECK(status(Op::push, arguments(1, {"q", value})) == Status::refused);
}

TEST_CASE("what does not fit the disk is refused, and not done", "[exchange]") {
    HubOptions options;
    bool has_room = false;
    options.refusal = [&has_room](Op op, std::size_t) -> std::optional<StoreReply> {
        if (has_room || !adds_something(op)) return std::nullopt;
        return full("the daemon's disk is full");
    };
    Returning job(options);
    job.hub.add_peer(1, PeerKind::subtree, kNoRank);
    job.ask(1, 7, 1, 0, Op::set, arguments(1, {"k", "v"}));
    CHECK(decode_reply(job.out.peers.back().second.second)->header.status == Status::refused);
    CHECK(job.last_bytes() == "the daemon's disk is full");
    PackReader results(decode_reply(job.out.peers.back().second.second)->results);
    CHECK(results.array() == 2);  // who asks can tell it from other refusals
    results.skip();
    CHECK(results.boolean());
    CHECK(job.hub.store().size() == 0);
    job.ask(1, 7, 2, 1, Op::erase, arguments(1, {"k"}));  // what needs no room is done
    CHECK(decode_reply(job.out.peers.back().second.second)->header.status == Status::ok);
    has_room = true;
    job.ask(1, 7, 3, 0, Op::set, arguments(1, {"k", "v"}));
    CHECK(job.hub.store().size() == 1);
}

TEST_CASE("that a fence has failed is known after a restart", "[exchange]") {
    Kept out;
    MemoryJournal journal;
    HubOptions options;
    options.reconnects = true;
    {
        Hub hub(out, options, &journal);
        hub.begin(1, 2);
        hub.add_peer(0, PeerKind::subtree, kNoRank);
        REQUIRE(give(hub, 0, Fence{1, "f", 0, 1, {}}));
        REQUIRE(give(hub, 0, Unfence{1, "f", 0, "rank 0 waited 1 s"}));
    }
    journal.commit();
    Hub hub(out, options, &journal);
    hub.restore_generation(1, 2);
    for (const auto& [key, fenced] : journal.kept().failures) hub.restore_fence(fenced);
    hub.add_peer(1, PeerKind::subtree, kNoRank);
    out.peers.clear();
    REQUIRE(give(hub, 1, Fence{1, "f", 0, 1, {}}));
    REQUIRE(out.peers.size() == 1);
    CHECK(decode<Fenced>(out.peers[0].second.second)->why == "rank 0 waited 1 s");
    // A fence of a new generation has nothing to do with it.
    hub.begin(2, 1);
    out.peers.clear();
    REQUIRE(give(hub, 1, Fence{2, "f", 0, 1, {}}));
    CHECK(decode<Fenced>(out.peers.back().second.second)->complete);
    CHECK(journal.kept().failures.size() == 1);
    journal.commit();
    CHECK(journal.kept().failures.empty());
}

TEST_CASE("fences may have any number of names, of which the last are known", "[exchange]") {
    Returning job;
    job.hub.add_peer(1, PeerKind::subtree, kNoRank);
    int complete = 0;
    for (int i = 0; i < 70'000; ++i) {
        REQUIRE(give(job.hub, 1, Fence{1, std::to_string(i), 0, 1, {}}));
        complete += decode<Fenced>(job.out.peers.back().second.second)->complete ? 1 : 0;
        job.out.peers.clear();
    }
    CHECK(complete == 70'000);
    // Who comes back to one is told again.
    REQUIRE(give(job.hub, 1, Fence{1, "69999", 0, 1, {}}));
    CHECK(decode<Fenced>(job.out.peers.back().second.second)->complete);
}

TEST_CASE("ends of fences are kept as far as they fit, the last ones in any case", "[exchange]") {
    Returning job;
    job.hub.add_peer(1, PeerKind::subtree, kNoRank);
    const std::string large(4u << 20, 'x');
    for (int i = 0; i < 20; ++i)
        REQUIRE(give(job.hub, 1, Fence{1, std::to_string(i), 0, 1, {{Rank{0}, large}}}));
    job.out.peers.clear();
    REQUIRE(give(job.hub, 1, Fence{1, "19", 0, 1, {{Rank{0}, large}}}));
    REQUIRE(job.out.peers.size() == 1);
    CHECK(decode<Fenced>(job.out.peers[0].second.second)->entries.size() == 1);
}

TEST_CASE("a relay sums the progress of its ranks and of relays behind it", "[exchange]") {
    Kept out;
    Relay relay(out);
    relay.begin(1, 4);
    relay.add_peer(0, PeerKind::rank, Rank{4});
    relay.add_peer(1, PeerKind::rank, Rank{5});
    relay.add_peer(2, PeerKind::subtree, kNoRank);
    REQUIRE(give(relay, 0, RankProgress{Rank{99}, 20}));  // a rank speaks for itself only
    REQUIRE(give(relay, 1, RankProgress{Rank{5}, 12}));
    REQUIRE(give(relay, 2, Heartbeat{2, {Rank{8}, 30}, 31}));
    const Heartbeat sum = relay.summary();
    CHECK(sum.reporting == 4);
    CHECK(sum.slowest == RankProgress{Rank{5}, 12});
    CHECK(sum.fastest_step == 31);
}

TEST_CASE("a relay turns away who pretends to be another rank or client", "[exchange]") {
    Kept out;
    Relay relay(out);
    relay.begin(1, 2);
    relay.add_peer(0, PeerKind::rank, Rank{0});
    relay.add_peer(1, PeerKind::rank, kNoRank);
    CHECK_FALSE(give(relay, 0, Fence{1, "f", 0, 2, {}}));
    CHECK_FALSE(give(relay, 1, Fence{1, "f", 0, 1, {}}));
    CHECK_FALSE(give(relay, 0, Fence{1, "", 0, 1, {}}));
    const Bytes frame = encode_request({7, 1, 0, Op::count}, arguments(0, {}));
    const FrameView request{FrameType::request,
                            std::string_view(frame).substr(FrameHeader::kBytes)};
    CHECK(relay.from_peer(0, request, Deadline{}));
    CHECK_FALSE(relay.from_peer(1, request, Deadline{}));
}

}  // namespace dtrun
