#include "base/log.h"
#include "launcher/head/agent_config_builder.h"
#include "launcher/head/head.h"
#include "launcher/head/login_starter.h"
#include "launcher/plan/job_plan.h"
#include "rendezvous/wire/job_key.h"
#include "tests/loopback/fake_ranks.h"
#include "tests/loopback/head_parts.h"
#include "tests/simulation/programs.h"
#include "tests/simulation/store_user.h"
#include "worker/agent/agent.h"

#include <fmt/format.h>
#include <algorithm>
#include <csignal>
#include <utility>

namespace dtrun::simulation {
namespace {

using embedded::Client;
using embedded::Outcome;
using loopback::FakeChannel;
using loopback::FakeRanks;
using loopback::MemoryOutput;
using loopback::Pair;
using loopback::RankScript;
using loopback::socket_pair;

constexpr int kRanks = 2;  // of a host

/// The machine on which somebody has called `dtrun join`: everything but the ranks is as in a real one.
class JoinHost final : public head::ChannelOpener {
public:
    JoinHost(Script& script, Process& process, Script::Job& job);

    asio::awaitable<Result<std::unique_ptr<transport::Channel>>> open(
        HostId host, head::AgentRun run, Deadline deadline,
        std::function<void(const char*)> phase) override;

private:
    class Ranks;
    plan::JobSpec make_spec() const;
    agent::AgentParts agent_parts();
    asio::awaitable<Result<Connection>> connect();
    asio::awaitable<void> run_agent();
    void run_rank(std::uint64_t generation, Rank rank, const std::string& socket);

    Script& script_;
    Process& process_;
    Script::Job& job_;
    const std::string name_;  ///< of the job
    asio::io_context& io_;
    std::mt19937 random_;
    const std::uint64_t number_ = script_.world.draw(1u << 30);
    plan::JobSpec spec_;
    head::JobCredentials credentials_;
    head::Hosts hosts_;
    MemoryOutput output_;
    head::Head head_;
    head::AgentConfigBuilder configs_;
    std::unique_ptr<agent::Agent> agent_;
    FakeChannel::Handle channel_;
    Ranks* ranks_ = nullptr;
    TaskGroup tasks_;
};

/// Ranks that live until they are told to end, and have a program: a thread of this process.
class JoinHost::Ranks final : public FakeRanks {
public:
    Ranks(JoinHost& host, std::function<void(const Exited&)> exited)
        : FakeRanks(
              host.io_.get_executor(), host.random_,
              [](const Request&) {
                  RankScript script;
                  script.life = std::chrono::hours(10);
                  script.output_bytes = 0;
                  return script;
              },
              [this, exited](const Exited& what, const Process&) {
                  running_.erase({what.generation, what.rank});
                  exited(what);
              }),
          host_(host) {}

