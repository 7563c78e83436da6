// Serves torch's store, prints the port, and ends when its standard input does. A line "waits" on
// standard input is answered with a line for each one who waits, and an empty one; a line "begin"
// begins another generation.
//
//     tcp_store_here [--relayed] [--world-size N] [--everywhere]
//
// It is served on 127.0.0.1, or with --everywhere on all interfaces. With --relayed the store is a
// hub's, at the other end of requests and replies.

#include "base/log.h"
#include "base/strings.h"
#include "rendezvous/exchange/hub.h"
#include "rendezvous/exchange/hub_timer.h"
#include "rendezvous/wire/rank_messages.h"
#include "worker/stores/local_store.h"
#include "worker/stores/relayed_store.h"
#include "worker/stores/tcp_store_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>

namespace dtrun {

using namespace stores;
namespace {

/// The job's store, as an agent has it: its own, or the head's.
class JobStores final : private Outbox {
public:
    JobStores(asio::io_context& context, bool relayed, std::uint32_t world_size)
        : context_(context),
          is_relayed_(relayed),
          world_size_(world_size),
          hub_(*this, {}),
          timer_(context.get_executor(), hub_),
          relayed_(context.get_executor(),
                   [this](FrameType type, std::string_view payload) { send(type, payload); }) {
        hub_.add_peer(0, PeerKind::subtree, kNoRank);
    }

    /// The one before is kept until the next call.
    JobStore& begin() {
        if (!is_relayed_) {
            last_ = std::move(local_);
            local_ = std::make_unique<LocalStore>(context_.get_executor());
            return *local_;
        }
        hub_.begin(++generation_, world_size_);
        relayed_.begin(generation_);
        return relayed_;
    }

private:
    /// Later, as it would be over a network.
    void send(FrameType type, std::string_view payload) {
        asio::post(context_, [this, type, bytes = Bytes(payload)] {
            const auto taken = hub_.from_peer(0, {type, bytes}, Clock::now());
            if (!taken) log::error("the hub: {}", taken.error().message);
            timer_.look();
        });
    }
    void to_peer(PeerId, FrameType type, std::string_view payload) override {
        if (type != FrameType::reply) return;
        asio::post(context_, [this, bytes = Bytes(payload)] {
            const auto taken = relayed_.on_reply(bytes);
            if (!taken) log::error("a reply: {}", taken.error().message);
        });
    }
    void to_root(FrameType, std::string_view) override {}

    asio::io_context& context_;
    bool is_relayed_;
    std::uint32_t world_size_;
    std::uint64_t generation_ = 0;
    std::unique_ptr<LocalStore> local_;
    std::unique_ptr<LocalStore> last_;
    Hub hub_;
    HubTimer timer_;
    RelayedStore relayed_;
};

struct Options {
    bool relayed = false;
    bool everywhere = false;
    std::uint32_t world_size = 1;
};

std::optional<Options> parse(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (word == "--relayed") {
            options.relayed = true;
        } else if (word == "--everywhere") {
            options.everywhere = true;
        } else if (word == "--world-size" && i + 1 < argc) {
            const auto size = to_int(argv[++i], 1, 1'000'000);
            if (!size) return {};
            options.world_size = static_cast<std::uint32_t>(*size);
        } else {
            return {};
        }
    }
    return options;
}

Result<Fd> bind_to_free_port(bool everywhere, std::uint16_t& port) {
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(everywhere ? INADDR_ANY : INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(socket.get(), generic, size) != 0 ||
        ::getsockname(socket.get(), generic, &size) != 0)
        return fail(Errc::internal, "no free port");
    port = ntohs(address.sin_port);
    return socket;
}

void print_waits(const TcpStoreServer& server) {
    for (const RankWait& wait : server.waits())
        fmt::print("{} {} {} {} {}\n", wait.rank == kNoRank ? -1 : static_cast<long>(wait.rank),
                   wait.pid, wait.hopeless, wait.waited_ms, wait.what);
    fmt::print("\n");
    std::fflush(stdout);
}

asio::awaitable<void> obey(asio::io_context& context, TcpStoreServer& server, JobStores& stores,
                           std::uint32_t world_size) {
    asio::posix::stream_descriptor in(context, ::dup(STDIN_FILENO));
    std::string text;
    for (;;) {
        char bytes[256];
        const auto buffer = asio::buffer(bytes);
        const auto [error, count] = co_await in.async_read_some(buffer, use_tuple);
        if (error) break;
        text.append(bytes, count);
        for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n')) {
            const std::string line = text.substr(0, end);
            text.erase(0, end + 1);
            if (line == "waits") print_waits(server);
            if (line == "begin") server.begin(stores.begin(), world_size, {});
        }
    }
    server.stop();
    co_await server.join();
    context.stop();  // a store's timer may still be set, for somebody who has gone
}

int run(const Options& options) {
    asio::io_context context;
    JobStores stores(context, options.relayed, options.world_size);
    TcpStoreServer server(context.get_executor());
    std::uint16_t port = 0;
    auto bound = bind_to_free_port(options.everywhere, port);
    auto listening = bound ? server.listen(std::move(*bound)) : std::unexpected(bound.error());
    if (!listening) {
        log::error("{}", listening.error().message);
        return EXIT_FAILURE;
    }
    server.begin(stores.begin(), options.world_size, {});
    TaskGroup tasks(context.get_executor());
    tasks.spawn(obey(context, server, stores, options.world_size));
    fmt::print("{}\n", port);
    std::fflush(stdout);
    context.run();
    return EXIT_SUCCESS;
}

}  // namespace
}  // namespace dtrun

int main(int argc, char** argv) {
    const auto options = dtrun::parse(argc, argv);
    if (!options) {
        fmt::print(stderr, "usage: tcp_store_here [--relayed] [--world-size N] [--everywhere]\n");
        return 2;
    }
    return dtrun::run(*options);
}
