#include "worker/agent/lifeline.h"

#include "base/ids.h"
#include "base/loop/deadline.h"
#include "rendezvous/job/tree.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/start_messages.h"

#include <string.h>
#include <algorithm>
#include <array>
#include <utility>

namespace dtrun::agent {
namespace {

/// Limit for an agent that is cut off from the head, so that nobody tells it of the end. Otherwise
/// the head decides how long agents wait for others: for a relay's slow log-in, for the last node
/// of a thousand.
constexpr std::chrono::minutes kConfigLimit{15};

}  // namespace

Lifeline::Lifeline(asio::any_io_executor executor, Fd input)
    : input_(std::move(executor), input.release()) {}

/// The payload of the next frame, which must be of this type.
asio::awaitable<Result<std::string>> Lifeline::read_frame(FrameType type) {
    DeadlineGuard guard(input_, after(kConfigLimit));
    std::string header(FrameHeader::kBytes, '\0');
    const auto header_buffer = asio::buffer(header);
    auto [error, bytes] = co_await asio::async_read(input_, header_buffer, use_tuple);
    if (error) co_return fail(Errc::closed, "no configuration: {}", error.message());
    const auto parsed = decode_header(header);
    if (!parsed) co_return std::unexpected(parsed.error());
    if (parsed->type != type)
        co_return fail(Errc::invalid_input, "no configuration: frame of type {}",
                       static_cast<int>(parsed->type));
    std::string payload(parsed->payload_bytes, '\0');
    const auto payload_buffer = asio::buffer(payload);
    auto [payload_error, payload_bytes] =
        co_await asio::async_read(input_, payload_buffer, use_tuple);
    if (payload_error)
        co_return fail(Errc::closed, "no configuration: {}", payload_error.message());
    co_return payload;
}

asio::awaitable<Result<AgentConfig>> Lifeline::read_config(std::string node) {
    auto payload = co_await read_frame(FrameType::agent_config);
    if (!payload) co_return std::unexpected(payload.error());
    auto config = decode<AgentConfig>(*payload);
    ::explicit_bzero(payload->data(), payload->size());
    if (!config) co_return std::unexpected(config.error());
    if (config->job_id.size() != sizeof(JobId) || config->secret.size() != Secret::kBytes)
        co_return fail(Errc::invalid_input, "a configuration without a job");
    if (node.empty()) co_return config;
    const auto found = co_await find_own_host(*config, node);
    if (!found) co_return std::unexpected(found.error());
    co_return config;
}

asio::awaitable<Result<void>> Lifeline::find_own_host(AgentConfig& config, std::string node) {
    const auto own = std::ranges::find(config.nodes, node);
    if (own == config.nodes.end())
        co_return fail(Errc::invalid_input, "{} is not part of the job", node);
    config.host = static_cast<HostId>(own - config.nodes.begin());
    config.agent = std::to_underlying(config.host);
    config.host_name = node;
    std::vector<std::uint32_t>& ranks = config.binding.ranks;
    if (const auto index = std::to_underlying(config.host); index < ranks.size())
        ranks.assign(1, std::uint32_t{ranks[index]});
    if (config.host != HostId{0} && !config.reserve_everywhere) config.reserve_ports = 0;
    const Tree tree(static_cast<std::uint32_t>(config.nodes.size()),
                    static_cast<std::uint32_t>(config.tree_threshold));
    config.relay = tree.is_relay(config.host);
    const auto parent = tree.parent(config.host);
    if (!parent) co_return Result<void>{};
    const auto payload = co_await read_frame(FrameType::relays);
    if (!payload) co_return std::unexpected(payload.error());
    const auto relays = decode<Relays>(*payload);
    if (!relays) co_return std::unexpected(relays.error());
    const auto relay = std::ranges::find(relays->relays, *parent, &RelayAddress::host);
    if (relay == relays->relays.end()) co_return Result<void>{};
    config.addresses.assign(1, relay->address);
    config.port = relay->port;
    co_return Result<void>{};
}

asio::awaitable<bool> Lifeline::broken() {
    std::array<char, 256> unexpected;
    for (;;) {
        const auto buffer = asio::buffer(unexpected);
        const auto [error, bytes] = co_await input_.async_read_some(buffer, use_tuple);
        if (error) co_return error != asio::error::operation_aborted;
    }
}

}  // namespace dtrun::agent
