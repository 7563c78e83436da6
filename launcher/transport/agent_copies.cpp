#include "launcher/transport/agent_copies.h"

#include "base/crypto.h"
#include "base/fd.h"
#include "base/ids.h"
#include "base/strings.h"
#include "launcher/transport/agent_file.h"
#include "launcher/transport/gzip.h"

#include <vector>

namespace dtrun::transport {
namespace {

/// A release has 8 MB; one with debug information and sanitizers ten times as many.
constexpr std::size_t kAgentBytesMax = 1u << 30;

}  // namespace

AgentRequest parse_request(std::string_view said) {
    const auto words = split(trim(said), ' ');
    const auto word = [&words](std::size_t i) {
        return i < words.size() ? std::string(words[i]) : std::string();
    };
    return {{word(0), word(1) == "gzip"}, word(2)};
}

Result<const AgentCopy*> AgentCopies::get(const HostWants& wants) {
    if (const auto known = copies_.find(wants); known != copies_.end()) return &known->second;
    const auto agent = find_agent(wants.machine);
    if (!agent) return fail(Errc::internal, "{}", agent.error().message);
    auto bytes = read_file(agent->path, kAgentBytesMax);
    if (!bytes) return std::unexpected(bytes.error());
    if (wants.gzip) *bytes = gzip(*bytes);
    const std::size_t of_agent = bytes->size();
    if (!agent->package.empty()) {
        const auto package = read_file(agent->package, kAgentBytesMax);
        if (!package) return std::unexpected(package.error());
        *bytes += *package;
    }
    AgentCopy copy;
    copy.build_id = agent->build_id;
    copy.announcement = fmt::format("{} {} {} {} {}", agent->build_id, bytes->size(),
                                    hex(sha256(*bytes)), of_agent, wants.gzip ? "gzip" : "plain");
    copy.bytes = std::move(*bytes);
    return &copies_.emplace(wants, std::move(copy)).first->second;
}

asio::awaitable<bool> HomeTurn::wait(AgentCopies& copies, AgentRequest request,
                                     std::function<void()> waits) {
    if (request.home.empty()) co_return true;
    const auto executor = co_await asio::this_coro::executor;
    const std::string name = request.home + " " + request.wants.machine;
    AgentCopies::Home& home = copies.homes_.try_emplace(name, executor).first->second;
    if (home.copying) waits();
    while (home.copying) co_await home.changed.async_wait(use_tuple);
    if (home.stored) co_return false;
    home.copying = true;
    home_ = &home;
    co_return true;
}

void HomeTurn::stored() {
    if (home_ != nullptr) home_->stored = true;
}

HomeTurn::~HomeTurn() {
    if (home_ == nullptr) return;
    home_->copying = false;
    home_->changed.cancel();
}

}  // namespace dtrun::transport
