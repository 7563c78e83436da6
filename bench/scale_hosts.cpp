// srun, as `./dev bench scale` has it: plays the agents of all nodes that dtrun asks for, in one process.
//
// To the head of the job nothing but their number is unusual: each node that connects to the head has a connection and a
// handshake of its own, those behind a relay speak through the relay's, and all say what real agents say. What ranks
// would do is made up: they meet at a fence, write a line each, and then one fails or SCALE_LOSSES hosts are lost, as
// the job is elastic or not. The file SCALE_FILE of the job's environment gets a line for each step of the story: its
// name, seconds, and what the head has used by then (its processor time in seconds, its memory and the most of that in KB).

#include "base/log.h"
#include "base/loop/task_group.h"
#include "base/strings.h"
#include "hostfiles/nodelist.h"
#include "rendezvous/job/tree.h"
#include "rendezvous/links/client.h"
#include "rendezvous/wire/exchange_messages.h"
#include "rendezvous/wire/member_messages.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/output_messages.h"
#include "rendezvous/wire/rank_messages.h"
#include "rendezvous/wire/relayed.h"
#include "rendezvous/wire/router.h"
#include "rendezvous/wire/start_messages.h"

#include <sys/resource.h>
#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace {

using namespace dtrun;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kConnecting = 800;  // at once: a head lets 1,024 of one address
constexpr milliseconds kBeat{500};
constexpr seconds kQuiet{2};  // in which nothing happens but heartbeats

/// Writes down how far the story has come, and what the head, which has started this process, has used.
class Notes {
public:
    explicit Notes(std::string path) : path_(std::move(path)) {}

    void write(const std::string& step) const {
        std::ofstream file(path_, std::ios::app);
        file << std::fixed << step << ' '
             << std::chrono::duration<double>(Clock::now().time_since_epoch()).count() << ' '
             << head_cpu_s() << ' ' << head_kb("VmRSS:") << ' ' << head_kb("VmHWM:") << '\n';
    }

private:
    double head_cpu_s() const {
        std::ifstream file("/proc/" + head_ + "/stat");
        std::string text;
        std::getline(file, text);
        text.erase(0, text.rfind(')') + 2);
        const auto fields = split(text, ' ');  // from the third on, which is the state
        constexpr std::size_t kUser = 11, kSystem = 12;
        if (fields.size() <= kSystem) return 0;
        const double ticks = std::atof(std::string(fields[kUser]).c_str()) +
                             std::atof(std::string(fields[kSystem]).c_str());
        return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
    }
    long head_kb(const std::string& name) const {
        std::ifstream file("/proc/" + head_ + "/status");
        std::string word;
        long kb = 0;
        while (file >> word)
            if (word == name) file >> kb;
        return kb;
    }

    std::string path_;
    std::string head_ = std::to_string(::getppid());
};

struct PlayedHost;

/// A connection to the head, and the hosts that speak through it.
struct Line {
    PlayedHost* holder = nullptr;  ///< who has joined over it itself
    std::vector<PlayedHost*> hosts;
    std::unique_ptr<Link> link;
    std::uint32_t arrived = 0;   ///< ranks at the fence of this generation
    std::uint32_t expected = 0;  ///< of them all
    std::uint32_t hosts_done = 0;
    bool is_closed = false;
};

/// What an agent knows of its host.
struct PlayedHost {
    HostId id{};
    std::string name;
    Line* line = nullptr;
    std::uint32_t slots = 0;
    std::uint64_t generation = 0;
    std::vector<RankSlot> ranks;  ///< that live
    bool is_stopped = false;
};

class Player {
public:
    Player(asio::io_context& io, AgentConfig config, const std::vector<std::string>& names)
        : io_(io),
          config_(std::move(config)),
          notes_(value_of("SCALE_FILE")),
          tasks_(io.get_executor()),
          beats_(io) {
        JobId job{};
        std::copy_n(config_.job_id.begin(), job.size(), job.begin());
        credentials_ = {
            job,
            Secret(std::span<const std::uint8_t, Secret::kBytes>(
                reinterpret_cast<const std::uint8_t*>(config_.secret.data()), Secret::kBytes)),
            config_.encrypt};
        is_whole_ = names.size() == config_.nodes.size();
        make_hosts(names);
        subscribe();
    }

    void start() {
        note("told");
        for (std::size_t i = 0; i < kConnecting; ++i) tasks_.spawn(connect_lines());
        tasks_.spawn(beat());
    }

private:
    /// What the head was given by -x.
    std::string value_of(std::string_view wanted) const {
        for (const auto& [name, value] : config_.env)
            if (name == wanted) return value;
        return {};
    }
    std::size_t number_to_lose() const {
        return static_cast<std::size_t>(std::atoi(value_of("SCALE_LOSSES").c_str()));
    }

