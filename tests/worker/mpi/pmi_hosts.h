#pragma once

#include "base/loop/asio.h"
#include "base/numbered.h"
#include "rendezvous/job/rank_map.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/modes.h"
#include "worker/mpi/pmi_server.h"
#include "worker/stores/local_store.h"

#include <fmt/format.h>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun {

using namespace mpi;
using namespace stores;

/// How a client of PMI-1 begins, and what it hears.
inline constexpr const char* kInit = "cmd=init pmi_version=1 pmi_subversion=1\n";
inline constexpr const char* kInitialized =
    "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";

/// What ranks did with MPI, as text: "3 initialized", "3 aborted 7".
class RecordedMpi final : public MpiObserver {
public:
    void mpi_initialized(Rank rank) override { add("{} initialized", rank); }
    void mpi_finalized(Rank rank) override { add("{} finalized", rank); }
    void mpi_aborted(Rank rank, std::int32_t code) override {
        add("{} aborted {}", rank, code);
        if (on_abort) on_abort(rank, code);
    }
    void mpi_refused(Rank rank, std::string why) override { add("{} refused: {}", rank, why); }
    void mpi_noted(Rank rank, std::string what) override { add("{}: {}", rank, what); }
    void mpi_spawn_refused(Rank rank) override { add("{} was refused MPI_Comm_spawn", rank); }

    std::vector<std::string> events;
    std::function<void(Rank rank, std::int32_t code)> on_abort;

private:
    template <class... A>
    void add(fmt::format_string<A...> text, A&&... args) {
        events.push_back(fmt::format(text, std::forward<A>(args)...));
    }
};

/// The networks of hosts that are all in this process.
///
/// Thread: the executor's.
class MpiNetworks {
public:
    MpiNetworks(asio::io_context& io, std::size_t hosts) : io_(io), store_(io.get_executor()) {
        for (std::uint32_t host = 0; host < hosts; ++host)
            networks_.push_back(std::make_unique<Network>(*this, host));
    }

    MpiNetwork& of(std::size_t host) { return *networks_[host]; }
    LocalStore& store() { return store_; }

    /// A rank has ended: so do all fences, those to come too.
    void fail(std::string why) {
        failed_ = std::move(why);
        for (auto& [name, fence] : std::exchange(fences_, {}))
            for (auto& [host, arrival] : fence) end(std::move(arrival.second));
    }
    /// Another generation.
    void begin() {
        ++generation_;
        fences_.clear();
        failed_.reset();
        for (const auto& network : networks_) network->begin();
    }

    std::size_t fences_passed = 0;
    std::size_t bytes_carried = 0;  ///< to the root
    std::size_t mails = 0;

private:
    using Arrival = std::pair<std::string, MpiNetwork::Fenced>;

    class Network final : public MpiNetwork {
    public:
        Network(MpiNetworks& all, std::uint32_t host) : all_(all), host_(host) {}
        void fence(std::string_view name, std::string bytes, Fenced done) override {
            all_.arrive(std::string(name), host_, {std::move(bytes), std::move(done)});
        }
        void mail(std::uint32_t node_rank, std::string bytes) override {
            ++all_.mails;
            all_.later([to = all_.networks_.at(node_rank).get(), bytes = std::move(bytes)] {
                to->arrived_.push_back(bytes);
                to->deliver();
            });
        }
        void open_mail(std::function<void(std::string)> take) override {
            take_ = std::move(take);
            all_.later([this] { deliver(); });
        }
        JobStore& store() override { return all_.store_; }
        void begin() {
            take_ = nullptr;
            arrived_.clear();
        }

    private:
        void deliver() {
            for (; take_ && !arrived_.empty(); arrived_.pop_front()) take_(arrived_.front());
        }

        MpiNetworks& all_;
        std::uint32_t host_;
        std::function<void(std::string)> take_;
        std::deque<std::string> arrived_;
    };

