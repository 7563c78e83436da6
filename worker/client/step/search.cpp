#include "worker/client/step/search.h"

#include "base/strings.h"
#include "worker/client/connect/handshake.h"
#include "worker/client/connect/retry.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <algorithm>
#include <map>

namespace dtrun::embedded {
namespace {

constexpr std::chrono::milliseconds kLookPauseMin{50};
constexpr std::chrono::milliseconds kLookPauseMax{1'000};
constexpr std::chrono::seconds kConnectTime{3};
/// First timeout for a greeting, which rank 0 sends at once; it doubles with each round. A silent
/// stranger must not hold us up for long, but a busy rank 0 must get its time sooner or later.
constexpr std::chrono::milliseconds kGreetingTimeMin{250};
constexpr int kRoundsAlone = 4;  // at the first node only: 750 ms of pauses
constexpr std::size_t kOthersMax = 16;
constexpr std::size_t kAnswerBytesMax = 64u << 10;

WaitContext at_most(WaitContext context, std::chrono::milliseconds time) {
    context.deadline = std::min(context.deadline, now() + time);
    return context;
}

Outcome<void> prove(FrameSocket& socket, const StepAddress& address, StepKey& key,
                    std::chrono::milliseconds greeting_time, const WaitContext& context) {
    const WaitContext soon = at_most(context, kHandshakeTime);
    const auto greeting =
        socket.read_exactly(StepKey::kGreetingBytes, at_most(context, greeting_time));
    if (!greeting) return std::unexpected(greeting.error());
    const auto bytes = StepKey::credential_bytes(*greeting);
    if (!bytes) return std::unexpected(bytes.error());
    const auto credential = socket.read_exactly(*bytes, soon);
    if (!credential) return std::unexpected(credential.error());
    if (auto taken = key.take_credential(*credential); !taken) return taken;
    return authenticate(socket, key.credentials_at(address), context);
}

/// Says hello. Failures: invalid (for good), refused (not now), closed, timed_out, cancelled
Outcome<void> introduce(FrameSocket& socket, const Hello& hello, const WaitContext& context) {
    const WaitContext soon = at_most(context, kHandshakeTime);
    if (auto sent = socket.send(encode(hello)); !sent) return sent;
    const auto bytes = socket.read_exactly(FrameHeader::kBytes, soon);
    if (!bytes) return std::unexpected(bytes.error());
    const auto header = decode_header(*bytes);
    if (!header || header->payload_bytes > kAnswerBytesMax)
        return failure(DTRUN_REFUSED, "malformed answer");
    const auto payload = socket.read_exactly(header->payload_bytes, soon);
    if (!payload) return std::unexpected(payload.error());
    if (header->type == FrameType::heartbeat) return {};
    const auto refuse = decode<Refuse>(*payload);
    if (header->type != FrameType::refuse || !refuse)
        return failure(DTRUN_REFUSED, "unexpected answer");
    return failure(refuse->later ? DTRUN_REFUSED : DTRUN_INVALID, "{}", refuse->reason);
}

Outcome<FrameSocket> knock(const std::vector<TcpAddress>& host, const StepAddress& address,
                           StepKey& key, const Hello& hello,
                           std::chrono::milliseconds greeting_time, const WaitContext& context) {
    std::vector<TcpAddress> at_port;
    for (const TcpAddress& one : host) at_port.push_back(one.at(address.port));
    auto socket = FrameSocket::connect_tcp(at_port, at_most(context, kConnectTime));
    if (!socket) return socket;
    keep_watch(socket->fd());
    if (auto proved = prove(*socket, address, key, greeting_time, context); !proved)
        return std::unexpected(proved.error());
    if (auto let_in = introduce(*socket, hello, context); !let_in)
        return std::unexpected(let_in.error());
    return socket;
}

/// How much a problem is worth telling rather than another one: that nobody listens is no news.
int weight(const Failure& problem) {
    if (problem.code == DTRUN_REFUSED) return 2;
    return problem.code == DTRUN_TIMED_OUT ? 1 : 0;
}

/// Where the nodes are. A resolver may take seconds, so each is asked for once; what has failed is
/// asked for again in the next round.
class AddressBook {
public:
    /// Failures: closed (not found), timed_out, cancelled
    Outcome<std::vector<TcpAddress>> find(const std::string& host, const WaitContext& context) {
        if (const auto known = known_.find(host); known != known_.end()) return known->second;
        if (context.give_up && context.give_up()) return failure(DTRUN_CANCELLED, "interrupted");
        if (context.over()) return failure(DTRUN_TIMED_OUT, "no time to look it up");
        auto found = resolve(host, "", context);
        if (found) known_.emplace(host, *found);
        return found;
    }

private:
    std::map<std::string, std::vector<TcpAddress>> known_;
};

/// One way through the ports of nodes.
class Round {
public:
    Round(const SlurmStep& step, AddressBook& book, StepKey& key, const Hello& hello,
          std::chrono::milliseconds greeting_time, const WaitContext& context)
        : step_(step),
          book_(book),
          key_(key),
          hello_(hello),
          greeting_time_(greeting_time),
          context_(context) {}

    /// \return nothing if rank 0 was not found there. Failures: those for good
    Outcome<std::optional<FrameSocket>> try_node(const std::string& node) {
        const std::string host = node == step_.node ? "localhost" : node;
        const auto addresses = book_.find(host, context_);
        if (!addresses) {
            const Failure problem{addresses.error().code,
                                  fmt::format("{}: {}", node, addresses.error().text)};
            if (problem.code == DTRUN_CANCELLED) return std::unexpected(problem);
            keep(problem);
            return std::nullopt;
        }
        for (const std::uint16_t port : key_.ports()) {
            const StepAddress address{node, port};
            auto socket = knock(*addresses, address, key_, hello_, greeting_time_, context_);
            if (socket) return std::optional(std::move(*socket));
            const Failure problem{socket.error().code,
                                  fmt::format("{} port {}: {}", node, port, socket.error().text)};
            if (problem.code == DTRUN_INVALID || problem.code == DTRUN_CANCELLED)
                return std::unexpected(problem);
            keep(problem);
            if (context_.over()) break;
        }
        return std::nullopt;
    }

    const std::optional<Failure>& problem() const { return problem_; }

private:
    void keep(const Failure& problem) {
        if (!problem_ || weight(problem) > weight(*problem_)) problem_ = problem;
    }

    const SlurmStep& step_;
    AddressBook& book_;
    StepKey& key_;
    const Hello& hello_;
    const std::chrono::milliseconds greeting_time_;
    const WaitContext& context_;
    std::optional<Failure> problem_;
};

std::string list_ports(const StepKey::Ports& ports) {
    std::vector<std::string> names;
    for (const std::uint16_t port : ports) names.push_back(std::to_string(port));
    return join_names(names);
}

}  // namespace

Outcome<FrameSocket> find_rank_0(const SlurmStep& step, const std::vector<std::string>& nodes,
                                 StepKey& key, const Hello& hello, const WaitContext& context) {
    Retry retry(kLookPauseMin, kLookPauseMax);
    AddressBook book;
    std::size_t next = 1;  // of the other nodes
    std::size_t others = 0;
    std::chrono::milliseconds greeting_time = kGreetingTimeMin;
    for (int tried = 1;; ++tried) {
        Round round(step, book, key, hello, greeting_time, context);
        greeting_time = std::min<std::chrono::milliseconds>(2 * greeting_time, kHandshakeTime);
        auto found = round.try_node(nodes.front());
        if (tried > kRoundsAlone) others = std::clamp<std::size_t>(2 * others, 1, kOthersMax);
        for (std::size_t i = 0; i < std::min(others, nodes.size() - 1); ++i) {
            if (!found || *found || context.over()) break;
            found = round.try_node(nodes[next]);
            next = next + 1 < nodes.size() ? next + 1 : 1;
        }
        if (!found) return std::unexpected(found.error());
        if (*found) return std::move(**found);
        if (const auto paused = retry.wait(context); !paused)
            return failure(paused.error().code,
                           "rank 0 of step {} was not found at the ports {} of {}{}: {}", step.id,
                           list_ports(key.ports()), nodes.front(),
                           nodes.size() > 1 ? " and other nodes" : "",
                           round.problem() ? round.problem()->text : "no answer");
    }
}

}  // namespace dtrun::embedded
