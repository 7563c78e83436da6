#include "launcher/inspect/deadlock_detector.h"

#include "base/milliseconds.h"
#include "base/strings.h"
#include "hostfiles/nodelist.h"
#include "launcher/plan/rank_set.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/rank_messages.h"

#include <fmt/format.h>
#include <algorithm>
#include <ranges>

namespace dtrun::inspect {
namespace {

using std::chrono::milliseconds;

/// How long a wait in vain must last to be certain: news that are under way may end it.
constexpr milliseconds kCertain{1'500};
constexpr milliseconds kWorthTelling{10'000};
/// From then on how long somebody has waited is worth a word.
constexpr milliseconds kLong{60'000};
/// When a refused MPI_Comm_spawn is told again; then after twice as long each time.
constexpr milliseconds kRefusedAgain{60'000};
constexpr std::size_t kThingsMax = 5;  // in a report
constexpr std::size_t kThingsInLineMax = 3;
constexpr std::size_t kNamesMax = 8;

/// The names of waiting ranks, and whether there are several.
struct Who {
    std::string text;  ///< "ranks 0-2", "rank 1 and 2 processes"
    bool several = false;
};

std::string whole_seconds(Clock::duration span) {
    return fmt::format("{} s", std::chrono::duration_cast<std::chrono::seconds>(span).count());
}

std::string rank_numbers(const std::vector<Rank>& ranks) {
    const bool one = ranks.size() == 1;
    return fmt::format("rank{} {}", one ? "" : "s", plan::rank_ranges(ranks));
}

Who who(const std::vector<const RankWait*>& waits) {
    std::set<Rank> known;
    std::size_t unknown = 0;
    for (const RankWait* wait : waits) {
        if (wait->rank == kNoRank)
            ++unknown;
        else
            known.insert(wait->rank);
    }
    std::vector<std::string> parts;
    if (!known.empty()) parts.push_back(rank_numbers({known.begin(), known.end()}));
    if (unknown > 0)
        parts.push_back(fmt::format("{} process{}", unknown, unknown == 1 ? "" : "es"));
    return {join_names(parts), known.size() + unknown > 1};
}

/// Waits for the same, in the order in which things are met first.
std::vector<std::vector<const RankWait*>> by_thing(const std::vector<const RankWait*>& waits) {
    std::vector<std::vector<const RankWait*>> things;
    for (const RankWait* wait : waits) {
        const auto same = std::ranges::find(
            things, wait->what, [](const auto& thing) -> auto& { return thing.front()->what; });
        if (same == things.end())
            things.push_back({wait});
        else
            same->push_back(wait);
    }
    return things;
}

/// "ranks 0-1 wait for this, and rank 2 for that".
/// \param one, several  what the first of them do: "waits", "wait"
std::string who_for_what(const std::vector<const RankWait*>& waits, std::string_view one,
                         std::string_view several) {
    const auto things = by_thing(waits);
    const Who first = who(things.front());
    std::string text = fmt::format("{} {} for {}", first.text, first.several ? several : one,
                                   things.front().front()->what);
    for (std::size_t i = 1; i < std::min(things.size(), kThingsInLineMax); ++i)
        text += fmt::format(", and {} for {}", who(things[i]).text, things[i].front()->what);
    if (things.size() > kThingsInLineMax)
        text += fmt::format(", and others for {} other things", things.size() - kThingsInLineMax);
    return text;
}

/// The libraries that speak it.
std::string_view libraries(MpiWait mpi) {
    switch (mpi) {
        case MpiWait::pmix_client:
        case MpiWait::pmix:
            return "Open MPI (PMIx)";
        case MpiWait::pmi1:
            return "MPICH or Intel MPI (PMI-1)";
        case MpiWait::pmi2:
            return "MPICH or MVAPICH (PMI-2)";
        case MpiWait::none:
            break;
    }
    return "another library";
}

}  // namespace

DeadlockDetector::DeadlockDetector(std::uint32_t ranks, std::function<std::string(Rank)> host_of,
                                   std::optional<milliseconds> limit)
    : ranks_(ranks), host_of_(std::move(host_of)), limit_(limit) {}

void DeadlockDetector::begin(std::uint32_t ranks) {
    ranks_ = ranks;
    waits_.clear();
    ended_.clear();
    mpi_used_ = false;
    left_mpi_.clear();
    spawn_refused_.clear();
    told_ = over_ = false;
}

void DeadlockDetector::waits(HostId host, std::vector<RankWait> waits, Deadline now) {
    if (over_) return;
    std::vector<Waiting>& list = waits_[host];
    const std::vector<Waiting> before = std::exchange(list, {});
    for (RankWait& wait : waits) {
        const milliseconds waited(wait.waited_ms);
        Deadline since = now - waited;
        // How long a wait has lasted tells when a report of it was made, which may come late.
        const auto same = std::ranges::find_if(before, [&wait](const Waiting& last) {
            return last.wait.rank == wait.rank && last.wait.pid == wait.pid &&
                   last.wait.what == wait.what && last.wait.waited_ms <= wait.waited_ms;
        });
        if (same != before.end()) since = std::min(since, same->since);
        list.push_back({std::move(wait), since, since + waited});
    }
}

void DeadlockDetector::rank_ended(Rank rank, std::int64_t pid, MpiUse mpi, Deadline now) {
    ended_[rank] = pid;
    last_ended_ = now;
    if (mpi == MpiUse::none || mpi == MpiUse::initialized) left_mpi_[rank] = mpi;
}

void DeadlockDetector::spawn_refused(Rank rank, Deadline now) {
    if (spawn_refused_.empty()) {
        refused_at_ = now;
        tell_refused_ = kRefusedAgain;
    }
    spawn_refused_.insert(rank);
}

bool DeadlockDetector::is_watching(Deadline now) const {
    if (!ended_.empty() && now - last_ended_ < kWorthTelling) return true;
    const auto is_new = [now](const Waiting& waiting) {
        return waiting.wait.starting || now - waiting.since < kWorthTelling;
    };
    return std::ranges::any_of(waits_, [&is_new](const auto& of_host) {
        return std::ranges::any_of(of_host.second, is_new);
    });
}

bool DeadlockDetector::is_idle() const {
    const auto waits = [](const auto& of_host) { return !of_host.second.empty(); };
    return spawn_refused_.empty() && std::ranges::none_of(waits_, waits);
}

std::vector<const DeadlockDetector::Waiting*> DeadlockDetector::meeting(
    Deadline now, milliseconds at_least) const {
    std::vector<const Waiting*> found;
    for (const auto& [host, list] : waits_)
        for (const Waiting& waiting : list)
            if (waiting.wait.starting && now - waiting.since >= at_least) found.push_back(&waiting);
    return found;
}

std::vector<const RankWait*> DeadlockDetector::pointers(const std::vector<const Waiting*>& list) {
    std::vector<const RankWait*> waits;
    for (const Waiting* waiting : list) waits.push_back(&waiting->wait);
    return waits;
}

/// All of them: one by one with their pids, or many in short.
std::string DeadlockDetector::names(std::vector<Rank> ranks) const {
    if (ranks.size() > kNamesMax) {
        std::vector<std::string> hosts;
        std::set<std::string> known;
        for (const Rank rank : ranks)
            if (std::string host = host_of_(rank); known.insert(host).second)
                hosts.push_back(std::move(host));
        return fmt::format("{} on {}", rank_numbers(ranks), name_hosts(hosts));
    }
    std::vector<std::string> texts;
    for (const Rank rank : ranks) {
        const auto ended = ended_.find(rank);
        const std::string pid =
            ended == ended_.end() ? "" : fmt::format(" (pid {})", ended->second);
        texts.push_back(fmt::format("rank {} on {}{}", rank, host_of_(rank), pid));
    }
    return join_names(texts);
}

/// Names the ranks that do not wait with the others; empty if a waiting process is of unknown rank.
std::string DeadlockDetector::missing(const std::vector<const Waiting*>& meeting) const {
    std::set<Rank> here;
    for (const Waiting* waiting : meeting) {
        if (waiting->wait.rank == kNoRank) return {};
        here.insert(waiting->wait.rank);
    }
    std::vector<Rank> absent;
    for (const Rank rank : all_ranks(ranks_))
        if (!here.contains(rank)) absent.push_back(rank);
    return absent.empty() ? std::string() : names(std::move(absent));
}

/// The verdict that a rank waits for one that the job does not have.
std::optional<std::string> DeadlockDetector::hopeless(
    const std::vector<const Waiting*>& certain) const {
    std::vector<const RankWait*> waits;
    for (const Waiting* waiting : certain)
        if (waiting->wait.hopeless) waits.push_back(&waiting->wait);
    if (waits.empty()) return std::nullopt;
    return fmt::format(
        "{}, which is of a rank that this job of {} does not have; was the program told another "
        "world size?",
        who_for_what(by_thing(waits).front(), "waits", "wait"), ranks_);
}

/// The verdict that every rank has ended or waits, so that none can bring what the others wait for. Ranks that
/// have met and ended within a heartbeat are known to have ended before it is known that nobody waits any more:
/// each host has to say again, some time after the last end, that its ranks wait.
std::optional<std::string> DeadlockDetector::deserted(
    const std::vector<const Waiting*>& certain) const {
    // This is called whenever a rank ends, so it looks at all ranks only if the numbers match.
    if (ended_.empty() || certain.empty() || ended_.size() + certain.size() < ranks_)
        return std::nullopt;
    const auto is_older = [this](const Waiting* waiting) {
        return waiting->told - last_ended_ < kCertain;
    };
    if (std::ranges::any_of(certain, is_older)) return std::nullopt;
    const auto ended_ranks = std::views::keys(ended_);
    std::set<Rank> accounted_for(ended_ranks.begin(), ended_ranks.end());
    for (const Waiting* waiting : certain) accounted_for.insert(waiting->wait.rank);
    if (accounted_for.contains(kNoRank) || accounted_for.size() < ranks_) return std::nullopt;
    return fmt::format("{} ended without having met the others; {}",
                       names({ended_ranks.begin(), ended_ranks.end()}),
                       who_for_what(pointers(certain), "waits", "wait"));
}

/// The verdict that some ranks wait in PMIx for the others, and others in PMI.
std::optional<std::string> DeadlockDetector::two_libraries(
    const std::vector<const Waiting*>& certain) const {
    std::vector<const RankWait*> pmix, pmi;
    std::set<Rank> asked;
    bool pmix_needs_all = false;
    for (const Waiting* waiting : certain) {
        const MpiWait mpi = waiting->wait.mpi;
        if (mpi == MpiWait::none) continue;
        const bool of_pmi = mpi == MpiWait::pmi1 || mpi == MpiWait::pmi2;
        (of_pmi ? pmi : pmix).push_back(&waiting->wait);
        pmix_needs_all |= mpi == MpiWait::pmix;
        asked.insert(waiting->wait.rank);
    }
    if (pmix.empty() || pmi.empty()) return std::nullopt;
    // A program may be a client of PMIx besides its MPI library, and one that is in no fence may still
    // come to the other ones.
    if (asked.size() < pmix.size() + pmi.size()) return std::nullopt;
    if (!pmix_needs_all && asked.size() + ended_.size() < ranks_) return std::nullopt;
    return fmt::format(
        "{} use{} {}, {} {}: all ranks of a job need the same MPI library; see what ldd says of "
        "the programs of {}, and PATH, LD_LIBRARY_PATH and modules there",
        who(pmix).text, who(pmix).several ? "" : "s", libraries(pmix.front()->mpi), who(pmi).text,
        libraries(pmi.front()->mpi), names({pmix.front()->rank, pmi.front()->rank}));
}

/// The other ranks use MPI, and will sooner or later wait there for the one that has ended.
std::optional<std::string> DeadlockDetector::left_mpi() const {
    if (!mpi_used_ || left_mpi_.empty() || ended_.size() == ranks_) return std::nullopt;
    const auto& [rank, use] = *left_mpi_.begin();
    return use == MpiUse::none
               ? names({rank}) + " ended without MPI_Init, which other ranks have called"
               : names({rank}) + " ended without MPI_Finalize, in which the others wait for it";
}

/// The verdict that a rank has waited for `limit`.
std::optional<std::string> DeadlockDetector::late(Deadline now, milliseconds limit,
                                                  std::string_view flag) const {
    const auto late = meeting(now, limit);
    if (late.empty()) return std::nullopt;
    const std::string absent = missing(meeting(now, milliseconds(0)));
    const std::string waited = fmt::format("waited {}{}", in_seconds(limit), flag);
    return fmt::format("{}{}{}", who_for_what(pointers(late), "has " + waited, "have " + waited),
                       absent.empty() ? "" : "; not there: ", absent);
}

/// Why the job is to end: somebody waits for what cannot come.
std::optional<std::string> DeadlockDetector::in_vain(Deadline now) const {
    const auto certain = meeting(now, kCertain);
    if (auto text = hopeless(certain)) return text;
    if (auto text = deserted(certain)) return text;
    if (auto text = two_libraries(certain)) return text;
    return left_mpi();
}

std::optional<std::string> DeadlockDetector::too_late(Deadline now) const {
    return limit_ ? late(now, *limit_, " (--init-timeout)") : std::nullopt;
}

/// What is to be said again of ranks that were refused MPI_Comm_spawn. Some wait for ever for what that was
/// to start, as mpi4py's pool does, and others do without it: nobody can tell from outside, so it ends nothing.
std::optional<std::string> DeadlockDetector::still_runs(Deadline now) {
    std::vector<Rank> running;
    for (const Rank rank : spawn_refused_)
        if (!ended_.contains(rank)) running.push_back(rank);
    if (running.empty() || now < refused_at_ + tell_refused_) return std::nullopt;
    const auto minutes =
        std::chrono::duration_cast<std::chrono::minutes>(now - refused_at_).count();
    while (now >= refused_at_ + tell_refused_) tell_refused_ *= 2;
    const bool several = running.size() > 1;
    return fmt::format(
        "{} {} refused MPI_Comm_spawn {} min ago and still run{}; if nothing goes on, end the "
        "job and start all ranks at once, with -np",
        rank_numbers(running), several ? "were" : "was", minutes, several ? "" : "s");
}

std::optional<DeadlockDetector::Verdict> DeadlockDetector::look(Deadline now) {
    if (over_) return std::nullopt;
    if (auto text = in_vain(now)) {
        over_ = true;
        return Verdict{true, false, std::move(*text)};
    }
    if (auto text = too_late(now)) {
        over_ = true;
        return Verdict{true, true, std::move(*text)};
    }
    if (auto text = still_runs(now)) return Verdict{false, false, std::move(*text)};
    if (told_) return std::nullopt;
    auto text = late(now, kWorthTelling, "");
    if (!text) return std::nullopt;
    told_ = true;
    return Verdict{false, false, std::move(*text)};
}

/// \param counts  whether a wait is one of those that are wanted
template <class Counts>
std::map<std::string, DeadlockDetector::Thing> DeadlockDetector::by_what(Counts counts) const {
    std::map<std::string, Thing> things;
    for (const auto& [host, list] : waits_)
        for (const Waiting& waiting : list) {
            if (!counts(waiting)) continue;
            Thing& thing = things[waiting.wait.what];
            thing.waits.push_back(&waiting.wait);
            thing.since = std::min(thing.since, waiting.since);
        }
    return things;
}

std::vector<std::string> DeadlockDetector::describe(Deadline now) const {
    const auto things = by_what([](const Waiting&) { return true; });
    std::vector<std::string> lines;
    for (const auto& [what, thing] : things) {
        if (lines.size() == kThingsMax) {
            lines.push_back(fmt::format("… and {} more", things.size() - kThingsMax));
            break;
        }
        const auto span = now - thing.since;
        const std::string age = span >= kLong ? ", for " + whole_seconds(span) : "";
        lines.push_back(fmt::format("{}: {}{}", who(thing.waits).text, what, age));
    }
    if (!spawn_refused_.empty())
        lines.push_back(
            fmt::format("{}: refused MPI_Comm_spawn, perhaps for what that was to start",
                        rank_numbers({spawn_refused_.begin(), spawn_refused_.end()})));
    return lines;
}

std::vector<LongWait> DeadlockDetector::long_waits(Deadline now) const {
    std::vector<LongWait> found;
    const auto is_long = [now](const Waiting& waiting) {
        return waiting.wait.stalled || now - waiting.since >= kLong;
    };
    for (const auto& [what, thing] : by_what(is_long)) {
        const auto has = [&thing](bool RankWait::*flag) {
            return std::ranges::any_of(thing.waits,
                                       [flag](const RankWait* wait) { return wait->*flag; });
        };
        Who waiting = who(thing.waits);
        found.push_back({.what = what,
                         .who = std::move(waiting.text),
                         .several = waiting.several,
                         .since = thing.since,
                         .starting = has(&RankWait::starting),
                         .stalled = has(&RankWait::stalled),
                         .told = has(&RankWait::told)});
    }
    return found;
}

std::string LongWait::sentence(Deadline now) const {
    if (now - since < kWorthTelling)
        return fmt::format("{} wait{} for {}", who, several ? "" : "s", what);
    return fmt::format("{} {} waited {} for {}", who, several ? "have" : "has",
                       whole_seconds(now - since), what);
}

}  // namespace dtrun::inspect
