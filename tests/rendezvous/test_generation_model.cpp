// Jobs whose processes live on: every order of a few events, at each step on the way from one world to the next.
#include "tests/rendezvous/generations_support.h"

#include <cstdlib>
#include <map>
#include <set>

namespace dtrun::generations {

namespace {

using Where = std::pair<HostId, SlotIndex>;

/// How far a process is, and what will come of it next.
enum class Is {
    prepared,  ///< started for the coming world: it will be gated
    gated,
    forming,  ///< it meets the others: it will be settled
    settled,
    asked,    ///< it has been told, or a collective has failed: it will ask for a place
    waiting,  ///< for a place
};

/// A job with what its hosts and processes know.
struct KeepModel {
    Generations job;
    Deadline now = kStart;
    std::set<HostId> up{}, dialled{}, leaving{}, unlisted{}, to_pause{};
    std::map<Where, Is> processes{};
    std::set<Where> dying{};
    std::map<HostId, std::uint64_t> rolls{};
    std::uint64_t pausing = 0;

    void lose_processes(HostId host) {
        std::erase_if(processes, [host](const auto& each) { return each.first.first == host; });
        std::erase_if(dying, [host](const Where& where) { return where.first == host; });
    }

    void all_ask() {
        for (auto& [where, is] : processes)
            if (is == Is::settled) is = Is::asked;
    }

    /// The world must be right, and its places be given once and to those who wait for them.
    void begin(const std::vector<Seat>& world) {
        CHECK(pausing == 0);
        const auto lived = [this](const Seat& seat) {
            const auto found = processes.find({seat.host, seat.rank.place});
            return found != processes.end() && found->second == Is::waiting;
        };
        const bool any_lived = std::ranges::any_of(world, lived);
        CHECK(any_lived == lived(world.front()));  // rank 0 has the state
        std::map<Where, Is> seated;
        std::map<HostId, std::uint32_t> local;
        for (std::size_t i = 0; i < world.size(); ++i) {
            const Seat& seat = world[i];
            const Where where{seat.host, seat.rank.place};
            CHECK(up.contains(seat.host));
            CHECK(std::to_underlying(seat.rank.rank) == i);
            CHECK(seat.rank.local_rank == local[seat.host]++);
            CHECK((i == 0 || world[i - 1].host == seat.host || local[seat.host] == 1));
            CHECK(seat.fresh == !lived(seat));
            CHECK(seated.emplace(where, Is::forming).second);
            const auto before = processes.find(where);
            CHECK((before == processes.end() || before->second != Is::prepared));
            processes.erase(where);
        }
        for (const auto& [where, is] : processes) dying.insert(where);  // those without a place
        processes = std::move(seated);
    }

    void obey() {
        auto orders = job.take_orders();
        for (const HostId host : orders.connect) dialled.insert(host);
        if (orders.pause) {
            pausing = orders.pause->generation;
            to_pause = up;
            rolls.clear();
        }
        if (orders.sever || orders.notify) all_ask();
        for (const Where& where : orders.kill) {
            CHECK(up.contains(where.first));
            if (processes.erase(where) > 0) dying.insert(where);
        }
        if (orders.prepare)
            for (const Seat& seat : *orders.prepare)
                if (seat.fresh) processes[{seat.host, seat.rank.place}] = Is::prepared;
        if (orders.roll)
            for (const HostId host : up) rolls[host] = *orders.roll;
        if (orders.begin) {
            if (pausing != 0) processes.clear(), dying.clear(), pausing = 0;
            begin(*orders.begin);
        }
        for (const HostId host : orders.release) {
            CHECK(up.erase(host) == 1);
            leaving.insert(host);
            lose_processes(host);
            to_pause.erase(host);
        }
        CHECK_FALSE(orders.ended);
    }

