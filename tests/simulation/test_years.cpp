// Months of a daemon: jobs come by the ten thousand, and are used again or never; their programs end well or are killed;
// the daemon is killed, loses its power, and is started again. What is remembered is kept, what is not used is forgotten, and
// nothing grows.

#include "base/log.h"
#include "rendezvous/daemon/daemon.h"
#include "rendezvous/wire/msgpack.h"
#include "tests/simulation/corpus.h"
#include "tests/simulation/programs.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <fmt/format.h>
#include <algorithm>
#include <boost/json.hpp>
#include <cstdlib>
#include <map>

namespace dtrun::simulation {
namespace {

using embedded::Client;
using embedded::Outcome;
using std::chrono::hours;
using std::chrono::minutes;

constexpr std::size_t kMachines = 8;
constexpr hours kKept{2 * 24};
/// The daemon counts its time by the hour, as far as it writes it down; and deadlines are not looked at all the time.
constexpr hours kKeptAtMost = kKept + hours(30);
constexpr minutes kBetweenRuns{16};  ///< at most
constexpr hours kBetweenEnds{30};    ///< of the daemon, at most
constexpr std::int64_t kNoTimeout = -1;

int days() {
    const char* const wanted = std::getenv("DTRUN_SIMULATION_DAYS");
    return wanted != nullptr ? std::atoi(wanted) : 5;
}

/// What a job's last program has done, as far as it knows.
struct Known {
    std::int64_t least = 0, most = 0;  ///< times that it has counted: acknowledged, and asked for
    std::uint64_t token = 0;           ///< the largest of its lock
    Deadline used{};                   ///< for the last time, or so it may be
    Deadline counted{};                ///< when the daemon has acknowledged a use for the last time
    bool is_in_use = false;
};

struct Figures {
    std::size_t runs = 0, again = 0, forgotten = 0, killed = 0, starts = 0;
};

class Years {
public:
    explicit Years(std::uint32_t seed)
        : world_(seed), disks_(world_), script_{.world = world_, .ledger = ledger_} {
        script_.state_directory = directory_.path();
        script_.keep_unused = kKept;
        log::set_sink([](void*, std::string_view) {}, nullptr);
        script_.daemon = &world_.add_machine("daemon");
        script_.daemon->boot([this](Process& process) {
            ++figures_.starts;
            serve(script_, process);
        });
        for (std::size_t i = 0; i < kMachines; ++i)
            machines_.push_back(&world_.add_machine(fmt::format("host{}", i)));
    }
    ~Years() { log::set_sink(nullptr, nullptr); }

    /// \return bytes on the disk at the end of each day
    std::vector<std::uint64_t> run(int days) {
        begin_runs();
        end_daemons();
        watch_daemon();
        std::vector<std::uint64_t> bytes;
        for (int day = 1; day <= days; ++day) {
            world_.run_until(world_.begun() + hours(24 * day));
            bytes.push_back(script_.daemon->disk().bytes());
            look();
        }
        return bytes;
    }
    const Figures& figures() const { return figures_; }

private:
    // ---- what happens ----

    void begin_runs() {
        world_.at(world_.now() + world_.draw_time(seconds(1), kBetweenRuns), [this] {
            Machine& machine = *machines_[world_.draw(machines_.size())];
            if (machine.process() == nullptr) begin_run(machine);
            begin_runs();
        });
    }

    /// Of a new job, or of one that has been before.
    void begin_run(Machine& machine) {
        std::uint64_t number = figures_.runs;
        if (number > 0 && world_.draw_chance(0.3)) number = world_.draw(number);
        if (number == figures_.runs) ++figures_.runs;
        Known& known = known_[number];
        if (std::exchange(known.is_in_use, true)) return;
        machine.boot([this, number](Process& process) {
            process.exits_with_threads();
            process.start_thread([this, &process, number] { use(process, number); });
        });
        if (!world_.draw_chance(0.2)) return;
        const Process* const process = machine.process();
        world_.at(world_.now() + world_.draw_time(milliseconds(1), seconds(30)),
                  [this, &machine, process, number] {
                      if (machine.process() != process) return;
                      ++figures_.killed;
                      machine.kill();
                      known_[number].used = world_.now();
                      known_[number].is_in_use = false;
                  });
    }

    void end_daemons() {
        world_.at(world_.now() + world_.draw_time(minutes(1), kBetweenEnds), [this] {
            Machine& daemon = *script_.daemon;
            const bool loses_power = world_.draw_chance(0.3);
            loses_power ? daemon.power_cut() : daemon.kill();
            world_.at(world_.now() + world_.draw_time(seconds(1), minutes(10)),
                      [&daemon] { daemon.switch_on(); });
            end_daemons();
        });
    }

    /// As systemd does.
    void watch_daemon() {
        world_.at(world_.now() + seconds(5), [this] {
            script_.daemon->restart();
            watch_daemon();
        });
    }

    // ---- a program ----

    void use(Process& process, std::uint64_t number) {
        const std::string job = fmt::format("run {}", number);
        embedded::Surroundings found = surroundings(script_, process, job);
        found.launcher = embedded::Launcher::torchrun;
        auto* const client = new Client(std::move(found), credentials(job), Client::Role::rank);
        Outcome<void> done = client->start({world_.now() + seconds(60), {}});
        if (done) done = work(*client, number);
        client->leave(done ? "" : "it has failed", {});
        known_[number].used = world_.now();
        known_[number].is_in_use = false;
    }