    void start(const Request& request, std::function<void(Start)> started) override {
        running_.insert({request.generation, request.rank});
        std::string socket;
        for (const std::string& variable : request.command.env)
            if (variable.starts_with("DTRUN_SOCKET="))
                socket = variable.substr(variable.find('=') + 1);
        FakeRanks::start(request, [this, started, socket, generation = request.generation,
                                   rank = request.rank](Start made) {
            started(std::move(made));
            host_.run_rank(generation, rank, socket);
        });
    }
    bool runs(std::uint64_t generation, Rank rank) const {
        return running_.contains({generation, rank});
    }

private:
    JoinHost& host_;
    std::set<std::pair<std::uint64_t, Rank>> running_;
};

plan::JobSpec JoinHost::make_spec() const {
    plan::Options options;
    options.hosts = fmt::format("{}:{}", process_.machine().name(), kRanks);
    options.world_size = kRanks;
    options.program = {"/bin/true"};
    options.contracts = {"none"};
    options.stdin_target.kind = StdinTarget::Kind::none;
    options.transport = plan::Transport::ssh;
    options.verbosity =
        log::enabled(log::Level::verbose) ? log::Level::verbose : log::Level::normal;
    auto spec = plan::make_job_spec(std::move(options), {}, "/");
    if (!spec) throw std::logic_error(spec.error().message);
    plan::JoinOptions join;
    join.ranks_min = static_cast<int>(job_.ranks_min);
    join.ranks_max = static_cast<int>(job_.ranks_max);
    join.server_timeout = seconds(20);
    spec->options.join = join;
    const JobId id = job_id_of(name_);
    spec->daemon = plan::DaemonTarget{"daemon", "daemon", {script_.daemon->address()},
                                      kPort,    name_,    {id, job_secret_of(daemon_secret(), id)},
                                      {}};
    return std::move(*spec);
}

JoinHost::JoinHost(Script& script, Process& process, Script::Job& job)
    : script_(script),
      process_(process),
      job_(job),
      name_(job.name()),
      io_(process.io()),
      random_(static_cast<std::uint32_t>(script.world.draw(UINT32_MAX))),
      spec_(make_spec()),
      hosts_(spec_),
      output_(io_.get_executor(), [this] { head_.output_left(); }),
      head_(io_, spec_, hosts_, output_, [] {}),
      configs_(spec_, credentials_, hosts_, head::ServerPlace{{"192.0.2.1"}, 1}),
      tasks_(io_.get_executor()) {
    head_.add_starter(std::make_unique<head::LoginStarter>(
        head::LoginStarter::Parts{io_.get_executor(), spec_, hosts_, configs_,
                                  static_cast<head::ChannelOpener&>(*this), credentials_.secret}));
    asio::co_spawn(io_, head_.run(), [this](std::exception_ptr error, int) {
        if (error) std::rethrow_exception(error);
        // The program ends, and its descriptors are closed.
        script_.world.at(script_.world.now(), [this] {
            if (process_.is_alive()) process_.machine().kill();
        });
    });
}

asio::awaitable<Result<std::unique_ptr<transport::Channel>>> JoinHost::open(
    HostId, head::AgentRun run, Deadline, std::function<void(const char*)> phase) {
    phase("start");
    auto said = std::make_shared<std::string>();
    auto news = std::make_shared<Timer>(io_, Timer::time_point::max());
    Pair input = socket_pair();
    auto channel =
        std::make_unique<FakeChannel>(io_.get_executor(), said, std::move(input.first), news);
    Result<std::unique_ptr<transport::Channel>> opened;
    if (run.task == head::AgentTask::sweep) {
        *said = "0\n";
    } else {
        channel_ = channel->handle();
        agent::AgentParts parts = agent_parts();
        parts.lifeline = std::move(input.second);
        parts.say = [said, news](std::string_view line) {
            *said += std::string(line) + "\n";
            news->cancel();
        };
        agent_ = std::make_unique<agent::Agent>(io_, std::move(parts));
        tasks_.spawn(run_agent());
    }
    opened = std::move(channel);
    co_return opened;
}

agent::AgentParts JoinHost::agent_parts() {
    static char* no_environment[] = {nullptr};
    agent::AgentParts parts;
    parts.host_env = no_environment;
    parts.connect = [this](std::vector<std::string>, std::uint16_t, Credentials, Deadline) {
        return connect();
    };
    parts.make_runner = [this](std::function<void(const Exited&)> exited,
                               std::function<void(std::string)>) {
        auto ranks = std::make_unique<Ranks>(*this, std::move(exited));
        ranks_ = ranks.get();
        return ranks;
    };
    parts.make_services = [](const agent::ServiceParts&) { return agent::Services(); };
    parts.load = [] { return false; };
    parts.reserve_ports = [](std::uint32_t) { return agent::ReservedPorts(); };
    parts.connected = [] {};
    return parts;
}

asio::awaitable<void> JoinHost::run_agent() {
    co_await agent_->run();
    FakeChannel::close(channel_);
}

asio::awaitable<Result<Connection>> JoinHost::connect() {
    Pair pair = socket_pair();
    tcp::socket to_agent(io_);
    to_agent.assign(tcp::v4(), pair.first.release());
    head_.admit({std::move(to_agent), std::nullopt});
    tcp::socket to_head(io_);
    to_head.assign(tcp::v4(), pair.second.release());
    Result<Connection> connection = Connection{std::move(to_head), std::nullopt};
    co_return connection;
}

/// A rank's program.
void JoinHost::run_rank(std::uint64_t generation, Rank rank, const std::string& socket) {
    process_.start_thread([this, generation, rank, socket] {
        World& world = script_.world;
        embedded::Surroundings found;
        found.launcher = embedded::Launcher::agent;
        found.socket = socket;
        found.info.rank = std::to_underlying(rank);
        found.info.generation = generation;
        Client client(std::move(found), std::nullopt, Client::Role::rank);
        const auto is_ended = [this, generation, rank] { return !ranks_->runs(generation, rank); };
        const std::string who =
            fmt::format("{}#{}/{}/{}", process_.machine().name(), number_, generation, rank);
        StoreUser user(script_, client, name_, who);
        user.gives_up = is_ended;
        Outcome<void> done = client.start({world.now() + seconds(60), is_ended});
        if (done)
            done = user.take_place(fmt::format("{}#{}.{}", process_.machine().name(), number_,
                                               client.rank_info().local_rank));
        while (done && !script_.over && job_.name() == name_ && !is_ended()) {
            done = user.do_something();
            if (done && world.draw_chance(0.05)) done = user.meet();
            // Its generation is over; the agent ends the rank in a moment.
            if (!done && done.error().code == DTRUN_STALE) done = {};
            pause(world, milliseconds(script_.calm ? 100 : 20));
        }
        client.leave(done ? "" : "it has failed", {});
        ranks_->end(generation, rank, done ? 0 : 1);
        process_.wake_loop();
    });
}

}  // namespace

void join_host(Script& script, Process& process, Script::Job& job) {
    new JoinHost(script, process, job);  // is left as it stands
}

}  // namespace dtrun::simulation
