#include "tests/simulation/head_job.h"

#include "launcher/plan/exit_code.h"
#include "tests/simulation/drawn_job.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <csignal>
#include <numeric>

namespace dtrun::loopback {
namespace {

using std::chrono::seconds;

/// After the last fault a job is whole again by then: hosts were left alone, logged in to, and waited for.
constexpr seconds kWholeWithin{100};
/// Hung processes are waited for so long (JobPolicy::rejoin_timeout).
constexpr seconds kHungWithin{310};
constexpr seconds kEndsWithin{40};
constexpr milliseconds kNewsTakes{700};  ///< from a rank's end until nobody acts on what was before
constexpr milliseconds kChangeTakes{
    3'000};  ///< until a world has begun, of whose beginning all were told before

void require(bool holds, const std::string& what) {
    if (!holds) throw Broken(what);
}

/// All that run are in one world, each knows its place there, and nobody is missing.
/// \return the world's generation
std::uint64_t check_world(const std::vector<Ending::Seen>& look, std::size_t least,
                          std::size_t most) {
    require(!look.empty(), "nobody runs any more");
    std::set<Rank> ranks;
    const std::uint64_t generation = look.front().process.generation;
    for (const Ending::Seen& seen : look) {
        const auto& process = seen.process;
        require(process.has_place,
                fmt::format("rank {} on h{} still waits for its place", process.rank, seen.host));
        require(process.generation == generation,
                fmt::format("worlds {} and {} run at once", generation, process.generation));
        require(is_below(process.rank, look.size()) && ranks.insert(process.rank).second,
                fmt::format("rank {} runs twice, or out of {}", process.rank, look.size()));
    }
    require(
        least <= look.size() && look.size() <= most,
        fmt::format("{} ranks run, and there are slots for {} to {}", look.size(), least, most));
    return generation;
}

/// All ranks of the last world have ended well, and so has the job.
void check_well(const Ending& ending, std::uint64_t generation, std::size_t size) {
    require(ending.code == 0, fmt::format("it ends with {}", ending.code));
    const auto well = std::ranges::count_if(ending.ends, [generation](const Ending::Seen& end) {
        return end.process.generation == generation && end.is_well();
    });
    require(static_cast<std::size_t>(well) == size,
            fmt::format("{} of {} ranks have ended well, and the job with 0", well, size));
}

/// Nobody of it has failed.
void check_last_world(const Ending& ending) {
    std::uint64_t last = 0;
    for (const Ending::Seen& end : ending.ends)
        if (end.process.had_place) last = std::max(last, end.process.generation);
    for (const Ending::Seen& end : ending.ends)
        require(end.process.generation != last || !end.process.had_place || end.is_well(),
                fmt::format("rank {} of the last world has not ended well, and the job with 0",
                            end.process.rank));
}

void check_time(const Ending& ending, milliseconds limit) {
    require(ending.took < limit, fmt::format("it has not ended before {} ms", limit.count()));
    require(ending.left == 0, fmt::format("{} ranks are left behind", ending.left));
}

RankScript lasting() {
    RankScript does;
    does.life = seconds(1);
    return does;
}

// ---- Kinds of jobs -----------------------------------------------------------------------------------

/// The job has every rank that it may have at that time, and ends well when it is told to.
HeadJob becomes_whole(Drawing& job, const char* kind, milliseconds when) {
    job.script.looks = {when};
    job.let_all_end(when + seconds(2));
    const std::size_t full = job.full_size();
    const std::size_t least =
        job.elastic.spares > 0 ? static_cast<std::size_t>(*job.elastic.ranks_min) : full;
    return job.done(kind, [=](const Ending& ending) {
        require(ending.looks.size() == 1, fmt::format("it ends early, with {}", ending.code));
        const auto generation = check_world(ending.looks[0], least, full);
        check_well(ending, generation, ending.looks[0].size());
        check_time(ending, when + kEndsWithin);
    });
}

/// Hosts and ranks are lost, come and go; when that is over, the job is whole again, and ends well.
HeadJob draw_faulty(std::mt19937& random, bool living) {
    Drawing job(random);
    job.draw_hosts(1, 4);
    job.draw_policy(living);
    job.draw_ranks(living, lasting());
    if (job.chance(30)) job.end_slowly();
    milliseconds when = job.span(seconds(2), seconds(6));
    for (int left = 1 + job.draw(10); left > 0; --left) {
        when += job.chance(25) ? job.span(seconds(0), seconds(15))
                               : job.span(seconds(0), milliseconds(1'500));
        job.fault(when, living);
    }
    return becomes_whole(job, living ? "living" : "restarting", when + kWholeWithin);
}

/// Hosts come, one after the other, and each of them may be lost, or taken back, before it has joined the others. The
/// others hear of no loss: one that hangs is noticed because it does not ask for its place when it is told of newcomers,
/// and others do.
HeadJob draw_newcomers(std::mt19937& random) {
    Drawing job(random);
    const bool living = job.chance(80);
    job.draw_hosts(2, 4, false);
    job.draw_policy(living);
    job.draw_ranks(living, lasting());
    for (auto& [rank, does] : job.script.ranks)
        does.import = job.span(milliseconds(100), seconds(6));
    if (job.chance(40)) job.end_slowly();
    const bool hangs = living && job.world_size > 1 && job.chance(50);
    if (hangs) {
        const auto rank = static_cast<std::uint32_t>(job.draw(job.world_size));
        job.script.attempts[{1, rank}] = job.script.ranks[rank];
        job.script.attempts[{1, rank}].never_asks = true;
    }
    milliseconds comes(0);
    for (std::uint32_t i = 1; i < job.hosts(); ++i) {
        const HostId at{i};
        comes += job.span(seconds(1), seconds(8));
        job.script.hosts[at].listed = comes;
        if (hangs || job.chance(20)) continue;
        const milliseconds when = comes + job.span(milliseconds(500), seconds(8));
        switch (job.draw(4)) {
            case 0:
                job.lose(when, at);
                break;
            case 1:
                job.lose_for_good(when, at);
                break;
            case 2:
                job.leave(when, at);
                break;
            default:
                job.kill_many(when, at);
        }
    }
    const milliseconds last = comes + seconds(16);
    return becomes_whole(job, "newcomers",
                         last + kWholeWithin + (hangs ? kHungWithin : seconds(0)));
}

/// Processes of a host are killed at once, while others are being started in the places of those before.
HeadJob draw_killed(std::mt19937& random) {
    Drawing job(random);
    job.draw_hosts(1, 2, false);
    for (int& slots : job.script.ranks_on_host) slots = 3;
    job.draw_policy(true);
    if (job.chance(50)) job.elastic.refill = Refill::wait;
    job.draw_ranks(true, lasting());
    for (auto& [rank, does] : job.script.ranks) does.import = job.span(seconds(1), seconds(3));
    milliseconds when = seconds(10);
    for (int left = 3; left > 0; --left, when += seconds(40)) {
        const auto first = static_cast<std::uint32_t>(job.draw(3));
        const milliseconds then = when + job.span(milliseconds(200), milliseconds(1'500));
        job.script.kills.push_back({when, HostId{0}, SlotIndex{first}});
        for (std::uint32_t next = 1; next <= 3; ++next)
            if (job.chance(70))
                job.script.kills.push_back({then, HostId{0}, SlotIndex{(first + next) % 3}});
    }
    return becomes_whole(job, "killed", when + kWholeWithin);
}

/// The first end after which nobody is to be disturbed. Where all ranks of a world are being ended, one that ends well at
/// that moment starts again with the others.
std::vector<Ending::Seen>::const_iterator first_done(const std::vector<Ending::Seen>& ends) {
    return std::ranges::find_if(ends, [&ends](const Ending::Seen& well) {
        return well.is_well() && std::ranges::none_of(ends, [&well](const Ending::Seen& other) {
                   return other.sent_signal != 0 && other.process.had_place &&
                          other.process.generation == well.process.generation &&
                          other.when <= well.when + kNewsTakes;
               });
    });
}

/// Ranks end well, one after the other, while hosts come: those that are left are not disturbed.
HeadJob draw_finishing(std::mt19937& random) {
    Drawing job(random);
    const bool living = job.chance(70);
    job.draw_hosts(1, 4);
    job.draw_policy(living);
    job.draw_ranks(living, lasting());
    for (auto& [rank, does] : job.script.ranks) does.import = job.span(milliseconds(0), seconds(8));
    milliseconds last(0);
    const milliseconds around = job.span(seconds(5), seconds(15));
    for (auto& [rank, does] : job.script.ranks) {
        does.until = job.span(around, around + seconds(10));
        last = std::max(last, does.until);
    }
    if (job.chance(50)) job.script.ranks[1].until = around - seconds(3);
    for (int left = 1 + job.draw(3); left > 0; --left) {
        const HostId at = job.host();
        const milliseconds when = job.span(around - seconds(5), around + seconds(8));
        if (!job.script.hosts[at].listed) job.list(when, at, 4 + job.draw(2));
    }
    const bool has_kills = job.chance(40);
    for (int left = has_kills ? 1 + job.draw(3) : 0; left > 0; --left) {
        const HostId at = job.host();
        job.script.kills.push_back(
            {job.span(around - seconds(3), around + seconds(9)), at, job.place(at)});
    }
    return job.done("finishing", [=](const Ending& ending) {
        require(ending.code == 0, fmt::format("it ends with {}", ending.code));
        check_time(ending, last + kEndsWithin);
        check_last_world(ending);
        if (has_kills) return;
        const auto first = first_done(ending.ends);
        require(first != ending.ends.end(), "no rank has ended well");
        require(ending.last_place <= first->when + kChangeTakes,
                "ranks get other places, after another has ended well");
        for (auto end = first; end != ending.ends.end(); ++end)
            require(end->sent_signal == 0 || end->when <= first->when + kNewsTakes ||
                        !end->process.had_place,
                    fmt::format("rank {} of world {} is ended, after another has ended well",
                                end->process.rank, end->process.generation));
    });
}

/// Of two ranks, one ends well about when the other is killed, before it could hear of that.
HeadJob draw_crossing(std::mt19937& random) {
    Drawing job(random);
    job.draw_hosts(2, 2, false);
    for (int& slots : job.script.ranks_on_host) slots = 1;
    for (const HostId host : {HostId{0}, HostId{1}})
        job.script.hosts[host].slow = job.span(milliseconds(50), milliseconds(200));
    job.world_size = 2;
    job.elastic = {.ranks_min = 1, .cooldown_min = kCooldownMin, .cooldown_max = kCooldownMax};
    job.draw_ranks(true, lasting());
    const milliseconds ends = job.span(seconds(6), seconds(10));
    const milliseconds last = ends + seconds(30);
    job.let_all_end(last);
    job.script.ranks[1].until = ends;
    const milliseconds killed = job.span(ends - milliseconds(300), ends + milliseconds(50));
    job.script.kills.push_back({killed, HostId{0}, SlotIndex{0}});
    return job.done("crossing", [=](const Ending& ending) {
        require(ending.code == 0, fmt::format("it ends with {}", ending.code));
        check_time(ending, last + kEndsWithin);
        check_last_world(ending);
    });
}

/// Ranks are warned before they start again, and have the time that they were promised.
HeadJob draw_warned(std::mt19937& random) {
    Drawing job(random);
    job.draw_hosts(2, 4);
    job.draw_policy(false);
    job.elastic.warn_time = job.span(seconds(3), seconds(10));
    job.elastic.warn_signal = kWarnSignal;
    job.draw_ranks(false, lasting());
    for (auto& [rank, does] : job.script.ranks)
        does.saves = job.span(milliseconds(0), job.elastic.warn_time - seconds(1));
    milliseconds when = seconds(4);
    for (int left = 1 + job.draw(4); left > 0; --left) {
        when += job.span(milliseconds(0), seconds(12));
        const HostId at = job.host();
        if (job.script.hosts[at].listed || std::to_underlying(at) == 0) continue;
        if (job.chance(40))
            job.delist(when, at);
        else
            job.list(when, at, 1 + job.draw(4));
    }
    HeadJob made = becomes_whole(job, "warned", when + kWholeWithin);
    made.judge = [judge = std::move(made.judge)](const Ending& ending) {
        require(ending.saves_cut_short == 0,
                fmt::format("{} ranks were ended while they saved", ending.saves_cut_short));
        judge(ending);
    };
    return made;
}

/// From a moment on the program fails wherever it runs: it is not started for ever, and its code is told.
HeadJob draw_broken(std::mt19937& random) {
    Drawing job(random);
    const bool living = job.chance(50);
    job.draw_hosts(1, 3);
    job.draw_policy(false);
    job.elastic.spares = 0;
    if (job.chance(50)) {  // there are slots left to try
        job.elastic.ranks_max = job.world_size;
        job.elastic.allowed.clear();
    }
    const milliseconds breaks = job.span(seconds(15), seconds(40));
    RankScript fails;
    fails.code = 9;
    fails.life = job.span(milliseconds(100), seconds(3));
    job.draw_ranks(living, fails);
    for (auto& [rank, does] : job.script.ranks)
        does.until = breaks + job.span(milliseconds(0), seconds(5));
    for (int left = job.draw(3); left > 0; --left)
        job.lose(job.span(seconds(2), breaks), job.host());
    if (job.chance(30)) job.elastic.refill = job.chance(70) ? Refill::never : Refill::wait;
    if (job.chance(30))  // the same rank fails each time before the others do
        for (auto& [rank, does] : job.script.ranks)
            if (rank != 0) does.life += seconds(8);
    return job.done("broken", [=](const Ending& ending) {
        require(ending.code == 9,
                fmt::format("its ranks fail with 9, and it ends with {}", ending.code));
        check_time(ending, breaks + kWholeWithin);
    });
}

/// Ranks may fail so often, and not more often, whatever hosts have been lost before.
HeadJob draw_limited(std::mt19937& random) {
    Drawing job(random);
    const bool living = job.chance(60);
    job.draw_hosts(2, 3, false);
    for (int& slots : job.script.ranks_on_host) slots = 3;
    job.draw_policy(false);
    job.world_size = 2;
    job.elastic = {.ranks_min = 2, .cooldown_min = kCooldownMin, .cooldown_max = kCooldownMax};
    const auto limit = static_cast<std::size_t>(job.draw(3));
    job.elastic.rank_failure_limit = static_cast<int>(limit);
    job.draw_ranks(living, lasting());
    for (auto& [rank, does] : job.script.ranks) does.import = milliseconds(500);
    milliseconds when = seconds(15);
    for (int losses = job.draw(3); losses >= 0; --losses) {
        if (job.chance(50))  // its agent hears nothing, and ends its ranks
            job.stall(when, HostId{1}, Way::to_host, seconds(6));
        else
            job.lose(when, HostId{1});
        when += seconds(45);
    }
    const std::size_t kills = limit + static_cast<std::size_t>(job.draw(2));
    for (std::uint32_t kill = 0; kill < kills; ++kill) {
        job.script.kills.push_back({when, HostId{0}, SlotIndex{kill % 3}});
        when += seconds(10);
    }
    job.let_all_end(when + seconds(5));
    return job.done("limited", [=](const Ending& ending) {
        require((ending.code != 0) == (kills > limit),
                fmt::format("{} ranks have failed, {} may, and it ends with {}", kills, limit,
                            ending.code));
        check_time(ending, when + kWholeWithin);
    });
}

/// A host that is lost again and again, each time after a minute and more, is used again as soon as the first time.
HeadJob draw_patient(std::mt19937& random) {
    Drawing job(random);
    const bool living = job.chance(50);
    job.draw_hosts(2, 2, false);
    job.world_size = 1;
    job.elastic = {.ranks_min = 1, .cooldown_min = kCooldownMin, .cooldown_max = seconds(300)};
    job.draw_ranks(living, lasting());
    milliseconds when = seconds(80);
    for (int losses = 0; losses < 4; ++losses) {
        job.lose(when, HostId{1});
        job.script.looks.push_back(when + seconds(45));
        when += seconds(130);
    }
    job.let_all_end(when);
    const std::size_t full = job.full_size();
    return job.done("patient", [=](const Ending& ending) {
        for (const auto& look : ending.looks) check_world(look, full, full);
        require(ending.code == 0, fmt::format("it ends with {}", ending.code));
        check_time(ending, when + kEndsWithin);
    });
}

/// A job that is not elastic: a failure is told, unless it was made up for, and ends nobody whom it must not.
HeadJob draw_fixed(std::mt19937& random) {
    Drawing job(random);
    job.draw_hosts(1, 3, false);
    const int ranks =
        std::accumulate(job.script.ranks_on_host.begin(), job.script.ranks_on_host.end(), 0);
    job.draw_ranks(false, lasting());
    for (auto& [rank, does] : job.script.ranks) does.until = job.span(seconds(1), seconds(8));
    const bool goes_on = job.chance(50);
    const int failing = job.chance(60) ? job.draw(ranks) : -1;
    const auto failures = static_cast<std::uint64_t>(1 + job.draw(3));
    const int restarts = goes_on ? 0 : job.draw(3);
    for (std::uint64_t attempt = 1; failing >= 0 && attempt <= failures; ++attempt) {
        const auto rank = static_cast<std::uint32_t>(failing);
        RankScript& does = job.script.attempts[{attempt, rank}] = job.script.ranks[rank];
        does.code = 9;
        does.until = job.span(milliseconds(100), milliseconds(900));
    }
    const bool loses = job.hosts() > 1 && job.chance(30);
    if (loses) job.script.happenings.push_back({milliseconds(500), HostId{1}, Mishap::cut_off});
    const bool fails = failing >= 0 && (goes_on || failures > static_cast<unsigned>(restarts));
    const auto lost = static_cast<std::size_t>(loses ? job.script.ranks_on_host[1] : 0);
    HeadJob made = job.done("fixed", [=](const Ending& ending) {
        check_time(ending, seconds(40));
        require((ending.code != 0) == (fails || loses),
                fmt::format("it ends with {}", ending.code));
        require(!fails || loses || ending.code == 9, "its failed rank's code is not told");
        const auto well =
            static_cast<std::size_t>(std::ranges::count_if(ending.ends, &Ending::Seen::is_well));
        require(!goes_on || well + lost + (failing >= 0 ? 1 : 0) >= static_cast<std::size_t>(ranks),
                fmt::format("{} of {} ranks have ended well", well, ranks));
    });
    made.script.options = [goes_on, restarts](plan::Options& options) {
        options.keep_going = options.recovers_itself = goes_on;
        options.max_restarts = restarts;
    };
    return made;
}

/// Whatever goes on, a user ends the job, by a signal or two, or its time is over: nothing is started from then on, nothing
/// is left, and the code says who ended it.
HeadJob draw_stopped(std::mt19937& random) {
    Drawing job(random);
    const bool living = job.chance(50);
    job.draw_hosts(1, 4);
    job.draw_policy(living);
    job.draw_ranks(living, lasting());
    if (job.chance(50)) job.end_slowly();
    for (auto& [rank, does] : job.script.ranks) does.ignores_signals = job.chance(10);
    const milliseconds stop = job.span(milliseconds(0), seconds(40));
    for (int left = job.draw(6); left > 0; --left)
        job.fault(job.span(std::max(milliseconds(0), stop - seconds(15)), stop + seconds(8)),
                  living);
    job.let_all_end(stop + seconds(600));
    const bool late = job.chance(25);  // ended by --timeout
    const int signal = std::array{SIGINT, SIGTERM, SIGHUP}[job.draw(3)];
    if (!late) job.script.signals.emplace_back(stop, signal);
    if (!late && job.chance(40))
        job.script.signals.emplace_back(stop + job.span(milliseconds(1), seconds(4)), SIGINT);
    const bool is_cut = std::ranges::any_of(job.script.happenings, [](const auto& happening) {
        return happening.what == Mishap::stalls;
    });
    const milliseconds grace = job.span(milliseconds(0), seconds(5));
    HeadJob made = job.done("stopped", [=](const Ending& ending) {
        const int code = late ? plan::kExitTimeout : 128 + signal;
        require(ending.code == code,
                fmt::format("it is to end with {}, and ends with {}", code, ending.code));
        check_time(ending, stop + kEndsWithin);
        // A start may be on its way to a host whose network rests.
        require(is_cut || ending.last_start <= stop + kNewsTakes,
                fmt::format("a rank is started {} ms after the job was to end",
                            (ending.last_start - stop).count()));
    });
    made.script.options = [asked = made.script.options, late, stop, grace](auto& options) {
        asked(options);
        options.grace = grace;
        if (late) options.time_limit = stop;
    };
    return made;
}

using Kind = HeadJob (*)(std::mt19937&);
constexpr Kind kKinds[] = {
    [](std::mt19937& random) { return draw_faulty(random, true); },
    [](std::mt19937& random) { return draw_faulty(random, false); },
    draw_newcomers,
    draw_killed,
    draw_finishing,
    draw_crossing,
    draw_warned,
    draw_broken,
    draw_limited,
    draw_patient,
    draw_fixed,
    draw_stopped,
};

}  // namespace

std::size_t head_job_kinds() {
    return std::size(kKinds);
}

HeadJob draw_head_job(std::size_t kind, std::mt19937& random) {
    return kKinds[kind % std::size(kKinds)](random);
}

HeadJobs play_head_jobs(std::uint32_t seed, std::size_t jobs) {
    HeadJobs result;
    std::mt19937 random(seed);
    for (std::size_t number = 0; number < jobs; ++number) {
        const HeadJob job = draw_head_job(number, random);
        const auto fails = [&](const std::string& what, const std::string& story) {
            throw Broken(fmt::format("job {}, {}: {}\n{}", number, job.kind, what, story));
        };
        Ending ending;
        try {
            ending = simulate(job.script, static_cast<std::uint32_t>(random()));
            job.judge(ending);
        } catch (const Broken& broken) {
            std::string story = ending.shown;
            for (const std::string& line : ending.log) story += line + "\n";
            fails(broken.what(), story);
        } catch (const std::runtime_error& hangs) {
            fails(hangs.what(), "");
        }
        ++result.jobs;
        result.worlds += std::max(ending.met.size(), ending.started.size());
        result.ends += ending.ends.size();
        for (const std::string& line : ending.log)
            result.trace = result.trace * 31 + std::hash<std::string>()(line);
    }
    return result;
}

}  // namespace dtrun::loopback
