#include "launcher/head/tree_logins.h"

#include "rendezvous/wire/message.h"

#include <utility>

namespace dtrun::head {

void TreeLogins::subscribe(Router<HostId>& router) {
    router.on<LoginStream>([this](HostId host, const LoginStream& said) {
        const auto found = logins_.find(said.login);
        if (found != logins_.end() && found->second.relay == host)
            found->second.channel->take(said);
    });
}

std::unique_ptr<transport::Channel> TreeLogins::open(HostId relay, LoginOrder order,
                                                     std::string address) {
    // It is the same for all hosts, and the longest part.
    std::string& last_command = commands_[relay];
    if (order.command == last_command)
        order.command.clear();
    else
        last_command = order.command;
    const std::uint32_t login = ++last_;
    auto channel = std::make_unique<transport::OnwardChannel>(
        transport::OnwardChannel::Parts{
            executor_, login, login_seal(secret_, login), std::move(address),
            [this, relay](const LoginStream& said) { hosts_.send(relay, encode(said)); },
            [this, login] { logins_.erase(login); }},
        order);
    logins_[login] = {relay, channel.get()};
    return channel;
}

void TreeLogins::relay_lost(HostId relay) {
    commands_.erase(relay);
    for (const auto& [number, login] : logins_)
        if (login.relay == relay)
            login.channel->lost(
                fmt::format("{}, which had logged in there, is lost", hosts_.name(relay)));
}

}  // namespace dtrun::head