    Outcome<void> work(Client& client, std::uint64_t number) {
        Known& known = known_[number];
        const auto unused = world_.now() - known.used;
        ++known.most;
        const auto count = ask(client, {.op = Op::add, .keys = {"count"}, .delta = 1});
        if (!count) return std::unexpected(count.error());
        check_count(known, results_of(*count).integer(), unused);
        const std::string own = fmt::format("members/{}", client.owner());
        const auto members = ask(client, {.op = Op::list, .keys = {"members/"}, .number = 10});
        if (members && unused > minutes(1) && results_of(*members).array() > 0)
            throw Contradiction(fmt::format("run {} has members that have gone", number));
        for (const std::string_view item : {"a", "b", "c"})
            if (const auto pushed =
                    ask(client, {.op = Op::push, .keys = {"work"}, .values = {item}});
                !pushed)
                return std::unexpected(pushed.error());
        const StoreRequest rest[] = {
            {.op = Op::put, .keys = {own}, .values = {"here"}, .owner = client.owner()},
            {.op = Op::put, .keys = {"brief"}, .values = {"x"}, .ttl_ms = 3'600'000},
            {.op = Op::set,
             .keys = {"state"},
             .values = {std::string_view(text_).substr(world_.draw(2'000))}},
            {.op = Op::claim, .keys = {"work"}, .owner = client.owner()},
            {.op = Op::pop, .keys = {"work"}},
            {.op = Op::append, .keys = {"text"}, .values = {"line\n"}},
        };
        for (const StoreRequest& request : rest) {
            if (const auto answer = ask(client, request); !answer)
                return std::unexpected(answer.error());
            world_.poll(-1, 0, world_.now() + world_.draw_time(milliseconds(1), seconds(5)));
        }
        return lead(client, known);
    }

    void check_count(Known& known, std::int64_t count, Deadline::duration unused) {
        if (known.most > 1 && count == 1 && known.least > 0) {
            ++figures_.forgotten;
            if (world_.now() - known.counted < kKept)
                throw Contradiction("a job was forgotten that was used in the last days");
            known = {.least = 0, .most = 1, .is_in_use = true};
        } else if (known.most > 1) {
            ++figures_.again;
            if (known.least > 0 && unused > kKeptAtMost)
                throw Contradiction(
                    fmt::format("a job was not used for {} hours, and is still there",
                                std::chrono::duration_cast<hours>(unused).count()));
        }
        if (count <= known.least || count > known.most)
            throw Contradiction(fmt::format(
                "a count is {}, after {} that were acknowledged and {} that were asked for", count,
                known.least, known.most));
        known.least = count;
        known.counted = world_.now();
    }

    /// Whoever was here before has gone, so the lock is free, and its token is larger than all before.
    Outcome<void> lead(Client& client, Known& known) {
        const auto locked = client.request(
            {.op = Op::lock, .keys = {"leader"}, .values = {"me"}, .owner = client.owner()}, 60'000,
            {});
        if (!locked) return std::unexpected(locked.error());
        const std::uint64_t token = results_of(*locked).uint();
        if (token <= known.token)
            throw Contradiction("a lock's token is not larger than the one before");
        known.token = token;
        if (world_.draw_chance(0.5)) return {};  // it goes with its holder
        const auto free =
            ask(client,
                {.op = Op::unlock, .keys = {"leader"}, .number = token, .owner = client.owner()});
        if (!free) return std::unexpected(free.error());
        return {};
    }

    static Outcome<Bytes> ask(Client& client, const StoreRequest& request) {
        return client.request(request, kNoTimeout, {});
    }
    static PackReader results_of(const Bytes& answer) {
        PackReader in(answer);
        (void)in.array();
        return in;
    }

    // ---- what must hold ----

    /// What the daemon keeps is what was used of late.
    void look() {
        if (script_.daemon->process() == nullptr) return;
        const auto recent = std::ranges::count_if(known_, [this](const auto& entry) {
            return entry.second.is_in_use || world_.now() - entry.second.used < kKeptAtMost;
        });
        const boost::json::value status = boost::json::parse(script_.served->status(""));
        const auto jobs = status.at("jobs").as_array().size();
        if (jobs > static_cast<std::size_t>(recent))
            throw Contradiction(
                fmt::format("the daemon keeps {} jobs, and {} were used of late", jobs, recent));
        if (const auto peers = status.at("connections").to_number<std::size_t>();
            peers > kMachines * 4)
            throw Contradiction(fmt::format("{} machines have {} connections", kMachines, peers));
    }

    TempDir directory_;
    World world_;
    DiskSystem disks_;
    Ledger ledger_;
    Script script_;
    std::vector<Machine*> machines_;
    std::map<std::uint64_t, Known> known_;
    Figures figures_;
    const std::string text_ = std::string(2'000, 's');
};

}  // namespace

TEST_CASE("a daemon keeps for weeks what is used, forgets the rest, and does not grow",
          "[simulation]") {
    for (const std::uint32_t seed : seeds_of("years")) {
        INFO("DTRUN_SEED=" << seed);
        Years years(seed);
        const auto bytes = years.run(days());
        const Figures& figures = years.figures();
        WARN(
            fmt::format("seed {}: {} days, {} jobs, {} runs of one that was there, {} of one that "
                        "was forgotten, {} programs "
                        "killed, the daemon started {} times; {} bytes on its disk after 4 days, "
                        "{} at the end",
                        seed, bytes.size(), figures.runs, figures.again, figures.forgotten,
                        figures.killed, figures.starts, bytes.at(3), bytes.back()));
        CHECK(figures.again > 100);
        CHECK(figures.forgotten > 10);
        CHECK(bytes.back() < 2 * bytes.at(3));
    }
}

}  // namespace dtrun::simulation
