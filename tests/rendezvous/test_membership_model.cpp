// Jobs whose processes live on: every order of a few events, at each step on the way from one world to the next.
#include "tests/rendezvous/membership_support.h"

#include <cstdlib>
#include <deque>
#include <map>
#include <set>

namespace dtrun::membership {

namespace {

using Where = std::pair<HostId, SlotIndex>;

/// How far a process is, and what will come of it next.
enum class Is {
    plain,     ///< it has a rank, and cannot get another
    prepared,  ///< started for the coming world: it will be gated
    gated,
    forming,  ///< it meets the others: it will be settled
    settled,
    asked,    ///< it has been told, or a collective has failed: it will ask for a place
    waiting,  ///< for a place
    ending,   ///< it was told to end: it will
};

bool has_rank(Is is) {
    return is != Is::prepared && is != Is::gated && is != Is::ending;
}

/// What a host sends to the head, which gets it later, in this order.
struct Mail {
    enum class Kind { ended, said, ready_to_commit, paused, left } kind{};
    SlotIndex place{};
    Membership::RankEnd end{};
    RejoinState state{};
    std::uint64_t number = 0;
};

/// What can happen in a model.
struct Kinds {
    bool killed = false;   ///< any process
    bool well = false;     ///< any process ends with 0
    bool lost = false;     ///< any host
    bool listed = false;   ///< hosts go, and come back
    bool fails = false;    ///< a collective, of one process that cannot say why
    bool deaf = false;     ///< a process does not go on, nor ask when it is told to
    bool becomes = false;  ///< processes that could not get another place now can
    bool last_mail_first = false;
};

/// A job with what its hosts and processes know.
struct KeepModel {
    Membership job;
    Kinds kinds{};
    std::uint32_t hosts = 4;
    bool is_plain = false;  ///< processes cannot get another place
    bool has_signal = false;
    std::uint32_t ranks_min = 1;
    Deadline now = kStart;
    std::set<HostId> up{}, dialled{}, unlisted{};
    std::map<Where, Is> processes{};
    std::set<Where> deaf{};
    std::map<HostId, std::deque<Mail>> mail{};
    std::uint64_t pausing = 0;
    // What the head has heard of its world.
    bool one_is_done = false, one_is_missing = false, were_told = false;
    bool is_finishing = false;  ///< ranks have ended well, and all others go on
    bool is_warned = false;
    bool is_incomplete = false;  ///< who is not settled in this world will never be
    bool is_over = false;
    std::string story{};  ///< for a person, when something is wrong

    void note(const char* what, HostId host) { story += fmt::format("{} {}, ", what, host); }

    void lose_processes(HostId host) {
        std::erase_if(processes, [host](const auto& each) { return each.first.first == host; });
        std::erase_if(deaf, [host](const Where& where) { return where.first == host; });
    }

    void ask(const Where& where) {
        Is& is = processes.at(where);
        if (is == Is::settled && !deaf.contains(where)) is = Is::asked;
    }
    void all_ask() {
        for (const auto& [where, is] : processes) ask(where);
    }

    /// Every place is given once, and to a process that waits for it, or whose end is not known yet.
    void begin(const std::vector<RankAssignment>& world) {
        CHECK(pausing == 0);
        CHECK(world.size() >= ranks_min);
        is_incomplete = false;
        std::map<Where, Is> seated;
        std::map<HostId, std::uint32_t> local;
        const bool all_fresh = std::ranges::all_of(world, &RankAssignment::fresh);
        const auto is_old = [this](const RankAssignment& assigned) {
            const auto found = processes.find({assigned.host, assigned.rank.place});
            return found != processes.end() && found->second == Is::waiting;
        };
        if (std::ranges::any_of(world, is_old))
            CHECK((is_old(world.front()) || is_told({world.front().host, SlotIndex{0}})));
        if (is_finishing && !all_fresh)
            for (const RankAssignment& assigned : world)
                CHECK((is_old(assigned) || is_told({assigned.host, assigned.rank.place})));
        for (std::size_t i = 0; i < world.size(); ++i) {
            const RankAssignment& assigned = world[i];
            const Where where{assigned.host, assigned.rank.place};
            CHECK(up.contains(assigned.host));
            CHECK(std::to_underlying(assigned.rank.rank) == i);
            CHECK(assigned.rank.local_rank == local[assigned.host]++);
            CHECK((i == 0 || world[i - 1].host == assigned.host || local[assigned.host] == 1));
            const auto before = processes.find(where);
            const bool runs = before != processes.end();
            if (assigned.fresh) {
                CHECK_FALSE(runs);
                seated.emplace(where, is_plain ? Is::plain : Is::forming);
            } else if (runs) {
                CHECK((before->second == Is::waiting || before->second == Is::gated));
                seated.emplace(where, Is::forming);
            } else {
                CHECK(is_told(where));
                is_incomplete = true;
            }
            if (runs) processes.erase(before);
        }
        for (auto& [where, is] : processes)
            CHECK((is == Is::ending || job.is_leaving(where.first)));
        processes.merge(seated);
        one_is_done = one_is_missing = were_told = is_warned = false;
        if (all_fresh) is_finishing = false;
    }

