// Where the ranks of a job meet: an address of rank 0's host that every host has reached; who waits
// there; and all of them starting again.

#include "base/log.h"
#include "base/milliseconds.h"
#include "base/strings.h"
#include "launcher/head/head.h"
#include "launcher/head/report.h"

#include <algorithm>
#include <csignal>

namespace dtrun::head {
namespace {

/// A host that does not answer by then drops our packets.
constexpr std::chrono::milliseconds kProbeLimit{2'000};
constexpr std::chrono::milliseconds kNewsLimit{1'000};  // for the answer to come here
constexpr std::chrono::milliseconds kShortLife{1'000};  // of ranks, from start to failure
constexpr std::chrono::milliseconds kRestartDelay{100}, kRestartDelayMax{5'000};

}  // namespace

/// Every host is ready: finds where ranks will meet, and starts them.
asio::awaitable<void> Head::meet() {
    assignments_ = membership_.take_orders().assignments;
    const Assign& first = assignments_.front().second;
    master_address_ = first.master_address;
    if (assignments_.size() > 1 && first.master_port != 0 && meets_at_master()) {
        std::vector<std::string> candidates(1, master_address_);
        std::string reached = co_await common_address(candidates);
        if (reached.empty() && !job_.ending()) {
            candidates = hosts_[static_cast<std::size_t>(assignments_.front().first - 1)].addresses;
            candidates.push_back(master_address_);
            reached = co_await common_address(candidates);
        }
        if (!reached.empty()) master_address_ = reached;
    }
    if (!job_.ending()) start_ranks();
}

/// Whether anybody of the job will connect to MASTER_ADDR, as far as is known here.
bool Head::meets_at_master() const {
    if (contracts::needs_nodes(spec_.contracts)) return true;
    const bool torch = std::ranges::count(spec_.contracts, "torch") > 0;
    const bool elsewhere =
        std::ranges::count(spec_.env_added, "MASTER_ADDR", &plan::Options::Variable::first) > 0;
    return torch && !elsewhere && spec_.options.torch_store != TorchStore::proxy;
}

/// The first of `addresses` of rank 0's host that every other host reaches; empty if there is none,
/// after a warning.
asio::awaitable<std::string> Head::common_address(std::vector<std::string> addresses) {
    probing_.emplace();
    const Probe probe{addresses, assignments_.front().second.master_port, to_ms(kProbeLimit)};
    const Bytes frame = encode(probe);
    for (std::size_t i = 1; i < assignments_.size(); ++i) {
        send(static_cast<std::uint32_t>(assignments_[i].first - 1), frame);
        ++probing_->asked;
    }
    const Deadline deadline = after(kProbeLimit + kNewsLimit);
    while (probing_->answers.size() < probing_->asked && !job_.ending()) {
        probed_.expires_at(deadline);
        const auto [cancelled] = co_await probed_.async_wait(use_tuple);
        if (!cancelled) break;
    }
    const Probing done = std::move(*probing_);
    probing_.reset();
    const auto reached_by_all = [&done](const std::string& address) {
        return done.answers.size() == done.asked &&
               std::ranges::all_of(done.answers, [&address](const auto& answer) {
                   return std::ranges::count(answer.second.addresses, address) > 0;
               });
    };
    const auto found = std::ranges::find_if(addresses, reached_by_all);
    if (found != addresses.end()) co_return *found;
    if (addresses.size() == 1 || job_.ending()) co_return std::string();
    std::vector<std::string> cut_off;
    std::string why;  // of the first, for all of them
    for (const auto& [host, answer] : done.answers) {
        if (answer.addresses.size() == addresses.size()) continue;
        cut_off.push_back(spec_.hosts[host].host.name);
        if (why.empty()) why = answer.why;
    }
    if (!cut_off.empty())
        log::warn("{} {} not reach {}, where rank 0 is: {}", join_names(cut_off),
                  cut_off.size() == 1 ? "does" : "do", spec_.host_of(0), why);
    log::warn("no address of {} is reached by every host: ranks may not find each other",
              spec_.host_of(0));
    co_return std::string();
}

void Head::agent_reached(std::uint32_t host, const Reached& reached) {
    if (!probing_) return;
    probing_->answers[host] = reached;
    probed_.cancel();
}

/// One has failed: all end, and start again when they have.
void Head::restart_ranks(const Exited& because) {
    const Outcome& outcome = job_.outcome();
    restart_because_ = {};
    restart_because_.cause = Outcome::Cause::rank_failed;
    restart_because_.first = because;
    restart_because_.ended_well = outcome.ended_well;
    restart_because_.waiting = waits_.describe();
    log::warn("rank {} on {} failed: ending all ranks, to start them again ({} of {})",
              because.rank, spec_.host_of(because.rank), outcome.restarts,
              spec_.options.max_restarts);
    stdin_->pause();
    membership_.restart(fmt::format("rank {} failed", because.rank), Clock::now());
    answers_.pause(membership_.generation() + 1, spec_.options.grace, Clock::now());
    for (const auto& [member, propose] : membership_.take_orders().proposals)
        send(static_cast<std::uint32_t>(member - 1),
             encode(Pause{propose.generation, SIGTERM, to_ms(spec_.options.grace), propose.why}));
}

void Head::agent_paused(std::uint32_t host, const Paused& paused) {
    answers_.paused(host, paused.generation);
    if (uplink_) {
        if (paused.generation == proposed_) uplink_->accept(paused.generation);
        return;
    }
    membership_.accept(host + 1, paused.generation, Clock::now());
    auto orders = membership_.take_orders();
    if (orders.assignments.empty() || job_.ending()) return;
    assignments_ = std::move(orders.assignments);
    const auto tail = [this](std::uint32_t rank) { return output_->tail(static_cast<int>(rank)); };
    output_->message(failure_report(restart_because_, spec_, tail));
    tasks_.spawn(start_again());
}

/// At once, but for ranks that have failed at once again and again.
asio::awaitable<void> Head::start_again() {
    const std::uint32_t restarts = job_.outcome().restarts;
    const bool at_once = Clock::now() - started_at_ < kShortLife;
    if (at_once && restarts > 1) {
        const auto doublings = std::min<std::uint32_t>(restarts - 2, 16);
        const auto delay = std::min(kRestartDelayMax, kRestartDelay * (1 << doublings));
        probed_.expires_at(after(delay));
        co_await probed_.async_wait(use_tuple);
    }
    if (job_.ending()) co_return;
    for (HostState& state : hosts_) state.ranks.clear();
    waits_.begin();
    job_.restarted();
    output_->begin_attempt(static_cast<int>(restarts));
    start_ranks();
}

std::optional<std::uint32_t> Head::host_at(const std::string& address) const {
    for (std::uint32_t host = 0; host < hosts_.size(); ++host)
        if (hosts_[host].address == address ||
            std::ranges::count(hosts_[host].addresses, address) > 0)
            return host;
    return std::nullopt;
}

/// The rank that is this process, or the only one of its host that it can belong to.
std::uint32_t Head::rank_of(std::uint32_t host, std::int64_t pid) const {
    const auto found = hosts_[host].ranks.find(pid);
    if (found != hosts_[host].ranks.end()) return found->second;
    const std::vector<std::uint32_t>& ranks = spec_.hosts[host].ranks;
    return ranks.size() == 1 ? ranks.front() : kNoRank;
}

void Head::agent_waits(std::uint32_t host, Waits waits) {
    if (spec_.daemon || waits.generation != membership_.generation()) return;
    for (RankWait& wait : waits.waits) {
        const auto where = wait.address.empty() ? host : host_at(wait.address);
        if (wait.rank == kNoRank && where) wait.rank = rank_of(*where, wait.pid);
        // Workers that a rank starts may meet in a world of their own.
        if (wait.pid != 0 && !(where && hosts_[*where].ranks.contains(wait.pid)))
            wait.hopeless = false;
    }
    waits_.waits(host, std::move(waits.waits), Clock::now());
}

void Head::agent_mpi(std::uint32_t host, const MpiNews& news) {
    if (!spec_.daemon && news.generation != membership_.generation()) return;
    if (!news.note.empty()) return log::warn("{}", news.note);
    const std::uint32_t rank = news.rank - first_rank_;  // of this launcher's
    if (news.aborted) return job_.rank_aborts(rank);
    if (!news.problem.empty()) {
        const std::string who = runs_on(rank, host) ? fmt::format("rank {}", news.rank) : "a rank";
        job_.stuck(fmt::format("{} on {} cannot have MPI: {}", who, spec_.hosts[host].host.name,
                               news.problem));
        return step();
    }
    // A rank that has failed is not to end the others: nor is one that is no good to them.
    if (!spec_.daemon && !spec_.options.keep_going) waits_.mpi_used();
}

void Head::watch_waits() {
    if (!job_.running()) return;
    const auto verdict = waits_.look(Clock::now());
    if (!verdict) return;
    if (!verdict->end) return log::warn("{}", verdict->text);
    job_.stuck(verdict->text);
    step();
}

}  // namespace dtrun::head
