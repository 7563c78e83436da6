// rendezvous_host --agents A --ranks-per-agent K [--tree] [--here | --direct]
//
// What ranks of a job of A hosts meet, for `./dev bench rendezvous`: the hub of a head in one process,
// and in another A agents, each with its own connection to the hub (or, with --tree, to one of sqrt(A)
// relays) and its own socket for K ranks. With --here ranks are told of the head's socket, as on its machine, with --direct of its port, as on
// others. The code is the product's; only the ranks are missing.

#include "base/freed_memory.h"
#include "base/log.h"
#include "base/loop/task_group.h"
#include "rendezvous/asking/direct_store_server.h"
#include "rendezvous/exchange/hub.h"
#include "rendezvous/exchange/hub_timer.h"
#include "rendezvous/job/tree.h"
#include "rendezvous/links/client.h"
#include "rendezvous/links/server.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/job_key.h"
#include "rendezvous/wire/router.h"
#include "rendezvous/wire/start_messages.h"
#include "worker/agent/connections.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

using namespace dtrun;
using namespace dtrun::agent;

struct Shape {
    std::uint32_t agents = 1;
    std::uint32_t ranks_each = 1;
    bool tree = false;
    bool here = false;
    bool direct = false;
};

/// Where the hub is reached, for the process of the agents.
struct Place {
    std::uint16_t port = 0;
    char store_socket[64]{};  ///< as Welcome's
};

/// The hub and its connections, as the head has them.
class Root final : Outbox {
public:
    Root(asio::io_context& io, const Credentials& credentials, const Shape& shape)
        : executor_(io.get_executor()),
          direct_store_(executor_, static_cast<Outbox&>(*this)),
          hub_(direct_store_, HubOptions{}),
          timer_(executor_, hub_),
          server_(
              executor_,
              [credentials, store = store_key_of(credentials.secret)](const JobId& job) {
                  return std::optional(job == store.id ? store.secret : credentials.secret);
              },
              [this, credentials](const JobId& job, Connection connection) {
                  if (job == credentials.job)
                      admit(std::move(connection));
                  else
                      direct_store_.admit(std::move(connection));
              }),
          tasks_(executor_) {
        direct_store_.use(hub_, timer_);
        hub_.begin(1, shape.agents * shape.ranks_each);
    }

    Place listen(bool here) {
        Place place{server_.listen({"127.0.0.1"}, 0).value()};
        if (here)
            direct_store_.open().value().copy(place.store_socket, sizeof place.store_socket - 1);
        return place;
    }

private:
    void admit(Connection connection) {
        const PeerId id = ++last_peer_;
        connections_[id] = std::make_unique<Link>(std::move(connection));
        hub_.add_peer(id, PeerKind::subtree, kNoRank);
        tasks_.spawn(connections_[id]->run_writer());
        tasks_.spawn(run_peer(id));
    }

    asio::awaitable<void> run_peer(PeerId id) {
        const std::function<Result<void>(const FrameView&)> handle =
            [this, id](const FrameView& frame) -> Result<void> {
            if (!is_exchanged(frame.type)) return {};
            const auto done = hub_.from_peer(id, frame, Clock::now());
            timer_.look();
            return done;
        };
        co_await connections_.at(id)->serve(handle);
    }

    void to_peer(PeerId peer, FrameType type, std::string_view payload) override {
        connections_.at(peer)->send_soon(type, payload);
    }
    void to_root(FrameType, std::string_view) override {}

    asio::any_io_executor executor_;
    DirectStoreServer direct_store_;
    Hub hub_;
    HubTimer timer_;
    std::map<PeerId, std::unique_ptr<Link>> connections_;
    PeerId last_peer_ = 0;
    Server server_;
    TaskGroup tasks_;
};

/// One agent's connections.
class SimulatedAgent {
public:
    SimulatedAgent(asio::io_context& io, HostId host, const Shape& shape, std::string store_socket)
        : executor_(io.get_executor()),
          host_(host),
          shape_(shape),
          store_socket_(std::move(store_socket)),
          tasks_(executor_) {}

    asio::awaitable<void> start(std::uint16_t port, Credentials credentials, bool relay,
                                std::uint32_t ranks_below) {
        const std::vector<std::string> addresses(1, "127.0.0.1");
        if (shape_.direct) {
            const StoreKey key = store_key_of(credentials.secret);
            const auto secret = key.secret.bytes();
            store_port_ = {addresses.front(),
                           port,
                           {key.id.begin(), key.id.end()},
                           {secret.begin(), secret.end()}};
        }
        auto connection = co_await connect_to_server(addresses, port, credentials,
                                                     after(std::chrono::seconds(30)));
        if (!connection) {
            std::fprintf(stderr, "agent %u: %s\n", std::to_underlying(host_),
                         connection.error().message.c_str());
            std::_Exit(1);
        }
        link_ = std::make_unique<Link>(std::move(*connection));
        connections_ =
            std::make_unique<Connections>(executor_, *link_, from_head_, for_ranks(), [] {});
        socket_ = connections_->open_for_ranks().value();
        if (relay) relay_port_ = connections_->open_for_agents(credentials).value();
        connections_->relay().begin(1, ranks_below);
        tasks_.spawn(link_->run_writer());
        tasks_.spawn(serve());
        Join join;
        join.host = host_;
        link_->send(encode(join));
    }