    /// Whether the end of a process there is on its way.
    bool is_told(const Where& where) {
        return std::ranges::any_of(mail[where.first], [&where](const Mail& each) {
            return each.kind == Mail::Kind::ended && each.place == where.second;
        });
    }

    void end(Where where, bool well, const char* why) {
        const Is is = processes.at(where);
        note(well ? "well" : why, where.first);
        processes.erase(where);
        deaf.erase(where);
        mail[where.first].push_back(
            {.kind = Mail::Kind::ended, .place = where.second, .end = {.well = well, .why = why}});
        if (is == Is::forming) is_incomplete = true;
        if (has_rank(is) && !well) all_ask();
    }

    void note_orders(const Membership::Orders& orders) {
        for (const auto& [order, word] : {std::pair(orders.pause.has_value(), "PAUSE "),
                                          {orders.warn.has_value(), "WARN "},
                                          {orders.reset_connections, "RESET "},
                                          {!orders.kill.empty(), "KILL "},
                                          {orders.prepare.has_value(), "PREPARE "},
                                          {orders.notify, "NOTIFY "},
                                          {orders.query_commit.has_value(), "ROLL "},
                                          {orders.begin.has_value(), "BEGIN "},
                                          {!orders.release.empty(), "RELEASE "},
                                          {orders.ended.has_value(), "END "}})
            if (order) story += word;
    }

    void obey() {
        auto orders = job.take_orders();
        note_orders(orders);
        INFO(story);
        for (const HostId host : orders.connect) dialled.insert(host);
        if (orders.pause) {
            const bool any = std::ranges::any_of(
                processes, [](const auto& each) { return has_rank(each.second); });
            if (is_finishing)
                CHECK((one_is_missing || (any && (ranks_min > 1 || is_incomplete || kinds.fails))));
            pausing = orders.pause->generation;
            for (const HostId host : up) {
                lose_processes(host);
                mail[host].push_back({.kind = Mail::Kind::paused, .number = pausing});
            }
        }
        if (is_finishing) CHECK_FALSE((orders.notify || orders.warn || orders.prepare));
        if (orders.warn) were_told = is_warned = true;
        if (orders.reset_connections || orders.notify) all_ask();
        if (orders.notify) were_told = true;
        for (const Where& where : orders.kill) {
            CHECK(up.contains(where.first));
            CHECK_FALSE(job.is_leaving(where.first));
            const auto found = processes.find(where);
            if (found == processes.end()) {
                mail[where.first].push_back({.kind = Mail::Kind::ended,
                                             .place = where.second,
                                             .end = {.why = "none", .was_none = true}});
                continue;
            }
            if (has_rank(found->second) && !orders.begin) one_is_missing = true;
            found->second = Is::ending;
        }
        if (orders.prepare)
            for (const RankAssignment& assigned : *orders.prepare)
                if (assigned.fresh)
                    CHECK(processes.emplace(Where{assigned.host, assigned.rank.place}, Is::prepared)
                              .second);
        if (orders.query_commit)
            for (const HostId host : up)
                mail[host].push_back(
                    {.kind = Mail::Kind::ready_to_commit, .number = *orders.query_commit});
        if (orders.begin) {
            pausing = 0;
            begin(*orders.begin);
        }
        for (const HostId host : orders.release) {
            CHECK(up.erase(host) == 1);
            lose_processes(host);
            mail[host].push_back({.kind = Mail::Kind::left});
        }
        if (orders.ended) check_end(*orders.ended);
    }

    /// All have ended well; or some have, and all others ask for a world that nobody has told them of.
    void check_end(const Membership::End& ended) {
        is_over = true;
        CHECK(ended.cause == Cause::finished);
        CHECK(one_is_done);
        CHECK_FALSE(one_is_missing);
        for (const auto& [where, is] : processes)
            if (has_rank(is)) CHECK((is == Is::waiting && !were_told));
    }

