#include "launcher/transport/named_host.h"

#include "launcher/transport/ssh_patterns.h"

#include <fmt/format.h>
#include <utility>

namespace dtrun::transport {

asio::awaitable<Result<NamedHost>> find_keys(Pool& pool, KnownHostsFiles& files,
                                             const SshSettings& settings, Deadline deadline) {
    const auto port = static_cast<unsigned int>(settings.port);
    NamedHost named;
    named.name = settings.known_as.empty() ? known_hosts_name(settings.host, port)
                                           : lower(settings.known_as);
    std::vector<std::string> names = settings.known_hosts;
    names.insert(names.end(), settings.global_known_hosts.begin(),
                 settings.global_known_hosts.end());
    const auto table = files.read(names);
    if (table->is_slow()) {
        const auto work = [table, name = named.name] { return table->find(name); };
        auto found = co_await run_on(pool, work, deadline);
        if (!found) co_return fail(found.error(), "reading known_hosts");
        named.known = std::move(*found);
    } else {
        named.known = table->find(named.name);
    }
    if (named.known.keys.empty() && settings.known_as.empty() && named.name != lower(settings.host))
        named.known_anywhere = table->find(lower(settings.host));
    co_return named;
}

std::optional<LoginOrder> order_login(const Host& host, const SshSettings& settings,
                                      const NamedHost& named, std::string command) {
    // A key that is revoked, or signed, is the head's to judge.
    if (named.keys().empty() || named.known.has_authority || !named.known.revoked.empty() ||
        !named.known_anywhere.revoked.empty())
        return std::nullopt;
    LoginOrder order;
    order.name = host.name;
    order.host = host.address.empty() ? settings.host : host.address;
    order.port = static_cast<std::uint32_t>(settings.port);
    order.user = settings.user;
    order.known_as = named.name;
    for (const HostKey& key : named.keys())
        order.keys.push_back(fmt::format("{} {}", key.type, key.base64));
    const auto set = [&order](const char* keyword, const std::string& value) {
        if (!value.empty()) order.options.push_back(fmt::format("{}={}", keyword, value));
    };
    set("Ciphers", settings.ciphers);
    set("MACs", settings.macs);
    set("KexAlgorithms", settings.key_exchange);
    set("HostKeyAlgorithms", settings.host_key_types);
    set("PubkeyAcceptedKeyTypes", settings.key_types);
    set("Compression", settings.compression ? "yes" : "");
    order.command = std::move(command);
    return order;
}

}  // namespace dtrun::transport