    std::uint16_t relay_port() const { return relay_port_; }
    const std::string& socket() const { return socket_; }

private:
    /// Every rank is welcome at once, and says nothing that is not for the relay.
    Connections::ForRanks for_ranks() const {
        return {.greet = [this](PeerId, const Hello& hello) { return welcome(hello); },
                .left = [](PeerId) {}};
    }

    std::optional<Welcome> welcome(const Hello& hello) const {
        Welcome welcome;
        welcome.generation = 1;
        welcome.rank = hello.rank;
        welcome.world_size = shape_.agents * shape_.ranks_each;
        welcome.store_socket = store_socket_;
        welcome.store_port = store_port_;
        return welcome;
    }

    asio::awaitable<void> serve() {
        const std::function<Result<void>(const FrameView&)> handle =
            [this](const FrameView& frame) { return from_head_.route(frame); };
        co_await link_->serve(handle);
    }

    asio::any_io_executor executor_;
    HostId host_;
    Shape shape_;
    std::string store_socket_;
    StorePort store_port_;
    std::unique_ptr<Link> link_;
    Router<> from_head_;
    std::unique_ptr<Connections> connections_;
    std::string socket_;
    std::uint16_t relay_port_ = 0;
    TaskGroup tasks_;
};

asio::awaitable<void> start_agents(PerHost<std::unique_ptr<SimulatedAgent>>& agents,
                                   std::uint16_t port, Credentials credentials, Shape shape) {
    const Tree tree(shape.agents, shape.tree ? 2 : shape.agents);
    PerHost<std::uint32_t> below(shape.agents, shape.ranks_each);
    const auto hosts = all_hosts(shape.agents);
    for (const HostId host : hosts)
        if (const auto parent = tree.parent(host)) below[*parent] += shape.ranks_each;
    for (const HostId host : hosts) {
        const auto parent = tree.parent(host);
        const std::uint16_t to = parent ? agents[*parent]->relay_port() : port;
        co_await agents[host]->start(to, credentials, tree.is_relay(host), below[host]);
    }
    for (const HostId host : hosts)
        std::printf("socket %s %u %u\n", agents[host]->socket().c_str(),
                    std::to_underlying(host) * shape.ranks_each, shape.ranks_each);
    std::printf("ready\n");
    std::fflush(stdout);
}

/// Ends the process when whoever started us has gone.
asio::awaitable<void> end_with(asio::posix::stream_descriptor& input) {
    char byte = 0;
    const auto buffer = asio::buffer(&byte, 1);
    for (;;) {
        const auto [error, bytes] = co_await input.async_read_some(buffer, use_tuple);
        if (error) std::_Exit(0);
    }
}

void raise_descriptor_limit() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

[[noreturn]] void run_root(const Credentials& credentials, const Shape& shape, int tell_place,
                           int lifeline) {
    asio::io_context io(1);
    Root root(io, credentials, shape);
    const Place place = root.listen(shape.here);
    if (::write(tell_place, &place, sizeof place) != sizeof place) std::_Exit(1);
    asio::posix::stream_descriptor input(io, lifeline);
    TaskGroup tasks(io.get_executor());
    tasks.spawn(end_with(input));
    io.run();
    std::_Exit(0);
}

}  // namespace

int main(int argc, char** argv) {
    Shape shape;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (word == "--tree")
            shape.tree = true;
        else if (word == "--here")
            shape.here = true;
        else if (word == "--direct")
            shape.direct = true;
        else if (word == "--agents" && i + 1 < argc)
            shape.agents = static_cast<std::uint32_t>(std::atoi(argv[++i]));
        else if (word == "--ranks-per-agent" && i + 1 < argc)
            shape.ranks_each = static_cast<std::uint32_t>(std::atoi(argv[++i]));
    }
    if (shape.agents == 0 || shape.ranks_each == 0) {
        std::fputs(
            "usage: rendezvous_host --agents A --ranks-per-agent K [--tree] [--here | --direct]\n",
            stderr);
        return 2;
    }
    raise_descriptor_limit();
    keep_freed_memory();
    log::init("rendezvous_host", log::Level::normal);
    const Credentials credentials{random_job_id(), Secret::random(), false};
    int place_pipe[2], life_pipe[2];
    if (::pipe(place_pipe) != 0 || ::pipe(life_pipe) != 0) return 1;
    const pid_t root = ::fork();
    if (root == 0) {
        ::close(life_pipe[1]);
        run_root(credentials, shape, place_pipe[1], life_pipe[0]);
    }
    Place place;
    if (::read(place_pipe[0], &place, sizeof place) != sizeof place) return 1;
    std::printf("root-pid %d\nagents-pid %d\n", root, ::getpid());
    asio::io_context io(1);
    PerHost<std::unique_ptr<SimulatedAgent>> agents;
    for (const HostId host : all_hosts(shape.agents))
        agents.push_back(std::make_unique<SimulatedAgent>(io, host, shape, place.store_socket));
    asio::posix::stream_descriptor input(io, ::dup(STDIN_FILENO));
    TaskGroup tasks(io.get_executor());
    tasks.spawn(end_with(input));
    tasks.spawn(start_agents(agents, place.port, credentials, shape));
    io.run();
    return 0;
}