    void deliver(HostId host) {
        const Mail letter = mail[host].front();
        mail[host].pop_front();
        note("<", host);
        switch (letter.kind) {
            case Mail::Kind::ended: {
                const auto meaning = job.rank_ended(host, letter.place, letter.end, now);
                if (meaning == Membership::Meaning::nothing) break;
                if (letter.end.well && !(is_warned && has_signal)) {
                    CHECK(meaning == Membership::Meaning::well);
                    one_is_done = is_finishing = true;
                } else {
                    one_is_missing = true;
                }
                break;
            }
            case Mail::Kind::said:
                if (letter.state == RejoinState::rendezvoused)
                    job.process_says(host, letter.place, RejoinState::supports_rejoin, now);
                job.process_says(host, letter.place, letter.state, now);
                break;
            case Mail::Kind::ready_to_commit:
                job.host_ready_to_commit(host, letter.number, now);
                break;
            case Mail::Kind::paused:
                job.host_paused(host, letter.number, now);
                break;
            case Mail::Kind::left:
                job.host_left(host, now);
                break;
        }
    }

    // What may happen.
    void lose(HostId host) {
        const auto has = [this, host](const Where& where) {
            const auto found = processes.find(where);
            return where.first == host && found != processes.end() && has_rank(found->second);
        };
        const bool had_ranks = has({host, SlotIndex{0}}) || is_told({host, SlotIndex{0}});
        note("lost", host);
        up.erase(host), mail.erase(host);
        lose_processes(host);
        if (had_ranks) one_is_missing = true;
        job.host_lost(host, "lost", now);
    }
    void list(HostId host) {
        note("list", host);
        if (unlisted.erase(host) > 0)
            job.host_listed(host, 1, now);
        else
            unlisted.insert(host), job.host_delisted(host, now);
    }
    void fail(const Where& where) {
        note("fails", where.first);
        ask(where);
    }
    void become() {
        story += "become, ";
        for (auto& [where, is] : processes)
            if (is == Is::plain) is = Is::forming;
    }

    void say(Where where, Is is, RejoinState state) {
        processes[where] = is;
        mail[where.first].push_back(
            {.kind = Mail::Kind::said, .place = where.second, .state = state});
    }

    /// The next step of a process.
    /// \return whether any has one
    bool step() {
        for (const auto& [where, is] : processes) {
            if (is == Is::ending) return end(where, false, "told to end"), true;
            if (deaf.contains(where)) continue;
            if (is == Is::prepared) return say(where, Is::gated, RejoinState::held_at_start), true;
            if (is == Is::forming && !is_incomplete)
                return say(where, Is::settled, RejoinState::rendezvoused), true;
            if (is == Is::asked) return say(where, Is::waiting, RejoinState::wants_rank), true;
        }
        return false;
    }

