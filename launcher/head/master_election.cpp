#include "launcher/head/master_election.h"

#include "base/log.h"
#include "hostfiles/nodelist.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/start_messages.h"

#include <algorithm>

namespace dtrun::head {
namespace {

/// How long a host tries to connect: an address that does not answer by then drops packets.
constexpr std::chrono::milliseconds kProbeLimit{2'000};
constexpr std::chrono::milliseconds kNewsLimit{1'000};  // for the answer to come here

}  // namespace

MasterElection::MasterElection(asio::any_io_executor executor, Hosts& hosts, Router<HostId>& router,
                               std::function<bool()> given_up)
    : hosts_(hosts),
      given_up_(std::move(given_up)),
      answered_(std::move(executor), Timer::time_point::max()) {
    router.on<Reached>(this, &MasterElection::reached);
}

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
