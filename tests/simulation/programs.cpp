#include "tests/simulation/programs.h"

#include "base/log.h"
#include "rendezvous/daemon/daemon.h"
#include "rendezvous/wire/job_key.h"
#include "tests/simulation/store_user.h"

#include <fmt/format.h>
#include <array>
#include <utility>

namespace dtrun::simulation {
namespace {

using embedded::Client;
using embedded::Outcome;
using Kind = Operation::Kind;

constexpr std::uint32_t kReturnMs = 20'000;  // for a daemon that is away
constexpr int kThreads = 4;                  // of a rank

}  // namespace

Secret daemon_secret() {
    return Secret{std::array<std::uint8_t, Secret::kBytes>{7, 1, 2, 3}};
}

embedded::Surroundings surroundings(const Script& script, Process& process,
                                    const std::string& job) {
    embedded::Surroundings found;
    found.info.host_name = process.machine().name();
    embedded::DaemonAddress daemon;
    daemon.host = script.daemon->address();
    daemon.port = std::to_string(kPort);
    daemon.job_name = job;
    daemon.timeout_ms = kReturnMs;
    found.daemon = std::move(daemon);
    return found;
}

embedded::ClientCredentials credentials(const std::string& job) {
    const JobId id = dtrun::job_id_of(job);
    return {id, job_secret_of(daemon_secret(), id)};
}

void serve(Script& script, Process& process) {
    DaemonOptions options;
    options.secret = daemon_secret();
    options.state_directory = script.state_directory;
    options.keep_unused = script.keep_unused;
    script.served = nullptr;  // until it has begun
    auto* const daemon = new Daemon(process.io().get_executor(), std::move(options));
    if (const auto restored = daemon->restore(); !restored) {
        log::error("{}", restored.error().message);
        SimulatedSystem::current->exit_process(1);
    }
    daemon->start();
    script.served = daemon;
    process.listen(kPort, [daemon, &process](Fd connection) {
        tcp::socket socket(process.io());
        socket.assign(tcp::v4(), connection.release());
        daemon->serve(std::move(socket));
    });
}

void Script::take(const embedded::Failure& failure) {
    if (failure.text.find("is damaged on the daemon's disk") != std::string::npos) ++refused;
}

void use_store(Script& script, Process& process, std::size_t run, std::uint32_t rank) {
    process.exits_with_threads();
    process.start_thread([&script, &process, run, rank] {
        World& world = script.world;
        const Script::Run& group = script.runs[run];
        embedded::Surroundings found = surroundings(script, process, kStoreJob);
        found.launcher = embedded::Launcher::torchrun;
        found.info.job = fmt::format("run {}.{}", run, group.number);
        found.info.rank = rank;
        found.info.world_size = static_cast<std::uint32_t>(group.machines.size());
        const std::string job = found.info.job;
        auto* const client =
            new Client(std::move(found), credentials(kStoreJob), Client::Role::rank);
        const auto started = client->start({world.now() + seconds(60), {}});
        if (!started) script.take(started.error());
        int threads = started ? kThreads : 0;
        bool failed = !started;
        for (int thread = 0; thread < (started ? kThreads : 0); ++thread)
            process.start_thread([&, thread] {
                StoreUser user(
                    script, *client, kStoreJob,
                    fmt::format("{}.{}/{}", process.machine().name(), group.number, thread));
                user.meets_in(job);
                user.gives_up = [&] { return script.over; };
                while (!script.over && !failed) {
                    auto done = user.do_something();
                    if (done && thread == 0 && world.draw_chance(0.3)) done = user.meet();
                    if (!done) script.take(done.error());
                    if (!done) failed = true;
                    pause(world, milliseconds(script.calm ? 100 : 4));
                }
                --threads;
                world.wake_all(&threads);
            });
        while (threads > 0) world.wait_on(&threads, Deadline::max());
        client->leave(failed ? "it has failed" : "", {});
    });
}

void be_member(Script& script, Process& process, Script::Job& job) {
    process.exits_with_threads();
    process.start_thread([&script, &process, &job] {
        World& world = script.world;
        const std::string name = job.name();
        embedded::Surroundings found = surroundings(script, process, name);
        found.launcher = embedded::Launcher::daemon;
        found.daemon->ranks_min = job.ranks_min;
        found.daemon->ranks_max = job.ranks_max;
        auto* const client = new Client(std::move(found), credentials(name), Client::Role::rank);
        StoreUser user(script, *client, name,
                       fmt::format("{}/{}", process.machine().name(), world.draw(1u << 30)));
        const auto is_over = [&] { return script.over; };
        const auto has_moved_on = [&] { return job.name() != name; };
        const auto told_end = [&](const std::string& why) {
            user.told_end(why);
            job.end(name);
        };
        Outcome<void> done = client->start(
            {world.now() + seconds(120), [&] { return is_over() || has_moved_on(); }});
        bool placed = false;
        while (done && !is_over()) {
            if (!placed) {
                done = user.take_place();
                placed = done.has_value();
            } else {
                done = user.do_something();
                if (done && world.draw_chance(0.05)) done = user.meet();
            }
            const auto event = client->next_event({world.now(), {}});
            if (event && event->kind == RankEvent::Kind::shutdown) {
                told_end(event->why);
                break;
            }
            const bool stale = !done && done.error().code == DTRUN_STALE;
            if (stale || (event && event->kind == RankEvent::Kind::membership)) {
                done = client->rejoin({world.now() + seconds(120), is_over});
                placed = false;
            }
            if (world.draw_chance(job.finishes)) job.end(name);
            if (has_moved_on() && world.draw_chance(0.05)) break;  // some are long in finishing
            pause(world, milliseconds(script.calm ? 100 : 15));
        }
        constexpr std::string_view kEnded = "the job has ended: ";
        if (!done && done.error().text.starts_with(kEnded))
            told_end(done.error().text.substr(kEnded.size()));
        if (!done) script.take(done.error());
        client->leave(done ? "" : "it has failed", {});
    });
}

void read_all(Script& script, Process& process, bool& done, bool& is_read) {
    process.exits_with_threads();
    process.start_thread([&script, &process, &done, &is_read] {
        embedded::Surroundings found = surroundings(script, process, kStoreJob);
        found.launcher = embedded::Launcher::torchrun;
        auto* const client =
            new Client(std::move(found), credentials(kStoreJob), Client::Role::helper);
        StoreUser user(script, *client, kStoreJob, "reader");
        for (const std::string& key : script.ledger.keys_of(kStoreJob)) {
            const bool is_queue = key.starts_with("queue");
            for (;;) {
                const auto read = user.ask(is_queue ? Kind::pop : Kind::get, key, "");
                if (!read) script.take(read.error());
                if (!read && script.disk_flips) return (void)(done = true);
                if (!read)
                    throw Contradiction("a key cannot be read at the end: " + read.error().text);
                if (!is_queue || !user.has_seen()) break;
            }
        }
        const auto drained = user.drain_items();
        // A daemon whose tables' description is damaged does not start: who asks it for items waits in vain.
        if (!drained && script.disk_flips && script.served == nullptr) return (void)(done = true);
        if (!drained)
            throw Contradiction("items are not there at the end: " + drained.error().text);
        client->leave("", {});
        done = is_read = true;
    });
}

}  // namespace dtrun::simulation
