#include "tests/loopback/simulation.h"

#include "base/log.h"
#include "launcher/head/agent_config_builder.h"
#include "launcher/plan/job_plan.h"
#include "rendezvous/wire/output_messages.h"
#include "rendezvous/wire/rank_messages.h"
#include "tests/loopback/head_parts.h"
#include "tests/loopback/host_parts.h"
#include "tests/support/heap.h"
#include "tests/support/messages_of.h"

#include <malloc.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <list>

namespace dtrun::loopback {
namespace {

int times_given_back = 0;

}  // namespace
}  // namespace dtrun::loopback

/// The C library's gives freed memory back to the system. Here it is seen that it was to: what the system is given back
/// depends on what other tests have left.
extern "C" int malloc_trim(std::size_t) noexcept {
    ++dtrun::loopback::times_given_back;
    return 0;
}

namespace dtrun::loopback {
namespace {

/// By then nothing of an agent that is lost runs any more.
constexpr std::chrono::seconds kLeftFor{6};

class World final : public head::ChannelOpener, private watch::EventListener {
public:
    World(const Script& script, std::uint32_t seed);
    ~World();
    Ending run();
    /// What has been shown, and what has happened on the hosts, for a job that hangs.
    std::string story() const;

    asio::awaitable<Result<std::unique_ptr<transport::Channel>>> open(
        HostId host, head::AgentRun run, Deadline deadline,
        std::function<void(const char*)> phase) override;
    asio::awaitable<std::optional<head::RelayLogin>> by_relay(HostId host, Deadline) override;

private:
    void happened(const watch::Event& event) override;
    void at(milliseconds when, std::function<void()> what);
    asio::awaitable<void> do_at(milliseconds when, std::function<void()> what);
    void plan_events();
    void start_agent(HostId host, Fd lifeline, std::function<void(std::string_view)> say,
                     std::function<void()> over);
    agent::AgentParts agent_parts(HostId host);
    asio::awaitable<void> run_agent(HostId host, agent::Agent& agent, std::function<void()> over);
    /// An ssh on a host.
    struct Ssh {
        Fd in, out, err;
        std::function<void(std::string)> ended;
        bool over = false;
    };
    agent::LoginProgram log_in_from(HostId relay, const LoginOrder& order,
                                    std::function<void(std::string)> ended);
    asio::awaitable<void> run_ssh(std::shared_ptr<Ssh> ssh, HostId relay, HostId host);
    asio::awaitable<void> pass_input(Fd from, Fd to);
    void end_ssh(Ssh& ssh, const std::string& ending);
    void rank_starts(HostId host, const FakeRanks::Request& request, bool elastic);
    HostId machine(HostId host) const;
    int sweep(HostId host, std::uint64_t agent);
    asio::awaitable<Result<Connection>> connect(HostId host);
    asio::awaitable<Result<void>> check_health(HostId host);
    asio::awaitable<std::vector<ProcessStacks>> take_stacks(
        std::vector<ranks::RunningRank> running);
    void lose_power(HostId host);
    void happen(const Script::Happening& happening);
    void list(HostId host, int slots);
    RankScript script_of(HostId host, const FakeRanks::Request& request);
    void rank_ended(HostId host, const Exited& exited, const FakeRanks::Process& process);
    void look();
    asio::awaitable<void> last(Script::Lasting lasting);
    std::optional<std::uint64_t> whole_world() const;
    milliseconds elapsed() const {
        return std::chrono::duration_cast<milliseconds>(Clock::now() - begun_);
    }
    void wrong(const std::string& what) { wrong_ = wrong_.empty() ? what : wrong_; }
    void note(std::string text);