    void make_hosts(const std::vector<std::string>& names) {
        const Tree tree(static_cast<std::uint32_t>(config_.nodes.size()),
                        config_.ranks_min > 0 ? UINT32_MAX
                                              : static_cast<std::uint32_t>(config_.tree_threshold));
        std::map<std::string_view, HostId> ids;
        for (const HostId id : all_hosts(config_.nodes.size()))
            ids[config_.nodes[std::to_underlying(id)]] = id;
        std::map<HostId, Line*> lines;
        for (const std::string& name : names) {
            const HostId id = ids.at(name);
            PlayedHost& host = hosts_.emplace_back();
            by_id_[id] = &host;
            host.id = id;
            host.name = name;
            host.slots = config_.binding.ranks[std::to_underlying(id)];
            const auto parent = is_whole_ ? tree.parent(id) : std::nullopt;
            if (!parent) {
                lines[id] = &lines_.emplace_back();
                lines[id]->holder = &host;
            }
            host.line = lines.at(parent.value_or(id));
            host.line->hosts.push_back(&host);
        }
    }

    void subscribe() {
        from_head_.on<Assign>(this, &Player::assigned);
        from_head_.on<Prepare>(this, &Player::prepared);
        from_head_.on<Notify>([this](PlayedHost* host, const Notify&) { ask(*host); });
        from_head_.on<ResetConnections>([this](PlayedHost* host, const ResetConnections& order) {
            if (order.world) ask(*host);
        });
        from_head_.on<QueryCommit>([this](PlayedHost* host, const QueryCommit& query) {
            say(*host, encode(ReadyToCommit{query.number}));
        });
        from_head_.on<EndRanks>(this, &Player::ended);
        from_head_.on<Probe>([this](PlayedHost* host, const Probe& probe) {
            say(*host, encode(Reached{probe.addresses, ""}));
        });
        from_head_.on<Stop>([this](PlayedHost* host, const Stop& stop) { stopped(*host, stop); });
        from_head_.on<Fenced>([this](PlayedHost*, const Fenced& fenced) { met(fenced); });
    }

    void note(const std::string& step) {
        if (is_whole_) notes_.write(step);
    }

    asio::awaitable<void> connect_lines() {
        while (next_line_ < lines_.size()) {
            Line& line = lines_[next_line_++];
            const Deadline deadline = after(seconds(300));
            auto connection =
                co_await connect_to_server(config_.addresses, config_.port, credentials_, deadline);
            if (!connection) {
                log::error("{}", connection.error().message);
                std::_Exit(1);
            }
            line.link = std::make_unique<Link>(std::move(*connection));
            tasks_.spawn(line.link->run_writer());
            tasks_.spawn(serve(line));
            for (PlayedHost* const host : line.hosts) join(*host);
        }
    }

    void join(const PlayedHost& host) {
        const std::uint32_t number = std::to_underlying(host.id);
        Join join;
        join.host = host.id;
        join.hostname = host.name;
        join.agent_pid = 1'000 + number;
        join.address = fmt::format("10.{}.{}.{}", number >> 16, (number >> 8) & 255, number & 255);
        join.interface = "ib0";
        join.addresses = {join.address};
        join.free_port = 20'000;
        join.directory = config_.directory;
        join.machine = "machine of " + host.name;
        if (host.line->hosts.size() > 1 && host.line->holder == &host) join.relay_port = 20'010;
        say(host, encode(join));
    }

    asio::awaitable<void> serve(Line& line) {
        const std::function<Result<void>(const FrameView&)> handle =
            [this, &line](const FrameView& frame) -> Result<void> {
            if (frame.type != FrameType::relayed) return hear(*line.holder, frame);
            const auto inner = decode_relayed(frame.payload);
            if (!inner) return std::unexpected(inner.error());
            return hear(*by_id_.at(inner->host), inner->frame);
        };
        co_await line.link->serve(handle);
        line.is_closed = true;
        line.link->close();
        if (++closed_ == lines_.size()) {
            note("closed");
            std::_Exit(0);
        }
    }

    Result<void> hear(PlayedHost& host, const FrameView& frame) {
        if (!from_head_.has(frame.type)) return {};
        return from_head_.route(&host, frame);
    }

