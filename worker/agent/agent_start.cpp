// How an agent becomes part of a job: its bootstrap, and the way to the head.

#include "base/interfaces.h"
#include "base/log.h"
#include "base/loop/net.h"
#include "rendezvous/client.h"
#include "rendezvous/tree.h"
#include "worker/agent/agent.h"
#include "worker/ranks/left_behind.h"

#include <algorithm>
#include <cstring>

namespace dtrun::agent {
namespace {

/// The head knows for how long it waits for others first: a relay's slow log-in, the last node of a
/// thousand. This is for an agent that is cut off from it, so that nobody would tell it of the end.
constexpr std::chrono::minutes kBootstrapLimit{15};

}  // namespace

/// The payload of the next frame on standard input, which must be of this type.
asio::awaitable<Result<std::string>> Agent::read_frame(FrameType type) {
    DeadlineGuard guard(lifeline_, after(kBootstrapLimit));
    std::string header(FrameHeader::kBytes, '\0');
    const auto header_buffer = asio::buffer(header);
    auto [error, bytes] = co_await asio::async_read(lifeline_, header_buffer, use_tuple);
    if (error) co_return fail(Errc::closed, "no bootstrap: {}", error.message());
    const auto parsed = decode_header(header);
    if (!parsed) co_return std::unexpected(parsed.error());
    if (parsed->type != type)
        co_return fail(Errc::invalid_input, "no bootstrap: frame of type {}",
                       static_cast<int>(parsed->type));
    std::string payload(parsed->payload_bytes, '\0');
    const auto payload_buffer = asio::buffer(payload);
    auto [payload_error, payload_bytes] =
        co_await asio::async_read(lifeline_, payload_buffer, use_tuple);
    if (payload_error) co_return fail(Errc::closed, "no bootstrap: {}", payload_error.message());
    co_return payload;
}

asio::awaitable<Result<void>> Agent::read_bootstrap() {
    auto payload = co_await read_frame(FrameType::bootstrap);
    if (!payload) co_return std::unexpected(payload.error());
    auto bootstrap = decode<Bootstrap>(*payload);
    ::explicit_bzero(payload->data(), payload->size());
    if (!bootstrap) co_return std::unexpected(bootstrap.error());
    if (bootstrap->job_id.size() != sizeof(JobId) || bootstrap->secret.size() != Secret::kBytes)
        co_return fail(Errc::invalid_input, "bootstrap without a job");
    bootstrap_ = std::move(*bootstrap);
    if (node_.empty()) co_return Result<void>{};
    const auto found = co_await find_own_host();
    co_return found;
}

/// A scheduler gives the same bootstrap to all its nodes: takes from it what is this one's.
asio::awaitable<Result<void>> Agent::find_own_host() {
    const auto own = std::ranges::find(bootstrap_.nodes, node_);
    if (own == bootstrap_.nodes.end())
        co_return fail(Errc::invalid_input, "{} is not part of the job", node_);
    bootstrap_.host = static_cast<std::uint32_t>(own - bootstrap_.nodes.begin());
    bootstrap_.host_name = node_;
    if (bootstrap_.host != 0 && !bootstrap_.reserve_everywhere) bootstrap_.reserve_ports = 0;
    const Tree tree(static_cast<std::uint32_t>(bootstrap_.nodes.size()), bootstrap_.tree_threshold);
    bootstrap_.relay = tree.is_relay(bootstrap_.host);
    const auto parent = tree.parent(bootstrap_.host);
    if (!parent) co_return Result<void>{};
    const auto payload = co_await read_frame(FrameType::relays);
    if (!payload) co_return std::unexpected(payload.error());
    const auto relays = decode<Relays>(*payload);
    if (!relays) co_return std::unexpected(relays.error());
    const auto relay = std::ranges::find(relays->relays, *parent, &RelayAddress::host);
    if (relay == relays->relays.end()) co_return Result<void>{};
    bootstrap_.addresses.assign(1, relay->address);
    bootstrap_.port = relay->port;
    co_return Result<void>{};
}

asio::awaitable<Result<void>> Agent::join_head() {
    JobId job{};
    std::copy_n(bootstrap_.job_id.begin(), job.size(), job.begin());
    const Secret secret(std::span<const std::uint8_t, Secret::kBytes>(
        reinterpret_cast<const std::uint8_t*>(bootstrap_.secret.data()), Secret::kBytes));
    ::explicit_bzero(bootstrap_.secret.data(), bootstrap_.secret.size());
    const Credentials credentials{job, secret, bootstrap_.encrypt};
    const auto limit = std::chrono::milliseconds(bootstrap_.connect_timeout_ms);
    auto connection = co_await connect_to_server(bootstrap_.addresses, bootstrap_.port, credentials,
                                                 after(limit));
    if (!connection) co_return std::unexpected(connection.error());
    const tcp::socket& socket = connection->socket;

    Join join;
    join.host = bootstrap_.host;
    join.hostname = host_name();
    join.agent_pid = ::getpid();
    join.address = numeric(socket.local_endpoint().address());
    join.addresses.push_back(join.address);
    for (const InterfaceAddress& address : interface_addresses()) {
        if (address.address == join.address)
            join.interface = address.interface;
        else if (!address.loopback)
            join.addresses.push_back(address.address);
    }
    join.free_port = reserved_ports_.first();
    join.directory = preflight_.directory;

    facts_.job = hex(job);
    facts_.host_name = bootstrap_.host_name;
    facts_.contracts = bootstrap_.contracts;
    facts_.nodelist = bootstrap_.nodelist;
    facts_.tasks_per_node = bootstrap_.tasks_per_node;
    facts_.torch_store = bootstrap_.torch_store;
    facts_.max_restarts = bootstrap_.max_restarts;
    facts_.role = bootstrap_.role;
    facts_.run_id = bootstrap_.run_id;
    facts_.cpus_per_rank = bootstrap_.cpus_per_rank;
    interface_ = join.interface;

    link_ = std::make_unique<Link>(std::move(*connection));
    pulse_ = std::make_unique<Pulse>(io_.get_executor(),
                                     std::chrono::milliseconds(bootstrap_.heartbeat_timeout_ms));
    if (auto opened = open_ports(credentials, join); !opened) co_return opened;
    pump_ = std::make_unique<ranks::OutputPump>(io_.get_executor(), *link_,
                                                bootstrap_.output_window_bytes,
                                                [this](std::uint32_t rank, Stream stream) {
                                                    link_->send(encode(OutputEnd{rank, stream}));
                                                    say_paused();
                                                    finish_if_done();
                                                });
    tasks_.spawn(link_->run_writer());
    tasks_.spawn(watch_lifeline());
    tasks_.spawn(watch_signals());
    if (preflight_.problem == HostProblem::none && !preflight_.program.empty()) {
        const auto prepared = co_await mpi_->prepare(preflight_.program);
        if (!prepared) {
            preflight_.problem = HostProblem::mpi;
            preflight_.problem_text = prepared.error().message;
        }
    }
    if (leaving_) co_return Result<void>{};  // what was told to end us came first
    join.problem = preflight_.problem;
    join.problem_text = preflight_.problem_text;
    link_->send(encode(join));
    co_return Result<void>{};
}

Result<void> Agent::open_mpi() {
    mpi::MpiService::Options options;
    const bool wanted = std::ranges::find(facts_.contracts, "mpi") != facts_.contracts.end();
    options.mode = wanted ? bootstrap_.mpi : MpiMode::none;
    options.host_name = bootstrap_.host_name;
    options.job = bootstrap_.mpi_job;
    options.directory_prefix = ranks::directory_prefix(facts_.job);
    options.env = preflight_.env;
    options.load_limit = std::chrono::milliseconds(bootstrap_.connect_timeout_ms) * 3 / 4;
    options.tell = [this](const MpiNews& news) { link_->send(encode(news)); };
    options.aborted = [this](std::uint32_t rank) {
        tasks_.spawn(end_aborted(assign_.generation, rank));
    };
    options.started = [this](pid_t pid) { supervisor_.spare(pid); };
    auto to_tree = ports_->open_for_agent(
        PortKind::subtree, [this](const FrameView& frame) { return mpi_->on_frame(frame); });
    mpi_ = std::make_unique<mpi::MpiService>(io_.get_executor(), std::move(to_tree),
                                             std::move(options));
    return mpi_->open();
}

/// For everybody who connects to us: ranks, agents behind us, and frameworks.
Result<void> Agent::open_ports(const Credentials& credentials, Join& join) {
    ports_ = std::make_unique<Ports>(
        io_.get_executor(), *link_, [this](const Hello& hello) { return welcome(hello); },
        [this] { finish_if_done(); });
    auto rank_socket = ports_->open_for_ranks();
    if (!rank_socket) return std::unexpected(rank_socket.error());
    facts_.rank_socket = std::move(*rank_socket);
    auto to_store = ports_->open_for_agent(PortKind::rank, [this](const FrameView& frame) {
        return stores_->on_reply(frame.payload);
    });
    stores_ = std::make_unique<ForeignStores>(io_.get_executor(), std::move(to_store));
    if (auto opened = stores_->open(bootstrap_.torch_store == TorchStore::proxy); !opened)
        return opened;
    facts_.horovod_port = stores_->horovod_port();
    facts_.proxy_port = stores_->proxy_port();
    if (auto opened = open_mpi(); !opened) return opened;
    if (!bootstrap_.relay) return {};
    // Who names the interfaces to be used wants no other to be listened on.
    std::vector<std::string> addresses;
    if (!bootstrap_.interfaces.empty()) addresses.push_back(join.address);
    const auto port = ports_->open_for_agents(credentials, addresses);
    if (!port) return std::unexpected(port.error());
    join.relay_port = *port;
    return {};
}

}  // namespace dtrun::agent
