#include "launcher/commands/host_survey.h"

#include "base/fd.h"
#include "base/interfaces.h"
#include "base/loop/deadline.h"
#include "base/loop/net.h"
#include "base/loop/task_group.h"
#include "launcher/transport/host_target.h"

#include <algorithm>
#include <cstdint>

namespace dtrun::commands {
namespace {

constexpr std::uint64_t kDescriptorsOfOthers =
    512;  // than visits: name look-ups, and what every program has

/// How little an address is worth to other machines.
int rank_of(const asio::ip::address& address) {
    if (address.is_loopback()) return 3;
    if (address.is_v6()) return address.to_v6().is_link_local() ? 2 : 1;
    return 0;
}

/// \param addresses  at least one
std::string best_address(const std::string& name, const std::vector<asio::ip::address>& addresses) {
    const auto best = std::ranges::min_element(addresses, {}, rank_of);
    // Debian gives a machine's own name the address 127.0.1.1, which is no use to others.
    if (best->is_loopback() && name == host_name())
        for (const InterfaceAddress& own : interface_addresses())
            if (!own.loopback) return own.address;
    return numeric(*best);
}

}  // namespace

HostSurvey::HostSurvey(const HostList& hosts, SurveyOptions options)
    : hosts_(hosts), options_(options), answers_(hosts.size()) {}

std::vector<Result<std::string>> HostSurvey::run() {
    using transport::LoginGate;
    raise_descriptor_limit(kDescriptorsOfOthers +
                           (1 + LoginGate::kLentForEach) * LoginGate::kLoginsMax);
    TaskGroup visits(io_.get_executor());
    for (std::size_t i = 0; i < hosts_.size(); ++i) visits.spawn(visit(hosts_[i], answers_[i]));
    asio::co_spawn(io_, visits.join(), [this](std::exception_ptr error) {
        if (error) std::rethrow_exception(error);
        io_.stop();  // look-ups that are late have nothing left to say
    });
    io_.run();
    return std::move(answers_);
}

asio::awaitable<void> HostSurvey::visit(const Host& host, Result<std::string>& answer) {
    auto asked = co_await ask(host);
    answer = std::move(asked);
    if (answer || answer.error().code != Errc::timed_out) co_return;
    const double limit = std::chrono::duration<double>(options_.connect_timeout).count();
    answer.error().message += fmt::format(" within {:.3g} s (--connect-timeout)", limit);
}

asio::awaitable<Result<std::string>> HostSurvey::ask(const Host& host) {
    const bool connects =
        options_.connect && !transport::is_this_machine(host, transport::LookUp::none);
    if (!connects && !options_.resolve) co_return std::string();
    transport::LoginPass pass(gate_);
    co_await pass.wait("");
    const Deadline deadline = after(options_.connect_timeout);
    const std::string& name = host.address.empty() ? host.name : host.address;
    auto addresses = co_await transport::look_up(pool_, name, deadline);
    if (!addresses) co_return std::unexpected(addresses.error());
    std::string best = best_address(name, *addresses);
    if (!connects) co_return best;
    const auto port = static_cast<std::uint16_t>(host.port != 0 ? host.port : options_.ssh_port);
    pass.knocks();
    const auto connected = co_await transport::connect_any(std::move(*addresses), port, deadline);
    if (!connected) co_return std::unexpected(connected.error());
    co_return best;
}

}  // namespace dtrun::commands
