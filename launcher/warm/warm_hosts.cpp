#include "launcher/warm/warm_hosts.h"

#include "base/log.h"
#include "launcher/warm/holder_client.h"
#include "launcher/warm/warm_channel.h"
#include "rendezvous/wire/message.h"

#include <algorithm>
#include <utility>

namespace dtrun::warm {
namespace {

constexpr std::chrono::milliseconds kListLimit{500};  // for a holder to say what it has
constexpr std::chrono::seconds kTakeLimit{3};         // and that an agent runs: it gives up before
/// Between two words of a holder that logs in, or will: it says twice a minute that it does.
constexpr std::chrono::seconds kWaitLimit{75};

}  // namespace

WarmHosts::WarmHosts(asio::any_io_executor executor, std::vector<std::string> sockets,
                     std::optional<std::chrono::milliseconds> keep)
    : executor_(std::move(executor)),
      sockets_(std::move(sockets)),
      keep_(keep),
      found_(executor_, Timer::time_point::max()) {}

/// Once, for whoever comes first; the others wait for it.
asio::awaitable<void> WarmHosts::look() {
    while (looking_) co_await found_.async_wait(use_tuple);
    if (std::exchange(looked_, true)) co_return;
    looking_ = true;
    const WarmRequest list;
    const auto told = co_await ask_holders(sockets_, list, after(kListLimit));
    for (const auto& [path, answer] : told) {
        if (!answer) {
            log::info("{}: {}", path, answer.error().message);
            continue;
        }
        // Where a log-in was lost, the holder logs in again for the next job.
        for (const HeldStatus& host : answer->hosts) {
            if (host.state == HeldState::leaving) continue;
            if (host.state == HeldState::gone) holder_of_.emplace(host.key, path);
            if (host.state != HeldState::gone) holder_of_[host.key] = path;
        }
    }
    looking_ = false;
    found_.cancel();
}

asio::awaitable<std::optional<WarmAgent>> WarmHosts::take(std::string key) {
    co_await look();
    const auto holder = holder_of_.find(key);
    if (holder == holder_of_.end()) co_return std::nullopt;
    const std::string path = holder->second;
    auto taken = co_await take_from(path, std::move(key));
    co_return taken;
}

asio::awaitable<std::optional<WarmAgent>> WarmHosts::take_from(std::string path, std::string key) {
    auto holder = HolderConnection::open(executor_, path);
    if (!holder) co_return std::nullopt;
    WarmRequest request;
    request.wish = WarmWish::take;
    request.key = std::move(key);
    if (keep_) request.keep_ms = static_cast<std::uint32_t>(keep_->count());
    Bytes frame = encode(request);
    const auto sent = co_await holder->send(std::move(frame), after(kTakeLimit));
    if (!sent) co_return std::nullopt;
    for (std::chrono::seconds limit = kTakeLimit;;) {
        const auto answer = co_await holder->receive<WarmAnswer>(after(limit));
        if (!answer) co_return std::nullopt;
        if (answer->waits) {
            limit = kWaitLimit;
            continue;
        }
        if (!answer->taken) co_return std::nullopt;
        co_return WarmAgent{make_warm_channel(std::move(*holder)), answer->seen_as};
    }
}

}  // namespace dtrun::warm