    /// As long as the generation lasts.
    void later(std::function<void()> call) {
        asio::post(io_, [this, generation = generation_, call = std::move(call)] {
            if (generation == generation_) call();
        });
    }
    void arrive(const std::string& name, std::uint32_t host, Arrival arrival) {
        if (failed_) return end(std::move(arrival.second));
        auto& fence = fences_[name];
        bytes_carried += arrival.first.size();
        if (!fence.emplace(host, std::move(arrival)).second) std::terminate();
        if (fence.size() < networks_.size()) return;
        ++fences_passed;
        const auto complete = std::exchange(fence, {});
        fences_.erase(name);
        std::vector<std::string> parts;
        for (const auto& [from, arrived] : complete) parts.push_back(arrived.first);
        for (const auto& [to, arrived] : complete)
            later([parts, done = arrived.second] { done(parts); });
    }
    void end(MpiNetwork::Fenced done) {
        later([why = *failed_, done = std::move(done)] {
            done(dtrun::fail(Errc::closed, "{}", why));
        });
    }

    asio::io_context& io_;
    LocalStore store_;
    std::vector<std::unique_ptr<Network>> networks_;
    std::map<std::string, std::map<std::uint32_t, Arrival>> fences_;  ///< by name and host
    std::optional<std::string> failed_;
    std::uint64_t generation_ = 0;
};

/// A world of hosts with so many ranks each, as seen from one of them.
inline MpiWorld mpi_world(const std::vector<std::uint32_t>& sizes, std::uint32_t host,
                          std::uint64_t generation = 1) {
    MpiWorld world;
    world.job = "c0ffee";
    world.generation = generation;
    world.node_rank = host;
    for (std::uint32_t node = 0; node < sizes.size(); ++node) {
        world.node_names.push_back(fmt::format("s{}", node + 1));
        for (std::uint32_t i = 0; i < sizes[node]; ++i) {
            if (node == host) world.ranks.push_back(world.world_size);
            world.node_of_rank.push_back(node);
            ++world.world_size;
        }
    }
    world.rank_map = rank_map(world.node_of_rank);
    return world;
}

/// Of the word for it, as a program is told.
inline std::optional<MpiMode> mode_of(std::string_view name) {
    if (name == "auto") return MpiMode::automatic;
    if (name == "pmix") return MpiMode::pmix;
    if (name == "pmi1") return MpiMode::pmi1;
    if (name == "pmi2") return MpiMode::pmi2;
    return {};
}

/// Hosts in one process, each with its server of PMI.
///
/// Thread: the executor's, which must not run any more when this is destroyed.
class PmiHosts {
public:
    PmiHosts(asio::io_context& io, std::vector<std::uint32_t> sizes)
        : sizes_(std::move(sizes)), networks_(io, sizes_.size()) {
        for (std::size_t host = 0; host < sizes_.size(); ++host)
            servers_.push_back(
                std::make_unique<PmiServer>(io.get_executor(), networks_.of(host), mpi_));
    }

    void begin(MpiMode mode, std::uint64_t generation = 1) {
        for (std::uint32_t host = 0; host < sizes_.size(); ++host)
            servers_[host]->begin(mpi_world(sizes_, host, generation), mode);
    }

    /// Ends of the ranks' sockets, in order of their ranks.
    std::vector<Fd> connect() {
        std::vector<Fd> ends;
        for (std::uint32_t host = 0; host < sizes_.size(); ++host)
            for (const std::uint32_t rank : mpi_world(sizes_, host).ranks)
                ends.push_back(servers_[host]->connect(rank).value());
        return ends;
    }

    std::size_t hosts() const { return sizes_.size(); }
    PmiServer& server(std::size_t host) { return *servers_[host]; }
    MpiNetworks& networks() { return networks_; }
    RecordedMpi& mpi() { return mpi_; }
    std::vector<std::string>& events() { return mpi_.events; }

    void stop() {
        for (const auto& server : servers_) server->stop();
    }
    asio::awaitable<void> join() {
        for (const auto& server : servers_) co_await server->join();
    }

private:
    std::vector<std::uint32_t> sizes_;
    MpiNetworks networks_;
    RecordedMpi mpi_;
    std::vector<std::unique_ptr<PmiServer>> servers_;
};

}  // namespace dtrun