    /// The next answer to what has been asked; time passes when there is none.
    /// \return whether anything is left to happen
    bool go_on() {
        if (is_over) return false;
        std::vector<HostId> senders;
        for (const auto& [host, letters] : mail)
            if (!letters.empty()) senders.push_back(host);
        if (!senders.empty()) {
            deliver(kinds.last_mail_first ? senders.back() : senders.front());
        } else if (!dialled.empty()) {
            const HostId host = *dialled.begin();
            dialled.erase(dialled.begin());
            up.insert(host);
            job.host_ready(host, now);
        } else if (step()) {
        } else if (const Deadline due = job.next_deadline(); due != Deadline::max()) {
            job.tick(now = std::max(now, due));
        } else if (is_finishing && job.phase() == Phase::running) {
            CHECK_FALSE(processes.empty());
            for (const auto& [where, is] : processes)
                if (has_rank(is)) return end(where, true, "done"), true;
        } else {
            return false;
        }
        obey();
        return true;
    }
};

std::size_t explore(KeepModel model, int events);

/// Every event that can happen now.
std::size_t branch_out(const KeepModel& model, int events) {
    std::size_t tried = 0;
    const auto branch = [&](auto event) {
        KeepModel next = model;
        event(next);
        next.obey();
        tried += explore(std::move(next), events - 1);
    };
    const Kinds& kinds = model.kinds;
    for (const auto& [where, is] : model.processes) {
        const Where who = where;
        if (kinds.killed) branch([who](KeepModel& next) { next.end(who, false, "killed"); });
        if (kinds.well && is != Is::ending)
            branch([who](KeepModel& next) { next.end(who, true, ""); });
        if (kinds.fails && is == Is::settled) branch([who](KeepModel& next) { next.fail(who); });
        if (kinds.deaf && (is == Is::prepared || is == Is::settled))
            branch([who](KeepModel& next) { next.deaf.insert(who); });
    }
    for (const HostId host : model.up)
        if (kinds.lost) branch([host](KeepModel& next) { next.lose(host); });
    for (std::uint32_t i = 0; i < model.hosts && kinds.listed; ++i) {
        const HostId host{i};
        if (model.unlisted.contains(host) || model.unlisted.size() + 2 < model.hosts)
            branch([host](KeepModel& next) { next.list(host); });
    }
    if (kinds.becomes && model.is_plain) branch([](KeepModel& next) { next.become(); });
    return tried;
}

/// Lets `events` more events happen at any step on the way to rest.
/// \return how many ways were gone
std::size_t explore(KeepModel model, int events) {
    std::size_t tried = 0;
    for (int steps = 0; !model.is_over; ++steps) {
        INFO(model.story);
        REQUIRE(steps < 400);
        if (events > 0) tried += branch_out(model, events);
        if (!model.go_on()) break;
    }
    if (model.is_over) return tried + 1;
    INFO(model.story);
    // At rest every host that is listed has its rank, and nothing of the others is left.
    CHECK(model.job.phase() == Phase::running);
    CHECK(model.processes.size() + model.unlisted.size() == model.hosts);
    CHECK(model.up.size() == model.processes.size());
    return tried + 1;
}

/// A job whose first world has begun.
KeepModel model_of(JobPolicy limits, std::uint32_t hosts, Kinds kinds) {
    limits.timeout = 100h;
    KeepModel model{.job = Membership(limits), .kinds = kinds, .hosts = hosts};
    model.ranks_min = limits.ranks_min;
    model.has_signal = limits.warn_signal != 0;
    model.is_plain = limits.warn_time.count() > 0;
    for (std::uint32_t i = 0; i < hosts; ++i) {
        model.job.host_listed(HostId{i}, 1, kStart);
        model.up.insert(HostId{i});
    }
    model.job.take_orders();
    for (const HostId host : model.up) model.job.host_ready(host, kStart);
    model.obey();
    return model;
}

const bool kIsLong = std::getenv("DTRUN_LONG") != nullptr;
const int kEvents = kIsLong ? 3 : 2;
constexpr std::uint32_t kHosts = 3;

}  // namespace

TEST_CASE("in every order of events processes that live on come to a right world",
          "[elastic][model]") {
    const Kinds kinds{
        .killed = true, .lost = true, .listed = true, .last_mail_first = GENERATE(false, true)};
    CHECK(explore(model_of(limits(1, kHosts), kHosts, kinds), kEvents) > 2'000);
}

TEST_CASE("in every order of events ranks that have ended well end no other's work",
          "[elastic][model]") {
    const bool last_mail_first = GENERATE(false, true);
    SECTION("while hosts come and go") {
        const Kinds kinds{
            .well = true, .lost = true, .listed = true, .last_mail_first = last_mail_first};
        CHECK(explore(model_of(limits(1, 3), 3, kinds), kEvents) > 3'000);
    }
    SECTION("while others fail, or cannot say why they ask for a place") {
        const Kinds kinds{
            .killed = true, .well = true, .fails = true, .last_mail_first = last_mail_first};
        CHECK(explore(model_of(limits(1, 3), 3, kinds), kEvents) > 3'000);
    }
    SECTION("while no world may be smaller, and the others wait for new processes") {
        JobPolicy all = limits(2, 3);
        all.refill = Refill::wait;
        const Kinds kinds{
            .killed = true, .well = true, .listed = true, .last_mail_first = last_mail_first};
        CHECK(explore(model_of(all, 3, kinds), kEvents) > 3'000);
    }
}

TEST_CASE("in every order of events processes that do not go on hold up nobody for ever",
          "[elastic][model]") {
    const Kinds kinds{.killed = true,
                      .well = true,
                      .listed = true,
                      .deaf = true,
                      .last_mail_first = GENERATE(false, true)};
    CHECK(explore(model_of(limits(1, 3), 3, kinds), kEvents) > 3'000);
}

TEST_CASE("in every order of events ranks that are warned start again, or have finished",
          "[elastic][model]") {
    JobPolicy warned = limits(1, kHosts);
    warned.warn_time = 30s;
    warned.warn_signal = GENERATE(0, 10);
    const Kinds kinds{.killed = true,
                      .well = true,
                      .lost = true,
                      .listed = true,
                      .becomes = true,
                      .last_mail_first = GENERATE(false, true)};
    CHECK(explore(model_of(warned, kHosts, kinds), kEvents) > 500);
}

}  // namespace dtrun::membership