    /// Sends a frame as this host's agent does, through its relay if it has one.
    void say(const PlayedHost& host, const Bytes& frame) {
        Line& line = *host.line;
        if (line.is_closed) return;
        std::string_view bytes(frame);
        const auto view = next_frame(bytes);
        if (line.holder == &host) return line.link->send_soon((*view)->type, (*view)->payload);
        line.link->send_soon(FrameType::relayed,
                             encode_relayed(host.id, (*view)->type, (*view)->payload));
    }

    asio::awaitable<void> beat() {
        for (;;) {
            beats_.expires_after(kBeat);
            co_await beats_.async_wait(use_tuple);
            for (Line& line : lines_)
                if (line.link && !line.is_closed) line.link->send(encode(Heartbeat{}));
        }
    }

    static std::int64_t pid_of(const PlayedHost& host, SlotIndex place) {
        return 100'000 + std::int64_t{std::to_underlying(host.id)} * 100 +
               std::to_underlying(place);
    }

    void assigned(PlayedHost* at, Assign assign) {
        PlayedHost& host = *at;
        Started started;
        started.generation = host.generation = assign.generation;
        host.ranks = std::move(assign.ranks);
        for (const RankSlot& rank : host.ranks) {
            started.ranks.push_back({rank.rank, rank.place, pid_of(host, rank.place)});
            if (is_elastic()) {
                say(host, encode(RejoinStatus{rank.place, RejoinState::supports_rejoin}));
                say(host, encode(RejoinStatus{rank.place, RejoinState::rendezvoused}));
            }
        }
        say(host, encode(started));
        Line& line = *host.line;
        if (line.holder == &host) line.expected = assign.ranks_below;
        if (generation_ != assign.generation) {
            generation_ = assign.generation;
            assigned_ = fenced_ = 0;
        }
        line.arrived += static_cast<std::uint32_t>(host.ranks.size());
        if (line.arrived == line.expected) {
            Fence fence;
            fence.generation = generation_;
            fence.name = "scale";
            fence.ranks = std::exchange(line.arrived, 0);
            line.link->send(encode(fence));
        }
        if (++assigned_ < hosts_.size() - lost_) return;
        note(fmt::format("generation_{}", generation_));
    }

    bool is_elastic() const { return config_.ranks_min > 0; }

    void met(const Fenced& fenced) {
        if (fenced.generation != generation_ || !fenced.complete) return;
        if (++fenced_ < lines_.size() - lost_) return;
        note(fmt::format("fence_{}", generation_));
        tasks_.spawn(go_on());
    }

    /// What happens next in the story.
    asio::awaitable<void> go_on() {
        const std::uint64_t generation = generation_;
        if (generation == 1 && is_whole_) {
            for (const PlayedHost& host : hosts_) write_lines(host);
            note("lines");
        }
        co_await sleep(kQuiet);
        note(fmt::format("quiet_{}", generation));
        if (!is_elastic()) co_return fail_one();
        if (generation == 1) co_return lose_some();
        // A lost one comes back, whose player sees one generation, the last; half of all do not.
        if (!is_whole_ || generation == 3 || lost_ > 1) end_all();
    }

    asio::awaitable<void> sleep(milliseconds span) {
        Timer timer(io_, span);
        co_await timer.async_wait(use_tuple);
    }

    void write_lines(const PlayedHost& host) {
        for (const RankSlot& rank : host.ranks) {
            const std::string text = fmt::format("rank {} has met all others\n", rank.rank);
            const auto header = encode_output_header({rank.place, Stream::out, 1},
                                                     static_cast<std::uint32_t>(text.size()));
            say(host, Bytes(header.begin(), header.end()) + text);
        }
    }

    void exited(PlayedHost& host, const RankSlot& rank, int code, int signal) {
        Exited exited;
        exited.generation = host.generation;
        exited.rank = rank.rank;
        exited.place = rank.place;
        exited.pid = pid_of(host, rank.place);
        exited.code = code;
        exited.signal = exited.sent_signal = signal;
        exited.ran_ns = 1'000'000'000;
        say(host, encode(exited));
        for (const Stream stream : {Stream::out, Stream::err})
            say(host, encode(OutputEnd{rank.place, stream}));
    }

    void fail_one() {
        PlayedHost& host = hosts_[hosts_.size() / 2];
        note("fails");
        exited(host, host.ranks.front(), 1, 0);
        host.ranks.erase(host.ranks.begin());
    }

    void lose_some() {
        note("loses");
        lost_ = number_to_lose();
        for (std::size_t i = lines_.size() - lost_; i < lines_.size(); ++i) {
            lines_[i].is_closed = true;
            lines_[i].link->close();
        }
    }