    // What may happen.
    void kill(const Where& where) {
        const bool of_world =
            processes.at(where) != Is::prepared && processes.at(where) != Is::gated;
        processes.erase(where);
        if (of_world) all_ask();
        job.rank_ended(where.first, where.second, {.why = "killed"}, now);
    }
    void lose(HostId host) {
        up.erase(host), to_pause.erase(host), rolls.erase(host);
        lose_processes(host);
        job.host_lost(host, "lost", now);
    }
    void list(HostId host) {
        if (unlisted.erase(host) > 0)
            job.host_listed(host, 1, now);
        else
            unlisted.insert(host), job.host_delisted(host, now);
    }
    void say(const Where& where, Is is, DeskState state) {
        processes[where] = is;
        if (state == DeskState::settled)
            job.process_says(where.first, where.second, DeskState::capable, now);
        job.process_says(where.first, where.second, state, now);
    }

    /// The next answer to what has been asked; time passes when there is none.
    /// \return whether anything is left to happen
    bool go_on() {
        if (!dying.empty()) {
            const Where where = *dying.begin();
            dying.erase(dying.begin());
            job.rank_ended(where.first, where.second, {.why = "told to end"}, now);
        } else if (!to_pause.empty()) {
            const HostId host = *to_pause.begin();
            to_pause.erase(to_pause.begin());
            lose_processes(host);
            job.host_paused(host, pausing, now);
        } else if (!rolls.empty()) {
            const auto [host, number] = *rolls.begin();
            rolls.erase(rolls.begin());
            job.host_rolled(host, number, now);
        } else if (!dialled.empty()) {
            const HostId host = *dialled.begin();
            dialled.erase(dialled.begin());
            up.insert(host);
            job.host_ready(host, now);
        } else if (!leaving.empty()) {
            const HostId host = *leaving.begin();
            leaving.erase(leaving.begin());
            job.host_left(host, now);
        } else if (const auto next = std::ranges::find_if(processes,
                                                          [](const auto& each) {
                                                              return each.second != Is::settled &&
                                                                     each.second != Is::waiting &&
                                                                     each.second != Is::gated;
                                                          });
                   next != processes.end()) {
            const Where where = next->first;
            switch (next->second) {
                case Is::prepared:
                    say(where, Is::gated, DeskState::gated);
                    break;
                case Is::forming:
                    say(where, Is::settled, DeskState::settled);
                    break;
                default:
                    say(where, Is::waiting, DeskState::waiting);
            }
        } else if (const Deadline due = job.next_deadline(); due != Deadline::max()) {
            job.tick(now = std::max(now, due));
        } else {
            return false;
        }
        obey();
        return true;
    }
};

/// Lets `events` more events happen at any step on the way to rest.
/// \return how many ways were gone
std::size_t explore(KeepModel model, int events) {
    std::size_t tried = 0;
    for (int steps = 0;; ++steps) {
        REQUIRE(steps < 400);
        const auto branch = [&](auto event) {
            KeepModel next = model;
            event(next);
            next.obey();
            tried += explore(std::move(next), events - 1);
        };
        if (events > 0) {
            for (const auto& [where, is] : model.processes)
                branch([where = where](KeepModel& next) { next.kill(where); });
            for (const HostId host : model.up) branch([host](KeepModel& next) { next.lose(host); });
            for (const HostId host : {h0, h1, h2, h3})
                if (model.unlisted.contains(host) || model.unlisted.size() < 2)
                    branch([host](KeepModel& next) { next.list(host); });
        }
        if (!model.go_on()) break;
    }
    // At rest every host that is listed has its rank, and nothing of the others is left.
    CHECK(model.job.phase() == Phase::running);
    CHECK(model.processes.size() + model.unlisted.size() == 4);
    CHECK(model.up.size() == model.processes.size());
    return tried + 1;
}

}  // namespace

TEST_CASE("in every order of events processes that live on come to a right world",
          "[elastic][model]") {
    GenerationLimits any = limits(1, 4);
    any.timeout = 100h;
    KeepModel model{Generations(any)};
    for (const HostId host : {h0, h1, h2, h3}) {
        model.job.host_listed(host, 1, kStart);
        model.up.insert(host);
    }
    model.job.take_orders();
    for (const HostId host : model.up) model.job.host_ready(host, kStart);
    model.obey();
    const bool is_long = std::getenv("DTRUN_LONG") != nullptr;
    CHECK(explore(model, is_long ? 3 : 2) > 10'000);
}

}  // namespace dtrun::generations