    const Script& script_;
    std::mt19937 random_;
    Randomness randomness_{random_};
    VirtualTime time_;
    asio::io_context io_{1};
    Deadline begun_ = Clock::now();
    plan::JobSpec spec_;
    head::JobCredentials credentials_;
    std::unique_ptr<head::Hosts> hosts_;
    std::unique_ptr<MemoryOutput> output_;
    std::unique_ptr<head::Head> head_;
    std::unique_ptr<head::AgentConfigBuilder> configs_;
    PerHost<HostHere> here_;
    TaskGroup tasks_{io_.get_executor()};
    std::size_t logins_ = 0;
    PerHost<int> listed_;                       ///< how many slots of a host the job may use
    PerHost<std::optional<Deadline>> cooling_;  ///< until when a host that was lost is left alone
    std::string wrong_;                         ///< what must not be, and is
    std::map<std::uint64_t, std::map<Rank, HostId>> started_;  ///< by generation
    struct Met {
        std::size_t size = 0;
        std::map<Rank, HostId> ranks{};
    };
    std::map<std::uint64_t, Met> met_;
    Ending ending_;
};

plan::JobSpec make_spec(const Script& script) {
    plan::Options options;
    int host = 0;
    int ranks = 0;
    for (const int slots : script.ranks_on_host) {
        const auto does = script.hosts.find(static_cast<HostId>(host));
        if (does != script.hosts.end() && does->second.listed) break;
        options.hosts += fmt::format("{}h{}:{}", host == 0 ? "" : ",", host, slots);
        ++host;
        ranks += slots;
    }
    options.world_size = ranks;
    options.program = {script.program};
    options.contracts = {"none"};
    options.stdin_target.kind = StdinTarget::Kind::none;
    options.transport = plan::Transport::ssh;
    options.tree_threshold = 10'000;
    options.verbosity = log::Level::normal;
    if (std::getenv("DTRUN_SIMULATION_LOG") != nullptr) options.verbosity = log::Level::verbose;
    script.options(options);
    auto spec = plan::make_job_spec(std::move(options), {}, "/");
    if (!spec) throw std::runtime_error(spec.error().message);
    for (plan::JobHost& target : spec->hosts) {  // whatever ~/.ssh/config says here
        target.transport = plan::Transport::ssh;
        target.ssh.emplace();
    }
    for (const auto& [which, does] : script.hosts) {
        if (does.is_here) spec->hosts[which].transport = plan::Transport::local;
        if (!does.behind.empty()) spec->hosts[which].ssh->route = does.behind;
    }
    return std::move(*spec);
}

World::World(const Script& script, std::uint32_t seed)
    : script_(script),
      random_(seed),
      spec_(make_spec(script)),
      here_(script.ranks_on_host.size()),
      listed_(script.ranks_on_host.size(), 0),
      cooling_(script.ranks_on_host.size()) {
    for (const HostId host : spec_.hosts.hosts())
        listed_[host] = script.ranks_on_host[std::to_underlying(host)];
    hosts_ = std::make_unique<head::Hosts>(spec_);
    output_ = std::make_unique<MemoryOutput>(io_.get_executor(), [this] {
        if (head_) head_->output_left();
    });
    log::set_sink(
        [](void* out, std::string_view line) { static_cast<MemoryOutput*>(out)->message(line); },
        output_.get());
    head_ = std::make_unique<head::Head>(io_, spec_, *hosts_, *output_,
                                         [this] { note("dtrun stops itself"); });
    head_->record().add_listener(*this);
    head_->set_started([this] { ending_.events_before_start = ending_.events.size(); });
    configs_ = std::make_unique<head::AgentConfigBuilder>(spec_, credentials_, *hosts_,
                                                          head::ServerPlace{{"192.0.2.1"}, 1});
    head_->add_starter(std::make_unique<head::LoginStarter>(
        head::LoginStarter::Parts{io_.get_executor(), spec_, *hosts_, *configs_,
                                  static_cast<head::ChannelOpener&>(*this), credentials_.secret}));
    plan_events();
}

World::~World() {
    log::set_sink(nullptr, nullptr);
}

void World::happened(const watch::Event& event) {
    if (!script_.lasting) ending_.events.push_back(event);
    if (event.kind != watch::EventKind::host_lost || !spec_.options.elastic) return;
    const std::string_view lost = event.fields.at("host").as_string();
    for (const HostId host : here_.hosts())
        if (lost == fmt::format("h{}", host) && listed_[host] > 0)
            cooling_[host] = after(spec_.options.elastic->cooldown_min);
}

void World::note(std::string text) {
    if (script_.lasting) return;
    const auto ms = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begun_);
    ending_.log.push_back(fmt::format("{} us: {}", ms.count(), text));
}

std::string World::story() const {
    std::string text = output_->text();
    for (const HostId host : here_.hosts()) {
        if (!hosts_->has(host)) continue;
        const head::HostState& state = (*hosts_)[host];
        text += fmt::format("h{}: {}, {}{}{}, {} ranks run\n", host, state.phase,
                            state.joined ? "joined" : "not joined", state.done ? ", done" : "",
                            here_[host].gone ? ", without power" : "", here_[host].running());
    }
    for (const std::string& line : ending_.log) text += line + "\n";
    return text;
}

asio::awaitable<void> World::do_at(milliseconds when, std::function<void()> what) {
    Timer timer(io_, begun_ + when);
    co_await timer.async_wait(use_tuple);
    what();
}

void World::at(milliseconds when, std::function<void()> what) {
    tasks_.spawn(do_at(when, std::move(what)));
}

void World::plan_events() {
    for (const auto& [when, signal] : script_.signals)
        at(when, [this, signal = signal] { head_->signalled(signal); });
    for (const Script::Kill& kill : script_.kills)
        at(kill.when, [this, kill] {
            for (FakeRanks* const each : here_[kill.host].ranks) each->kill_at(kill.place);
        });
    for (const Script::Kill& ask : script_.asks)
        at(ask.when, [this, ask] {
            for (FakeRanks* const each : here_[ask.host].ranks) each->ask_at(ask.place);
        });
    for (const Script::Happening& happening : script_.happenings)
        at(happening.when, [this, happening] { happen(happening); });
    for (const milliseconds when : script_.looks) at(when, [this] { look(); });
    if (script_.lasting) {
        output_->keep_last(16 << 10);
        tasks_.spawn(last(*script_.lasting));
    }
    if (script_.reader_pauses) {
        at(script_.reader_pauses->first, [this] { output_->pause(true); });
        at(script_.reader_pauses->second, [this] { output_->pause(false); });
    }
    if (script_.stopped)
        at(script_.stopped->first, [this] { time_.stand_still(script_.stopped->second); });
    for (const auto& [host, does] : script_.hosts) {
        const HostId which = host;
        for (const auto& when : {does.listed, does.relisted})
            if (when)
                at(*when, [this, which] {
                    list(which, script_.ranks_on_host[std::to_underlying(which)]);
                });
        const auto happens = [this, which](const std::optional<milliseconds>& when, Mishap what,
                                           Way way = Way::both) {
            if (when) at(*when, [=, this] { happen({{}, which, what, way}); });
        };
        happens(does.delisted, Mishap::delisted);
        happens(does.loses_power, Mishap::loses_power);
        happens(does.gets_power, Mishap::gets_power);
        happens(does.agent_killed, Mishap::agent_killed);
        happens(does.cut_off, Mishap::cut_off);
        if (!does.stalled) continue;
        happens(does.stalled->first, Mishap::stalls, does.stalled_way);
        happens(does.stalled->second, Mishap::delivers);
    }
}

void World::happen(const Script::Happening& happening) {
    const HostId host = happening.host;
    HostHere& here = here_[host];
    switch (happening.what) {
        case Mishap::loses_power:
            return lose_power(host);
        case Mishap::gets_power:
            here.gone = false;
            return;
        case Mishap::agent_killed:
            here.vanish();
            FakeChannel::close(here.channel);
            return here.cut();
        case Mishap::cut_off:
            here.cut();
            return FakeChannel::close(here.channel);
        case Mishap::stalls:
            return here.stall(happening.way);
        case Mishap::delivers:
            if (!here.gone) here.stall(std::nullopt);
            return;
        case Mishap::listed:
            return list(host, happening.slots);
        case Mishap::delisted:
            listed_[host] = 0;
            cooling_[host]
                .reset();  // should it be listed again, its user thinks that it can be used
            return head_->delist_host(fmt::format("h{}", host));
    }
}

void World::list(HostId host, int slots) {
    Host listed;
    listed.name = fmt::format("h{}", host);
    listed.slots = listed_[host] = slots;
    head_->list_host(listed);
}

void World::look() {
    auto& seen = ending_.looks.emplace_back();
    for (const HostId host : here_.hosts())
        for (const FakeRanks* const each : here_[host].ranks)
            for (const FakeRanks::Process& process : each->processes())
                seen.push_back({elapsed(), host, process});
}

/// The generation of the world in which all ranks are, if they are in one.
std::optional<std::uint64_t> World::whole_world() const {
    std::optional<std::uint64_t> world;
    std::uint32_t ranks = 0;
    for (const HostHere& here : here_)
        for (const FakeRanks* const each : here.ranks)
            for (const FakeRanks::Process& process : each->processes()) {
                if (!process.has_place || process.generation != world.value_or(process.generation))
                    return std::nullopt;
                world = process.generation;
                ++ranks;
            }
    return ranks == spec_.placement.ranks.size() ? world : std::nullopt;
}

asio::awaitable<void> World::last(Script::Lasting lasting) {
    Timer timer(io_, begun_);
    ending_.heap.reserve(static_cast<std::size_t>(lasting.changes));
    for (int change = 0; change < lasting.changes; ++change) {
        timer.expires_at(timer.expiry() + lasting.change_every - lasting.weighed_after);
        co_await timer.async_wait(use_tuple);
        const HostId host{static_cast<std::uint32_t>(random_() % here_.size())};
        const auto places = static_cast<unsigned>(script_.ranks_on_host[std::to_underlying(host)]);
        for (FakeRanks* const each : here_[host].ranks)
            each->kill_at(SlotIndex{static_cast<std::uint32_t>(random_() % places)});
        timer.expires_at(timer.expiry() + lasting.weighed_after);
        co_await timer.async_wait(use_tuple);
        if (const auto world = whole_world()) {
            ++ending_.changes;
            started_.erase(started_.begin(), started_.lower_bound(*world));
            met_.erase(met_.begin(), met_.lower_bound(*world));
        }
        ending_.heap.push_back(heap_bytes());
    }
}

/// Nothing runs there any more, and packets to it are lost.
void World::lose_power(HostId host) {
    here_[host].gone = true;
    here_[host].vanish();
    here_[host].stall(Way::both);
}

asio::awaitable<Result<std::unique_ptr<transport::Channel>>> World::open(
    HostId host, head::AgentRun run, Deadline deadline, std::function<void(const char*)> phase) {
    const auto found = script_.hosts.find(host);
    const HostScript does = found == script_.hosts.end() ? HostScript{} : found->second;
    ++logins_;
    ++ending_.logins;
    ending_.logins_max = std::max(ending_.logins_max, logins_);
    const bool sweeps = run.task == head::AgentTask::sweep;
    if (sweeps) ++ending_.sweeps;
    if (!sweeps && listed_[host] == 0) wrong(fmt::format("h{} is used, and is not listed", host));
    if (!sweeps && cooling_[host] && Clock::now() < *cooling_[host])
        wrong(fmt::format("h{} is used again too soon after it was lost", host));
    const bool hangs = does.login == Login::hangs || here_[host].gone;
    phase(hangs ? "connecting" : "log-in");
    const std::chrono::microseconds jitter(random_() % 2'000);
    Timer timer(io_);
    const milliseconds takes = sweeps ? does.sweep_takes : does.login_takes;
    timer.expires_at(hangs ? deadline : std::min(deadline, after(takes + jitter)));
    co_await timer.async_wait(use_tuple);
    --logins_;
    Result<std::unique_ptr<transport::Channel>> opened;
    if (Clock::now() >= deadline)
        opened = fail(Errc::timed_out, "ssh: no answer");
    else if (does.not_ready && Clock::now() < begun_ + does.not_ready->first)
        opened = fail(does.not_ready->second, "ssh: not ready");
    else if (does.login == Login::refused)
        opened = fail(Errc::denied, "ssh: it does not know this key");
    if (!opened) co_return opened;
    auto said = std::make_shared<std::string>();
    auto news = std::make_shared<Timer>(io_, Timer::time_point::max());
    Pair input = socket_pair();
    auto channel =
        std::make_unique<FakeChannel>(io_.get_executor(), said, std::move(input.first), news);
    if (sweeps) {
        *said = fmt::format("{}\n", sweep(host, run.agent));
        opened = std::move(channel);
        co_return opened;
    }
    here_[host].channel = channel->handle();
    const auto say = [said, news](std::string_view line) {
        *said += std::string(line) + "\n";
        news->cancel();
    };
    if (does.login != Login::says_nothing)
        start_agent(host, std::move(input.second), say,
                    [handle = channel->handle()] { FakeChannel::close(handle); });
    opened = std::move(channel);
    co_return opened;
}

asio::awaitable<std::optional<head::RelayLogin>> World::by_relay(HostId host, Deadline) {
    LoginOrder order;
    order.host = fmt::format("h{}", host);
    order.command = "agent";
    co_return head::RelayLogin{std::move(order), ""};
}

agent::LoginProgram World::log_in_from(HostId relay, const LoginOrder& order,
                                       std::function<void(std::string)> ended) {
    ++ending_.by_relays;
    if (order.command != "agent") wrong("a relay does not know what to run");
    const HostId host{static_cast<std::uint32_t>(std::stoul(order.host.substr(1)))};
    Pair in = socket_pair(), out = socket_pair(), err = socket_pair();
    const auto ssh = std::make_shared<Ssh>(
        Ssh{std::move(in.second), std::move(out.second), std::move(err.second), std::move(ended)});
    tasks_.spawn(run_ssh(ssh, relay, host));
    return {std::move(in.first), std::move(out.first), std::move(err.first),
            [this, ssh] { end_ssh(*ssh, "signal 9"); }};
}

asio::awaitable<void> World::run_ssh(std::shared_ptr<Ssh> ssh, HostId relay, HostId host) {
    const auto script_of_host = [this](HostId which) {
        const auto found = script_.hosts.find(which);
        return found == script_.hosts.end() ? HostScript{} : found->second;
    };
    const HostScript does = script_of_host(host);
    Timer timer(io_, does.by_relay_takes + std::chrono::microseconds(random_() % 2'000));
    co_await timer.async_wait(use_tuple);
    if (does.by_relay == Login::hangs || here_[host].gone || ssh->over) co_return;
    const auto write = [ssh](const Fd& to, std::string_view line) {
        const std::string text = std::string(line) + "\n";
        if (!ssh->over && ::write(to.get(), text.data(), text.size()) < 0) return;
    };
    if (does.by_relay == Login::refused || !script_of_host(relay).has_key) {
        write(ssh->err, fmt::format("u@h{}: Permission denied (publickey).", host));
        co_return end_ssh(*ssh, "exit status 255");
    }
    if (does.by_relay == Login::says_nothing) co_return;
    Pair lifeline = socket_pair();
    tasks_.spawn(pass_input(std::move(ssh->in), std::move(lifeline.first)));
    start_agent(
        host, std::move(lifeline.second),
        [ssh, write](std::string_view line) { write(ssh->out, line); },
        [this, ssh] { end_ssh(*ssh, "exit status 0"); });
}

/// Here agents behind a relay are connected to the head, and a relay does not wait for them: an end is late, so that they
/// are done before, as in a tree.
asio::awaitable<void> World::pass_input(Fd from, Fd to) {
    Unix::socket in(io_), out(io_);
    in.assign(Unix(), from.release());
    out.assign(Unix(), to.release());
    co_await pass_on(in, out);
    Timer late(io_, std::chrono::seconds(1));
    co_await late.async_wait(use_tuple);
}

void World::end_ssh(Ssh& ssh, const std::string& ending) {
    if (std::exchange(ssh.over, true)) return;
    ssh.in.reset();
    ssh.out.reset();
    ssh.err.reset();
    asio::post(io_, [ended = ssh.ended, ending] { ended(ending); });
}

void World::start_agent(HostId host, Fd lifeline, std::function<void(std::string_view)> say,
                        std::function<void()> over) {
    agent::AgentParts parts = agent_parts(host);
    parts.lifeline = std::move(lifeline);
    parts.say = std::move(say);
    here_[host].agents.push_back(std::make_unique<agent::Agent>(io_, std::move(parts)));
    tasks_.spawn(run_agent(host, *here_[host].agents.back(), std::move(over)));
}

agent::AgentParts World::agent_parts(HostId host) {
    static char* no_environment[] = {nullptr};
    agent::AgentParts parts;
    parts.host_env = no_environment;
    parts.connect = [this, host](std::vector<std::string>, std::uint16_t, Credentials, Deadline) {
        return connect(host);
    };
    parts.check_health = [this, host](const ranks::RankCommand&) { return check_health(host); };
    if (script_.look_takes)
        parts.take_stacks = [this](std::vector<ranks::RunningRank> running,
                                   const contracts::Environment&,
                                   const StackRequest&) { return take_stacks(std::move(running)); };
    parts.make_runner = [this, host](std::function<void(const Exited&)> exited,
                                     std::function<void(std::string)>) {
        const auto told = [this, host, exited](const Exited& what,
                                               const FakeRanks::Process& process) {
            rank_ended(host, what, process);
            exited(what);
        };
        const auto welcomed = [this, host](const Welcome& welcome) {
            ending_.last_place = elapsed();
            Met& met = met_[welcome.generation];
            met.size = welcome.world_size;
            if (!met.ranks.emplace(welcome.rank, host).second && met.ranks[welcome.rank] != host)
                wrong(fmt::format("rank {} of world {} is given twice", welcome.rank,
                                  welcome.generation));
        };
        const auto is_complete = [this](std::uint64_t generation) {
            return met_[generation].ranks.size() == met_[generation].size;
        };
        auto ranks = std::make_unique<FakeRanks>(
            io_.get_executor(), random_,
            [this, host](const FakeRanks::Request& request) { return script_of(host, request); },
            told, welcomed, is_complete);
        here_[host].ranks.push_back(ranks.get());
        return ranks;
    };
    parts.make_services = [this, host](const agent::ServiceParts& needed) {
        const bool has_framework = spec_.contracts != std::vector<std::string>{"none"};
        agent::Services services = has_framework ? agent::make_services(needed) : agent::Services{};
        const auto found = script_.hosts.find(host);
        if (found != script_.hosts.end() && !found->second.warns.empty())
            services.push_back(std::make_unique<Warns>(needed.tell_head, found->second.warns));
        return services;
    };
    if (const auto does = script_.hosts.find(host); does != script_.hosts.end())
        parts.machine = does->second.machine;
    parts.load = [] { return false; };
    parts.reserve_ports = [](std::uint32_t) { return agent::ReservedPorts(); };
    parts.connected = [] {};
    parts.start_login = [this, host](const LoginOrder& order,
                                     std::function<void(std::string)> ended) {
        return Result<agent::LoginProgram>(log_in_from(host, order, std::move(ended)));
    };
    return parts;
}

asio::awaitable<std::vector<ProcessStacks>> World::take_stacks(
    std::vector<ranks::RunningRank> running) {
    Timer timer(io_, *script_.look_takes);
    co_await timer.async_wait(use_tuple);
    std::vector<ProcessStacks> stacks;
    for (const ranks::RunningRank& rank : running) {
        const std::string place = rank.rank == Rank{1} ? "load_batch (train.py:5)"
                                                       : "all_reduce (torch/distributed/d.py:2)";
        ProcessStacks& process = stacks.emplace_back();
        process.rank = rank.rank;
        process.pid = rank.pid;
        process.program = "python3";
        process.tool = "faulthandler";
        process.threads = {{"MainThread", 1, {place, "<module> (train.py:9)"}}};
    }
    co_return stacks;
}

asio::awaitable<void> World::run_agent(HostId host, agent::Agent& agent,
                                       std::function<void()> over) {
    const int status = co_await agent.run();
    note(fmt::format("the agent of h{} ended with {}", host, status));
    over();  // its standard streams end with it
}

RankScript World::script_of(HostId host, const FakeRanks::Request& request) {
    const auto rank = std::to_underlying(request.rank);
    const auto attempt = script_.attempts.find({request.generation, rank});
    const auto always = script_.ranks.find(rank);
    RankScript script;
    if (attempt != script_.attempts.end())
        script = attempt->second;
    else if (always != script_.ranks.end())
        script = always->second;
    script.life = std::max(script.life, script.until - elapsed());
    rank_starts(host, request, script.elastic);
    return script;
}

/// \param elastic  it may be to join others, and be given up before these go on
void World::rank_starts(HostId host, const FakeRanks::Request& request, bool elastic) {
    ending_.last_start = elapsed();
    const bool is_first = started_[request.generation].insert_or_assign(request.rank, host).second;
    if (!is_first && !elastic)
        throw std::runtime_error(fmt::format("rank {} was started twice", request.rank));
    // What a lost agent leaves is gone by then.
    const auto& asked = spec_.options.elastic;
    if (!asked || asked->cooldown_min < kLeftFor) return;
    for (const FakeRanks* const each : here_[host].ranks)
        for (const FakeRanks::Process& process : each->processes())
            if (process.place == request.place)
                wrong(fmt::format("two processes in place {} of h{}", request.place, host));
}

void World::rank_ended(HostId host, const Exited& exited, const FakeRanks::Process& process) {
    note(fmt::format("rank {} of h{} ended, code {} signal {}", exited.rank, host, exited.code,
                     exited.signal));
    if (script_.lasting) return;
    ending_.ends.push_back(
        {elapsed(), host, process, exited.code, exited.signal, exited.sent_signal});
}

HostId World::machine(HostId host) const {
    const auto found = script_.hosts.find(host);
    return found == script_.hosts.end() ? host : found->second.also.value_or(host);
}

int World::sweep(HostId host, std::uint64_t agent) {
    int killed = 0;
    for (const HostId other : here_.hosts())
        if (machine(other) == machine(host))
            for (FakeRanks* const each : here_[other].ranks) killed += each->sweep(agent);
    return killed;
}

asio::awaitable<Result<void>> World::check_health(HostId host) {
    const auto found = script_.hosts.find(host);
    const HostScript does = found == script_.hosts.end() ? HostScript{} : found->second;
    Timer timer(io_, does.check_takes);
    co_await timer.async_wait(use_tuple);
    const auto since = Clock::now() - begun_;
    if (does.unhealthy && since >= does.unhealthy->first && since < does.unhealthy->second)
        co_return fail(Errc::internal, "--health-check: ended with exit code 1: no disk");
    co_return Result<void>{};
}

asio::awaitable<Result<Connection>> World::connect(HostId host) {
    const auto found = script_.hosts.find(host);
    const Login login = found == script_.hosts.end() ? Login::works : found->second.login;
    Result<Connection> refused = fail(Errc::unreachable, "192.0.2.1: no route");
    if (login == Login::cannot_connect) co_return refused;
    if (login == Login::dies_with_config || here_[host].gone) {
        FakeChannel::close(here_[host].channel);
        co_return refused;
    }
    Pair agents = socket_pair();
    Pair heads = socket_pair();
    here_[host].wires.push_back(std::make_unique<Wire>(
        io_.get_executor(), random_, std::move(agents.second), std::move(heads.second),
        script_.hosts.contains(host) ? script_.hosts.at(host).slow : milliseconds(0)));
    if (login == Login::speaks_before_join) {
        const Bytes frame = encode(Heartbeat{});
        if (::write(agents.first.get(), frame.data(), frame.size()) < 0) co_return refused;
    }
    tcp::socket to_agent(io_);
    to_agent.assign(tcp::v4(), heads.first.release());
    head_->admit({std::move(to_agent), std::nullopt});
    tcp::socket to_head(io_);
    to_head.assign(tcp::v4(), agents.first.release());
    Result<Connection> connection = Connection{std::move(to_head), std::nullopt};
    co_return connection;
}

Ending World::run() {
    times_given_back = 0;
    bool over = false;
    asio::co_spawn(io_, head_->run(), [&](std::exception_ptr error, int code) {
        if (error) std::rethrow_exception(error);
        ending_.code = code;
        over = true;
    });
    time_.run(
        io_,
        [&] {
            if (!wrong_.empty()) throw std::runtime_error(wrong_);
            return over;
        },
        begun_ + std::chrono::hours(2) +
            (script_.lasting ? script_.lasting->change_every * script_.lasting->changes
                             : milliseconds(0)));
    ending_.took = std::chrono::duration_cast<milliseconds>(Clock::now() - begun_);
    ending_.shown = output_->text();
    ending_.view = head_->record().view({});
    ending_.output = output_->bytes();
    ending_.given_back = times_given_back;
    const head::AgentRouter& router = head_->router();
    ending_.head_receives = types_with([&router](FrameType type) {
        return router.connections.has(type) != router.hosts.has(type);
    });
    if (const HostHere& first = here_[HostId{0}]; !first.agents.empty())
        ending_.agent_receives = types_with(
            [&first](FrameType type) { return first.agents.back()->router().has(type); });
    const auto written = [](std::uint64_t generation, const std::map<Rank, HostId>& hosts) {
        std::string text = fmt::format("{}: ", generation);
        for (const auto& [rank, host] : hosts) text += fmt::format("{}", host);
        return text;
    };
    for (const auto& [generation, hosts] : started_)
        ending_.started.push_back(written(generation, hosts));
    for (const auto& [generation, met] : met_)
        ending_.met.push_back(written(generation, met.ranks));
    // The process ends: lifelines and connections with it. Agents have the promised time.
    for (HostHere& here : here_) FakeChannel::close(here.channel);
    bool joined = false;
    asio::co_spawn(io_, head_->join(), [&](std::exception_ptr error) {
        if (error) std::rethrow_exception(error);
        joined = true;
    });
    const Deadline promised = Clock::now() + std::chrono::seconds(15);
    bool waited = false;
    tasks_.spawn(
        do_at(std::chrono::duration_cast<milliseconds>(promised - begun_), [&] { waited = true; }));
    time_.run(
        io_, [&] { return joined && waited; }, promised + std::chrono::hours(1));
    for (const HostHere& here : here_)
        if (!here.gone) ending_.left += here.running();
    for (const HostHere& here : here_)
        for (const FakeRanks* const each : here.ranks)
            ending_.saves_cut_short += each->saves_cut_short();
    bool all = false;
    const auto join_all = [](World& world) -> asio::awaitable<void> {
        for (HostHere& here : world.here_)
            for (const auto& wire : here.wires) co_await wire->join();
        for (HostHere& here : world.here_)
            for (FakeRanks* const each : here.ranks) co_await each->join();
        world.tasks_.stop();
        co_await world.tasks_.join();
    };
    asio::co_spawn(io_, join_all(*this), [&](std::exception_ptr error) {
        if (error) std::rethrow_exception(error);
        all = true;
    });
    time_.run(
        io_, [&] { return all; }, Clock::now() + std::chrono::hours(1));
    return ending_;
}

}  // namespace

Ending simulate(const Script& script, std::uint32_t seed) {
    auto world = std::make_unique<World>(script, seed);
    try {
        return world->run();
    } catch (const std::runtime_error& hangs) {
        World* const stands = world.release();  // as it is: its coroutines have not ended
        throw std::runtime_error(fmt::format("{}\n{}", hangs.what(), stands->story()));
    }
}

}  // namespace dtrun::loopback
