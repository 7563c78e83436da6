#include "tests/simulation/universe.h"

#include "base/log.h"
#include "rendezvous/daemon/daemon.h"
#include "tests/simulation/programs.h"
#include "tests/simulation/store_user.h"
#include "tests/support/temp_dir.h"

#include <fmt/format.h>
#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>

namespace dtrun::simulation {
namespace {

constexpr std::size_t kRunRanks = 4;
constexpr std::size_t kMembers = 3;
constexpr std::size_t kJoinHosts = 2;
constexpr std::size_t kFixedMembers = 3;
/// By then everybody gets answers again after the network has healed, and by then all has ended that is told to.
constexpr seconds kServedWithin{60};
constexpr seconds kEndsWithin{60};
/// More than users ever wait for at one time, each of a connection.
constexpr std::size_t kUnsentMax = 4u << 20;
constexpr std::size_t kAnswersMax = 16u << 20;

class Universe {
public:
    Universe(std::uint32_t seed, const Faults& faults)
        : world_(seed),
          disks_(world_),
          faults_(faults),
          script_{.world = world_, .ledger = ledger_} {
        script_.state_directory = directory_.path();
        script_.disk_flips = faults.flips;
        if (std::getenv("DTRUN_SIMULATION_LOG") != nullptr) log::init("dtrun", log::Level::verbose);
        take_log();
        build();
    }
    ~Universe() { log::set_sink(nullptr, nullptr); }

    RunResult run() {
        plan_faults();
        Deadline healed = world_.begun() + faults_.lasting;
        while (world_.now() < healed) {
            world_.run_until(std::min(healed, world_.now() + milliseconds(100)));
            check_daemon();
        }
        result_.acknowledged = ledger_.count();
        heal();
        if (!faults_.flips) go_on();  // some jobs are refused for ever
        script_.over = true;
        const Deadline limit = world_.now() + kEndsWithin;
        const auto over = [this] { return users_running() == 0; };
        if (!world_.run_until(over, limit))
            throw std::runtime_error("programs have not ended: " + who_runs());
        result_.healed_in = std::chrono::duration_cast<milliseconds>(world_.now() - healed);
        read_everything();
        ledger_.check();
        result_.keys = ledger_.keys();
        result_.fences = ledger_.fences();
        result_.failed_fences = ledger_.failed_fences();
        result_.ends = ledger_.ends();
        result_.generations = ledger_.generations();
        result_.overlap = ledger_.overlap();
        result_.refused = script_.refused;
        result_.trace = world_.trace();
        return result_;
    }

private:
    /// Also of agents, which name themselves in it, and of heads, which give it back when they end.
    void take_log() {
        log::set_sink(
            [](void* self, std::string_view line) { static_cast<Universe*>(self)->log(line); },
            this);
    }

    void log(std::string_view line) {
        if (std::getenv("DTRUN_SIMULATION_LOG") == nullptr) return;
        const Process* const process = world_.current_process();
        fmt::print(stderr, "{:10.6f} {:8} {}",
                   std::chrono::duration<double>(world_.now() - world_.begun()).count(),
                   process != nullptr ? const_cast<Process*>(process)->machine().name() : "-",
                   line);
    }

    void build() {
        Machine& daemon = world_.add_machine("daemon");
        script_.daemon = &daemon;
        daemon.boot([this](Process& process) {
            ++result_.daemon_starts;
            serve(script_, process);
        });
        Script::Run& run = script_.runs.emplace_back();
        for (std::size_t rank = 0; rank < kRunRanks; ++rank)
            run.machines.push_back(&world_.add_machine(fmt::format("rank{}", rank)));
        for (std::size_t rank = 0; rank < kRunRanks; ++rank)
            run.machines[rank]->boot([this, rank](Process& process) {
                use_store(script_, process, 0, static_cast<std::uint32_t>(rank));
            });
        script_.jobs.push_back({"elastic", 2, kMembers + 2 * kJoinHosts, 0.0001});
        script_.jobs.push_back({"fixed", kFixedMembers, kFixedMembers, 0.001});
        add_members("member", kMembers, script_.jobs[0], be_member);
        add_members("host", kJoinHosts, script_.jobs[0], join_host);
        add_members("fixed", kFixedMembers, script_.jobs[1], be_member);
        keep_running();
    }

    void add_members(const std::string& name, std::size_t count, Script::Job& job,
                     void (*program)(Script&, Process&, Script::Job&)) {
        for (std::size_t number = 0; number < count; ++number) {
            Machine& machine = world_.add_machine(fmt::format("{}{}", name, number));
            members_.push_back(&machine);
            machine.boot([&, program](Process& process) { program(script_, process, job); });
        }
    }

    /// Starts again what has ended, as a cluster's operator would.
    void keep_running() {
        world_.at(world_.now() + milliseconds(250), [this] {
            take_log();
            if (world_.draw_chance(0.5)) script_.daemon->restart();
            if (!script_.over) {
                for (Machine* const member : members_)
                    if (world_.draw_chance(0.2)) member->restart();
                renew_run();
            }
            keep_running();
        });
    }

