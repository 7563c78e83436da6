#include "launcher/host_survey.h"

#include "base/deadline.h"
#include "base/net.h"
#include "base/task_group.h"
#include "launcher/host_target.h"

#include <algorithm>
#include <memory>
#include <optional>

namespace dtrun {
namespace {

constexpr std::size_t kVisitsAtOnce = 512;  // of descriptors, 1024 are common

double seconds(std::chrono::milliseconds time) {
    return std::chrono::duration<double>(time).count();
}

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

/// One name look-up, which may outlive who asked for it.
struct Lookup {
    Lookup(asio::any_io_executor executor, Deadline deadline) : done(executor, deadline) {}
    asio::steady_timer done;
    std::optional<Result<std::vector<asio::ip::address>>> found;
};

}  // namespace

HostSurvey::HostSurvey(const HostList& hosts, SurveyOptions options)
    : hosts_(hosts), options_(options), answers_(hosts.size()) {}

std::vector<Result<std::string>> HostSurvey::run() {
    TaskGroup workers(io_.get_executor());
    const std::size_t count = std::min(hosts_.size(), kVisitsAtOnce);
    for (std::size_t i = 0; i < count; ++i) workers.spawn(work());
    asio::co_spawn(io_, workers.join(), [this](std::exception_ptr error) {
        if (error) std::rethrow_exception(error);
        io_.stop();  // look-ups that are late have nothing left to say
    });
    io_.run();
    return std::move(answers_);
}

asio::awaitable<void> HostSurvey::work() {
    while (next_ < hosts_.size()) {
        const std::size_t index = next_++;
        auto answer = co_await visit(hosts_[index]);
        answers_[index] = std::move(answer);
    }
}

asio::awaitable<Result<std::string>> HostSurvey::visit(const Host& host) {
    const bool connects = options_.connect && !is_this_machine(host);
    if (!connects && !options_.resolve) co_return std::string();
    const Deadline deadline = after(options_.connect_timeout);
    const std::string& name = host.address.empty() ? host.name : host.address;
    auto addresses = co_await look_up(name, deadline);
    if (!addresses) co_return std::unexpected(addresses.error());
    std::string best = best_address(name, *addresses);
    if (!connects) co_return best;
    const int port = host.port != 0 ? host.port : options_.ssh_port;
    const auto connected = co_await connect(std::move(*addresses), port, deadline);
    if (!connected) co_return std::unexpected(connected.error());
    co_return best;
}

asio::awaitable<Result<HostSurvey::Addresses>> HostSurvey::look_up(std::string name,
                                                                   Deadline deadline) {
    const auto here = co_await asio::this_coro::executor;
    const auto lookup = std::make_shared<Lookup>(here, deadline);
    asio::post(pool_, [here, lookup, name] {
        auto found = resolve(name);
        asio::post(here, [lookup, result = std::move(found)]() mutable {
            lookup->found = std::move(result);
            lookup->done.cancel();
        });
    });
    co_await lookup->done.async_wait(use_tuple);
    if (lookup->found) co_return std::move(*lookup->found);
    co_return fail(Errc::timed_out,
                   "no answer from the name server within {} s (--connect-timeout)",
                   seconds(options_.connect_timeout));
}

asio::awaitable<Result<void>> HostSurvey::connect(Addresses addresses, int port,
                                                  Deadline deadline) {
    const auto executor = co_await asio::this_coro::executor;
    Error last;
    for (const asio::ip::address& address : addresses) {
        tcp::socket socket(executor);
        DeadlineGuard guard(socket, deadline);
        const tcp::endpoint endpoint(address, static_cast<std::uint16_t>(port));
        const auto [error] = co_await socket.async_connect(endpoint, use_tuple);
        if (!error) co_return Result<void>();
        const std::string where = fmt::format("{} port {}", numeric(address), port);
        if (guard.expired())
            co_return fail(Errc::timed_out, "{}: no answer within {} s (--connect-timeout)", where,
                           seconds(options_.connect_timeout));
        last = {Errc::unreachable, where + ": " + error.message()};
    }
    co_return std::unexpected(last);
}

}  // namespace dtrun
