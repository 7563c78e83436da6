#include "launcher/head/master_election.h"

#include "base/log.h"
#include "contracts/table.h"
#include "hostfiles/nodelist.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/modes.h"
#include "rendezvous/wire/start_messages.h"

#include <algorithm>

namespace dtrun::head {
namespace {

/// How long a host tries to connect: an address that does not answer by then drops packets.
constexpr std::chrono::milliseconds kProbeLimit{2'000};
constexpr std::chrono::milliseconds kNewsLimit{1'000};  // for the answer to come here

}  // namespace

MasterElection::MasterElection(asio::any_io_executor executor, const plan::JobSpec& spec,
                               Hosts& hosts, Router<HostId>& router, std::function<bool()> given_up)
    : spec_(spec),
      hosts_(hosts),
      given_up_(std::move(given_up)),
      answered_(std::move(executor), Timer::time_point::max()) {
    router.on<Reached>(this, &MasterElection::reached);
}

asio::awaitable<void> MasterElection::elect(std::map<HostId, Assign>& assigns) {
    HostId first{};
    std::vector<HostId> others;
    for (const auto& [host, assign] : assigns) {
        if (assign.ranks.empty()) continue;
        if (assign.node_rank == 0)
            first = host;
        else
            others.push_back(host);
    }
    const bool known = met_at_ == first && std::ranges::all_of(others, [this](HostId host) {
                           return met_.contains(host);
                       });
    if (!known) {
        const std::string address = co_await reachable_address(assigns.at(first), first, others);
        address_ = address;
        met_at_ = first;
        met_ = {others.begin(), others.end()};
    }
    for (auto& [host, assign] : assigns) {
        assign.master_address = address_;
        if (!assign.nodes.empty()) assign.nodes.front().address = address_;
    }
}

/// An address of rank 0's host that every other host reaches, or the best guess.
asio::awaitable<std::string> MasterElection::reachable_address(const Assign& assign, HostId first,
                                                               const std::vector<HostId>& others) {
    const std::uint16_t port = assign.master_port;
    const std::string guess = assign.master_address;
    if (others.empty() || port == 0 || !ranks_meet()) co_return guess;
    std::vector<std::string> candidates(1, guess);
    std::string reached = co_await common_address(candidates, port, others, false);
    if (reached.empty() && !given_up_()) {
        candidates = hosts_[first].addresses;
        candidates.push_back(guess);
        reached = co_await common_address(candidates, port, others, true);
    }
    co_return reached.empty() ? guess : reached;
}

/// Whether anybody of the job will connect to MASTER_ADDR, as far as is known here.
bool MasterElection::ranks_meet() const {
    if (contracts::needs_nodes(spec_.contracts)) return true;
    const bool torch = std::ranges::count(spec_.contracts, "torch") > 0;
    const bool elsewhere = std::ranges::count(spec_.environment.added, "MASTER_ADDR",
                                              &plan::Options::Variable::first) > 0;
    return torch && !elsewhere && spec_.options.torch_store != TorchStore::proxy;
}

/// Has `others` try to connect to each of `addresses`.
/// \param last  no other addresses will be tried: a failure is followed by a warning
/// \return the first address that all of them reach; empty if there is none, or it is given up
asio::awaitable<std::string> MasterElection::common_address(std::vector<std::string> addresses,
                                                            std::uint16_t port,
                                                            std::vector<HostId> others, bool last) {
    answers_.clear();
    asking_ = true;
    const Probe probe{addresses, port, static_cast<std::uint32_t>(kProbeLimit.count())};
    const Bytes frame = encode(probe);
    for (const HostId host : others) hosts_.send(host, frame);
    const Deadline deadline = after(kProbeLimit + kNewsLimit);
    while (answers_.size() < others.size() && !given_up_()) {
        answered_.expires_at(deadline);
        const auto [cancelled] = co_await answered_.async_wait(use_tuple);
        if (!cancelled) break;
    }
    asking_ = false;
    const auto reached_by_all = [&](const std::string& address) {
        return answers_.size() == others.size() &&
               std::ranges::all_of(answers_, [&address](const auto& answer) {
                   return std::ranges::count(answer.second.addresses, address) > 0;
               });
    };
    const auto found = std::ranges::find_if(addresses, reached_by_all);
    if (found != addresses.end()) co_return *found;
    if (last && !given_up_()) warn(addresses);
    co_return std::string();
}

void MasterElection::warn(const std::vector<std::string>& addresses) const {
    std::vector<std::string> cut_off;
    std::string why;  // the first host's reason, which stands for all
    for (const auto& [host, answer] : answers_) {
        if (answer.addresses.size() == addresses.size()) continue;
        cut_off.push_back(hosts_.name(host));
        if (why.empty()) why = answer.why;
    }
    if (!cut_off.empty())
        log::warn("{} {} not reach {}, where rank 0 is: {}", name_hosts(cut_off),
                  cut_off.size() == 1 ? "does" : "do", hosts_.name_of_host(Rank{0}), why);
    log::warn("no address of {} is reached by every host: ranks may not find each other",
              hosts_.name_of_host(Rank{0}));
}

void MasterElection::reached(HostId host, const Reached& reached) {
    if (!asking_) return;
    answers_[host] = reached;
    answered_.cancel();
}

}  // namespace dtrun::head
