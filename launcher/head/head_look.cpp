// What the head does when a job does not seem to go on: it tells who waits for whom, and where the ranks are before they
// are ended.

#include "base/log.h"
#include "base/text_layout.h"
#include "base/utf8.h"
#include "hostfiles/nodelist.h"
#include "launcher/head/head.h"

#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>

namespace dtrun::head {
namespace {

/// A job that has printed nothing for so long may hang.
constexpr std::chrono::seconds kSilence{30};
/// How long a job that hangs is kept for its stacks.
constexpr std::chrono::milliseconds kHangLookLimit{3'500};
/// For hosts to answer; who waits has pressed Ctrl-C.
constexpr std::chrono::seconds kLookLimit{2};

}  // namespace

void Head::ranks_wait(HostId host, Waits waits) {
    if (!assigner_->is_current(waits.generation)) return;
    // Of a daemon's job only some ranks are ours: what these know by themselves counts, and nothing follows from it.
    if (!assigner_->watches_waits())
        std::erase_if(waits.waits, [](const RankWait& wait) { return !wait.stalled; });
    for (RankWait& wait : waits.waits) {
        const auto where = wait.address.empty() ? host : hosts_.at(wait.address);
        if (wait.rank == kNoRank && where) wait.rank = hosts_.rank_of(*where, wait.pid);
        // Workers that a rank starts may meet in a world of their own.
        if (wait.pid != 0 && !(where && hosts_[*where].ranks.contains(wait.pid)))
            wait.hopeless = false;
    }
    deadlocks_.waits(host, std::move(waits.waits), Clock::now());
    detector_.hasten(std::max(pace(), Pace::calm));  // what follows from it is told at a beat
}

void Head::mpi_news(HostId host, const MpiStatus& news) {
    if (!news.note.empty()) take_note(host, news.note);
    if (!assigner_->is_current(news.generation)) return;
    if (news.spawns) deadlocks_.spawn_refused(news.rank, Clock::now());
    if (!news.note.empty()) return;
    if (news.aborted) return job_.rank_aborts(news.rank);
    if (!news.problem.empty()) {
        const std::string who = news.rank != kNoRank ? fmt::format("rank {}", news.rank) : "a rank";
        job_.end_because(Job::Cause::stuck, fmt::format("{} on {} cannot have MPI: {}", who,
                                                        hosts_.name(host), news.problem));
        return decide();
    }
    // With --keep-going a failed rank does not end the others, and neither does one that left MPI.
    if (!assigner_->watches_waits() || spec_.options.keep_going) return;
    deadlocks_.mpi_used();
    detector_.hasten(Pace::calm);  // what follows from it is told at a beat
}

/// Where there are few hosts what one says is told at once.
void Head::take_note(HostId host, const std::string& note) {
    if (spec_.hosts.size() <= kFewHosts) return log::warn("{}", printable(note));
    if (notes_.add(host, hosts_.name(host), note)) tasks_.spawn(tell_notes_soon());
}

asio::awaitable<void> Head::tell_notes_soon() {
    Timer timer(io_, after(inspect::HostNotes::kPatience));
    const auto [error] = co_await timer.async_wait(use_tuple);
    if (!error) tell_notes();
}

void Head::tell_notes() {
    for (const std::string& line : notes_.take()) log::warn("{}", printable(line));
}

void Head::watch_waits() {
    if (!job_.running()) return;
    tell_stalls();
    if (spec_.options.recovers_itself) return;
    const auto verdict = deadlocks_.look(Clock::now());
    if (!verdict) return;
    if (!verdict->end) {
        if (!spec_.options.debug_rank) log::warn("{}", verdict->text);
        return;
    }
    if (verdict->hangs) return tasks_.spawn(end_hang(verdict->text));
    job_.end_because(Job::Cause::stuck, verdict->text);
    decide();
}

/// Who meets is told after ten seconds already.
void Head::tell_stalls() {
    const Deadline now = Clock::now();
    for (const auto& [wait, over] : stalls_.look(deadlocks_.long_waits(now), now)) {
        if (over) {
            record_.stall_ended(wait);
            continue;
        }
        if (!wait.told && !wait.starting) log::warn("{}", printable(wait.sentence(now)));
        record_.stalled(wait);
    }
}

/// Before ranks are ended that hang, they are looked at, as far as that takes seconds.
asio::awaitable<void> Head::end_hang(std::string why) {
    const std::uint64_t world = worlds_;
    std::vector<std::string> stacks = co_await inspector_.stacks_for_report(kHangLookLimit);
    if (!job_.running() || worlds_ != world) co_return;
    job_.set_stacks(std::move(stacks));
    job_.end_because(Job::Cause::stuck, std::move(why));
    decide();
}

asio::awaitable<void> Head::watch_time_limit() {
    if (!spec_.options.time_limit) co_return;
    Timer timer(io_, *spec_.options.time_limit);
    co_await timer.async_wait(use_tuple);
    if (may_hang()) {
        std::vector<std::string> stacks = co_await inspector_.stacks_for_report(kHangLookLimit);
        if (!job_.running()) co_return;
        job_.set_stacks(std::move(stacks));
    }
    job_.end_because(Job::Cause::time_limit);
    decide();
}

/// When the ranks of a daemon's job have started is not known here, nor whether it is them who are waited for.
bool Head::may_hang() const {
    return job_.running() && !job_.ending() && !spec_.daemon && inspector_.silence() >= kSilence;
}

void Head::interrupted() {
    if (std::exchange(looks_, false)) {
        // Again: who does not want to wait gets what two of them are otherwise.
        end_by(SIGINT);
        return end_by(SIGINT);
    }
    const bool is_quiet = spec_.options.verbosity < log::Level::normal;
    if (asked_to_end_ || is_quiet || !may_hang()) return end_by(SIGINT);
    const double silence = std::chrono::duration<double>(inspector_.silence()).count();
    output_.message(fmt::format(
        "dtrun: nothing was printed for {}: asking the ranks where they are, at most {} "
        "s; Ctrl-C again kills them at once\n",
        duration_text(silence), kLookLimit.count()));
    looks_ = true;
    tasks_.spawn(look_and_end());
}

asio::awaitable<void> Head::look_and_end() {
    const std::vector<std::string> lines = co_await inspector_.stacks_for_report(kLookLimit);
    // Something else may have ended the job meanwhile.
    if (!std::exchange(looks_, false) || job_.ending()) co_return;
    std::string text;
    for (const std::string& line : lines) text += "  " + line + "\n";
    if (!text.empty()) output_.message(text);
    end_by(SIGINT);
}

}  // namespace dtrun::head