    void end_all() {
        note("ends");
        for (PlayedHost& host : hosts_) {
            if (host.line->is_closed) continue;
            for (const RankSlot& rank : host.ranks) exited(host, rank, 0, 0);
            host.ranks.clear();
        }
    }

    void prepared(PlayedHost* host, const Prepare& prepare) {
        for (const RankSlot& rank : prepare.world.ranks) {
            say(*host, encode(RejoinStatus{rank.place, RejoinState::supports_rejoin}));
            say(*host, encode(RejoinStatus{rank.place, RejoinState::held_at_start}));
        }
    }

    void ask(const PlayedHost& host) {
        for (const RankSlot& rank : host.ranks)
            say(host, encode(RejoinStatus{rank.place, RejoinState::wants_rank}));
    }

    void ended(PlayedHost* host, const EndRanks& order) {
        for (const SlotIndex place : order.places) {
            const auto rank = std::ranges::find(host->ranks, place, &RankSlot::place);
            if (rank == host->ranks.end()) continue;
            exited(*host, *rank, 0, order.signal);
            host->ranks.erase(rank);
        }
    }

    void stopped(PlayedHost& host, const Stop& stop) {
        if (std::exchange(host.is_stopped, true)) return;
        if (++stopped_ + lost_ == hosts_.size()) note("stop");
        for (const RankSlot& rank : host.ranks) exited(host, rank, 0, stop.signal);
        host.ranks.clear();
        Line& line = *host.line;
        if (&host != line.holder) say(host, encode(Done{}));
        // A relay is done when those behind it are.
        if (++line.hosts_done == line.hosts.size()) say(*line.holder, encode(Done{}));
    }

    asio::io_context& io_;
    AgentConfig config_;
    Credentials credentials_;
    bool is_whole_ = false;  ///< these are all hosts of the job, and not one that comes back
    std::deque<PlayedHost> hosts_;
    std::map<HostId, PlayedHost*> by_id_;
    std::deque<Line> lines_;
    std::size_t next_line_ = 0, closed_ = 0;
    std::size_t lost_ = 0;  ///< hosts that the head is to miss
    std::uint64_t generation_ = 0;
    std::size_t assigned_ = 0, fenced_ = 0, stopped_ = 0;
    Router<PlayedHost*> from_head_;
    Notes notes_;
    TaskGroup tasks_;
    Timer beats_;
};

/// Reads so many bytes of standard input.
std::string read_input(std::size_t bytes) {
    std::string text(bytes, '\0');
    for (std::size_t had = 0; had < bytes;) {
        const ssize_t got = ::read(STDIN_FILENO, text.data() + had, bytes - had);
        if (got <= 0) std::_Exit(1);
        had += static_cast<std::size_t>(got);
    }
    return text;
}

void say_of_each(const std::vector<std::string>& names, const std::string& text) {
    for (const std::string& name : names) std::printf("@%s %s\n", name.c_str(), text.c_str());
    std::fflush(stdout);
}

/// As the nodes of a step do: see launcher/head/slurm_step.h.
AgentConfig read_config(const std::vector<std::string>& names) {
    say_of_each(names, "dtrun-agent-found");
    while (read_input(1) != "\n") {
    }
    say_of_each(names, fmt::format("dtrun-agent {} none", kProtocolVersion));
    const auto header = decode_header(read_input(FrameHeader::kBytes));
    if (!header) std::_Exit(1);
    auto config = decode<AgentConfig>(read_input(header->payload_bytes));
    if (!config) std::_Exit(1);
    return std::move(*config);
}

void raise_descriptor_limit() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// Ends this process with the job: srun's standard input is held by the head.
asio::awaitable<void> end_with(asio::posix::stream_descriptor& input) {
    std::array<char, 4'096> bytes{};
    const auto buffer = asio::buffer(bytes);
    for (;;) {
        const auto [error, count] = co_await input.async_read_some(buffer, use_tuple);
        if (error) std::_Exit(0);
    }
}

}  // namespace

int main(int argc, char** argv) {
    constexpr std::string_view kNodes = "--nodelist=";
    std::vector<std::string> names;
    for (const std::string_view word : std::span(argv + 1, static_cast<std::size_t>(argc - 1)))
        if (word.starts_with(kNodes)) names = expand_nodelist(word.substr(kNodes.size())).value();
    if (names.empty()) return 2;
    raise_descriptor_limit();
    log::init("scale_hosts", log::Level::normal);
    asio::io_context io(1);
    Player player(io, read_config(names), names);
    asio::posix::stream_descriptor input(io, ::dup(STDIN_FILENO));
    TaskGroup tasks(io.get_executor());
    tasks.spawn(end_with(input));
    player.start();
    io.run();
    return 0;
}