    /// A launcher ends what is left of a run of which a rank has ended, and starts it again.
    void renew_run() {
        Script::Run& run = script_.runs.front();
        const auto runs = [](Machine* machine) { return machine->process() != nullptr; };
        if (std::ranges::all_of(run.machines, runs)) return;
        for (Machine* const machine : run.machines) machine->kill();
        if (!std::ranges::all_of(run.machines, &Machine::is_on)) return;
        ++run.number;
        for (Machine* const machine : run.machines) machine->restart();
    }

    std::vector<Machine*> all() {
        std::vector<Machine*> machines;
        for (const auto& machine : world_.machines()) machines.push_back(machine.get());
        return machines;
    }
    /// The daemon's more often than others: all depends on it.
    Machine& draw_machine() {
        if (world_.draw_chance(0.25)) return *script_.daemon;
        return *world_.machines()[world_.draw(world_.machines().size())];
    }

    /// One fault after the other, at times and of kinds that the seed decides.
    void plan_faults() {
        std::vector<std::function<void()>> kinds;
        const auto add = [&](bool wanted, std::function<void()> fault) {
            if (wanted) kinds.push_back(std::move(fault));
        };
        // In some runs the daemon lives: else it hardly ever has the time to change a generation.
        const bool lives = world_.draw_chance(0.35);
        add(faults_.daemon_dies && !lives, [this] { script_.daemon->kill(); });
        add(faults_.programs_die, [this, lives] {
            Machine& machine = draw_machine();
            if (&machine != script_.daemon) machine.kill();
            if (lives || world_.draw_chance(0.3)) draw_member().kill();
        });
        add(faults_.power_cuts, [this, lives] {
            Machine& machine = draw_machine();
            if (&machine == script_.daemon && lives) return;
            machine.power_cut();
            world_.at(world_.now() + draw_span(milliseconds(5'000)),
                      [&machine] { machine.switch_on(); });
        });
        const auto several = [this](void (Network::*fault)()) {
            for (std::uint64_t left = 1 + world_.draw(3); left > 0; --left)
                (world_.network().*fault)();
        };
        add(faults_.network, [several] { several(&Network::reset_one); });
        add(faults_.network, [several] { several(&Network::lose_one); });
        add(faults_.network && faults_.daemon_dies && !lives, [this, several] {
            several(&Network::lose_one);
            world_.at(world_.now() + draw_span(milliseconds(500)),
                      [this] { script_.daemon->kill(); });
        });
        add(faults_.network, [this] {
            for (std::uint64_t left = 1 + world_.draw(8); left > 0; --left)
                world_.network().break_one_end(draw_span(milliseconds(3'000)));
        });
        add(faults_.network, [this] {
            Machine& from = draw_machine();
            Machine& to = world_.draw_chance(0.7) ? *script_.daemon : draw_machine();
            world_.network().block(from, to);
            if (world_.draw_chance(0.5)) world_.network().block(to, from);
            world_.at(world_.now() + draw_span(milliseconds(6'000)),
                      [this] { world_.network().heal(); });
        });
        add(faults_.network, [this] {
            world_.network().delays.spikes = 0.02;
            world_.network().delays.spike = draw_span(milliseconds(3'000));
            world_.at(world_.now() + draw_span(milliseconds(3'000)),
                      [this] { world_.network().delays.spikes = 0; });
        });
        add(faults_.stops,
            [this] { draw_machine().freeze(world_.now() + draw_span(milliseconds(8'000))); });
        add(faults_.stops, [this] {
            draw_machine().starve(world_.now() + draw_span(milliseconds(5'000)), milliseconds(200));
        });
        add(faults_.disk, [this] {
            script_.daemon->disk().be_slow(world_.now() + draw_span(milliseconds(2'000)),
                                           milliseconds(1 + world_.draw(1'000)));
        });
        add(faults_.disk, [this] {
            script_.daemon->disk().be_full(world_.now() + draw_span(milliseconds(1'000)));
        });
        add(faults_.disk && !lives, [this] { script_.daemon->disk().fail_next_sync(); });
        add(faults_.disk && faults_.power_cuts && !lives, [this] { lose_power_while_slow(); });
        add(faults_.clocks, [this] {
            draw_machine().step_clock(milliseconds(world_.draw(7'200'000)) -
                                      milliseconds(3'600'000));
        });
        add(faults_.flips, [this] {
            script_.daemon->disk().flip_bit();
            script_.daemon->kill();
        });
        if (faults_.disk_forgets) script_.daemon->disk().forget_syncs();
        if (kinds.empty()) return;
        Deadline when = world_.begun() + milliseconds(200);
        while (when < world_.begun() + faults_.lasting) {
            const auto& fault = kinds[world_.draw(kinds.size())];
            world_.at(when, fault);
            when += draw_span(milliseconds(1'500));
        }
    }

    /// What the daemon has written then is not on the disk yet. It may be killed and started again before.
    void lose_power_while_slow() {
        Machine& daemon = *script_.daemon;
        daemon.disk().be_slow(world_.now() + seconds(3), milliseconds(1'000));
        Deadline when = world_.now() + draw_span(milliseconds(500));
        if (world_.draw_chance(0.7)) {
            world_.at(when, [&daemon] {
                daemon.kill();
                daemon.restart();
            });
            when +=
                milliseconds(50) + draw_span(milliseconds(300));  // somebody has come back by then
        }
        world_.at(when, [&daemon] { daemon.power_cut(); });
        world_.at(when + draw_span(milliseconds(500)), [&daemon] {
            daemon.switch_on();
            daemon.restart();
        });
    }

    Machine& draw_member() { return *members_[world_.draw(members_.size())]; }

    microseconds draw_span(milliseconds most) {
        return world_.draw_time(microseconds(1'000), most);
    }

    void check_daemon() {
        if (script_.daemon->process() == nullptr || script_.served == nullptr) return;
        const boost::json::value status = boost::json::parse(script_.served->status(""));
        check_memory(status);
        for (const boost::json::value& job : status.at("jobs").as_array()) check_phase(job);
    }

    /// A daemon keeps what its users wait for, and no more.
    static void check_memory(const boost::json::value& status) {
        const auto connections = status.at("connections").to_number<std::size_t>();
        const auto unsent = status.at("unsent_bytes").to_number<std::size_t>();
        if (unsent > connections * kUnsentMax)
            throw Contradiction(fmt::format("{} bytes wait for {} users", unsent, connections));
        for (const boost::json::value& job : status.at("jobs").as_array())
            if (const auto bytes = job.at("answer_bytes").to_number<std::size_t>();
                bytes > kAnswersMax)
                throw Contradiction(fmt::format("{} bytes of answers are kept", bytes));
    }

    /// A job of which a member has finished has no further generation.
    void check_phase(const boost::json::value& job) {
        const std::string phase(job.at("phase").as_string());
        const auto generation = job.at("generation").to_number<std::uint64_t>();
        const auto key = std::pair(script_.served, std::string(job.at("name").as_string()));
        const auto finished = finished_.find(key);
        if (phase == "finishing" || phase == "ended")
            finished_[key] = generation;
        else if (finished != finished_.end() &&
                 (generation > finished->second || phase == "changing"))
            throw Contradiction(fmt::format("{} has finished in generation {}, and is {} in {} now",
                                            key.second, finished->second, phase, generation));
    }

    /// Everybody gets answers again, those among them who are still to be told that they were taken for lost.
    void go_on() {
        script_.calm = true;
        if (world_.run_until([this] { return unserved().empty(); }, world_.now() + kServedWithin))
            return;
        throw std::runtime_error("nothing fails any more, and yet nobody answers " + unserved());
    }

    /// Who runs and has no answer yet, and machines on which nobody does.
    std::string unserved() {
        std::set<const Machine*> used;
        for (const StoreUser* const user : script_.users) {
            if (!user->process().is_alive()) continue;
            if (!user->was_served()) return user->who();
            used.insert(&user->process().machine());
        }
        for (const auto& machine : world_.machines())
            if (machine.get() != script_.daemon && !used.contains(machine.get()))
                return machine->name();
        return "";
    }

    void heal() {
        world_.network().heal();
        world_.network().delays.spikes = 0;
        for (Machine* const machine : all()) machine->thaw();
    }

    std::size_t users_running() {
        std::size_t running = 0;
        for (Machine* const machine : all())
            running += machine != script_.daemon && machine->process() != nullptr ? 1 : 0;
        return running;
    }
    std::string who_runs() {
        std::string names;
        for (Machine* const machine : all())
            if (machine != script_.daemon && machine->process() != nullptr)
                names += machine->name() + " ";
        return names;
    }

    void read_everything() {
        Machine& reader = world_.add_machine("reader");
        bool done = false;
        reader.boot([&](Process& process) { read_all(script_, process, done, result_.is_read); });
        const bool is_done = world_.run_until([&] { return done; }, world_.now() + kEndsWithin);
        // A daemon whose tables' description is damaged does not start, and nobody is told anything.
        if (!is_done && !faults_.flips)
            throw std::runtime_error("the store cannot be read at the end");
    }

    TempDir directory_;
    World world_;
    DiskSystem disks_;
    Faults faults_;
    Ledger ledger_;
    Script script_;
    std::vector<Machine*> members_;
    /// Generations in which jobs have finished, by daemon and name.
    std::map<std::pair<const Daemon*, std::string>, std::uint64_t> finished_;
    RunResult result_;
};

}  // namespace

RunResult simulate(std::uint32_t seed, const Faults& faults) {
    return Universe(seed, faults).run();
}

}  // namespace dtrun::simulation
