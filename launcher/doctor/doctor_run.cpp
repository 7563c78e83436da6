#include "launcher/doctor/doctor_run.h"

#include "base/ids.h"
#include "base/interfaces.h"
#include "base/log.h"
#include "base/simulated.h"
#include "base/strings.h"
#include "rendezvous/wire/message.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <set>

namespace dtrun::doctor {
namespace {

using std::chrono::milliseconds;

constexpr unsigned kAtOnce = 128;  // questions
constexpr milliseconds kAnswerLimit{3'000};
constexpr milliseconds kVisitLimit{2'000};      // for a connection between two hosts
constexpr milliseconds kExchangeLimit{400};     // for one exchange, also where a link is slow
constexpr milliseconds kExchangesLimit{2'000};  // for all of them
constexpr milliseconds kSecondLooksLimit{1'600};
/// Pairs; where more are slow than these, and more than a quarter of the hosts, none is an exception.
constexpr std::size_t kSlowMax = 4;
constexpr std::size_t kLooksAtOnce = 3;     // of pairs that have nothing to do with each other
constexpr milliseconds kFactsLimit{8'300};  // for programs to tell their versions
constexpr milliseconds kEndLimit{1'000};
constexpr std::uint64_t kExchangeBytes = 4u << 20;
constexpr std::size_t kRoundsMax = 6;

/// What a host says, as a terminal and JSON may have it.
std::string harmless(std::string_view text) {
    constexpr std::size_t kBytesMax = 300;
    return escaped(text, kBytesMax);
}

/// What went wrong, perhaps in several lines, of which some are the host's own.
std::string in_one_line(std::string_view text) {
    std::string line;
    for (const std::string_view part : split(text, '\n'))
        if (!trim(part).empty()) line += (line.empty() ? "" : "; ") + harmless(trim(part));
    return line;
}

milliseconds since(Deadline start) {
    return std::chrono::duration_cast<milliseconds>(Clock::now() - start);
}

}  // namespace

DoctorRun::DoctorRun(asio::any_io_executor executor, const plan::JobSpec& spec,
                     head::ChannelOpener& channels)
    : executor_(std::move(executor)),
      spec_(spec),
      channels_(channels),
      copies_(spec.hosts.size()),
      gate_(executor_, static_cast<unsigned>(spec.options.fanout)) {
    token_.resize(Examine::kTokenBytes);
    random_bytes({reinterpret_cast<std::uint8_t*>(token_.data()), token_.size()});
    found_.directory = spec_.directory;
    found_.directory_required = spec_.directory_required;
    for (const plan::JobHost& host : spec_.hosts) {
        probes_.emplace_back();
        HostReport& report = found_.hosts.emplace_back();
        report.name = host.host.name;
        report.here = host.transport == plan::Transport::local;
    }
}

asio::awaitable<DoctorReport> DoctorRun::run() {
    const Deadline start = Clock::now();
    const bool any_elsewhere =
        std::ranges::any_of(found_.hosts, [](const HostReport& host) { return !host.here; });
    if (any_elsewhere) {
        auto opened = doctor::ProbeListener::open(executor_, token_);
        if (opened) home_ = std::move(*opened);
        for (const InterfaceAddress& address : interface_addresses())
            if (home_ && !address.loopback)
                found_.home.push_back({"", address.address, home_->port()});
    }
    std::vector<HostId> all;
    for (const HostId host : probes_.hosts()) all.push_back(host);
    const Work logging_in = [this](HostId host) { return log_in(host); };
    const Work visiting = [this](HostId host) { return visit(host); };
    const Work waiting = [this](HostId host) { return wait_for_facts(host); };
    const Work ending = [this](HostId host) { return end(host); };
    co_await all_do(all, logging_in, static_cast<unsigned>(all.size()));  // in turns
    until_ = after(kFactsLimit);
    if (any_elsewhere) co_await all_do(well(), visiting, kAtOnce);
    co_await all_do(well(), waiting, kAtOnce);
    if (any_elsewhere) co_await exchange_all();  // while nothing else goes on there
    co_await all_do(all, ending, kAtOnce);
    if (home_) co_await home_->join();
    found_.took = since(start);
    co_return std::move(found_);
}

std::vector<HostId> DoctorRun::well() const {
    std::vector<HostId> hosts;
    for (const HostId host : probes_.hosts())
        if (found_.hosts[std::to_underlying(host)].is_well()) hosts.push_back(host);
    return hosts;
}

/// Does something for each of these hosts, for so many at once.
asio::awaitable<void> DoctorRun::all_do(std::vector<HostId> hosts, Work work, unsigned at_once) {
    std::ranges::reverse(hosts);
    TaskGroup workers(executor_);
    const std::size_t count = std::min<std::size_t>(hosts.size(), at_once);
    for (std::size_t i = 0; i < count; ++i) workers.spawn(work_off(hosts, work));
    co_await workers.join();
}

asio::awaitable<void> DoctorRun::work_off(std::vector<HostId>& left, const Work& work) {
    while (!left.empty()) {
        const HostId host = left.back();
        left.pop_back();
        co_await work(host);
    }
}

asio::awaitable<void> DoctorRun::log_in(HostId host) {
    const auto& settings = spec_.hosts[host].ssh;
    transport::LoginPass pass(gate_);
    const std::string route = settings ? settings->route : "";
    co_await pass.wait(route);
    const auto begun = co_await begin(host, pass);
    if (begun) co_return;
    HostReport& failed = report(host);
    std::string why = begun.error().message;
    const bool greeted = failed.login > milliseconds(0);
    if (begun.error().code == Errc::timed_out && !greeted)
        why += fmt::format(" within {:.3g} s (--connect-timeout)",
                           std::chrono::duration<double>(spec_.options.connect_timeout).count());
    failed.why = in_one_line(why);
}

asio::awaitable<Result<void>> DoctorRun::begin(HostId host, transport::LoginPass& pass) {
    const milliseconds patience = spec_.options.connect_timeout;
    Deadline deadline = after(patience);
    const Deadline start = Clock::now();
    const std::string name = spec_.hosts[host].host.name;
    bool copied = false;
    const std::function<void(const char*)> phase = [name, &copied, &pass](const char* what) {
        pass.now(what);
        log::info("{}: {}", name, what);
        copied = copied || std::string_view(what).starts_with("copying") ||
                 transport::is_left_to_hosts(what);
    };
    auto opened = co_await channels_.open(host, head::AgentTask::examine, deadline, phase);
    if (!opened) co_return std::unexpected(opened.error());
    HostProbe& probe = probes_[host];
    probe.channel = std::move(*opened);
    pass.watch(probe.channel);
    transport::LineReader lines(*probe.channel);
    auto greeted =
        co_await transport::greet_agent(*probe.channel, lines, copies_, deadline, patience, phase);
    if (!greeted) co_return greeted;
    report(host).login = std::max(since(start), milliseconds(1));
    report(host).copied = copied;
    Examine examine;
    examine.token = token_;
    examine.directory = spec_.directory;
    for (const auto& [variable, value] : spec_.env_of(spec_.hosts[host]))
        examine.env.push_back(fmt::format("{}={}", variable, value));
    const std::int64_t asked_ns = since_1970().count();
    const Take take = [this, host, asked_ns](const FrameView& frame) {
        if (frame.type != FrameType::examined) return false;
        auto seen = decode<Examined>(frame.payload);
        if (!seen) return false;
        const std::int64_t now_ns = since_1970().count();
        HostReport& known = report(host);
        known.ahead =
            std::chrono::nanoseconds(seen->time_ns - (asked_ns + (now_ns - asked_ns) / 2));
        known.uncertainty = std::chrono::nanoseconds((now_ns - asked_ns) / 2);
        const auto& wanted = spec_.options.network_interfaces;
        std::erase_if(seen->addresses, [&](const HostAddress& address) {
            return !wanted.empty() && std::ranges::find(wanted, address.interface) == wanted.end();
        });
        if (!wanted.empty() && seen->addresses.empty())
            known.why = fmt::format("it has no network interface {} (--network-interfaces)",
                                    join_names(wanted));
        for (HostAddress& address : seen->addresses) {
            address.interface = harmless(address.interface);
            address.address = harmless(address.address);
        }
        known.seen = std::move(*seen);
        return true;
    };
    Bytes question = encode(examine);
    auto answered = co_await ask(host, std::move(question), take, after(kAnswerLimit));
    co_return answered;
}

asio::awaitable<void> DoctorRun::visit(HostId host) {
    Visit order;
    order.targets = targets_for(found_, std::to_underlying(host));
    if (!report(host).here) std::ranges::copy(found_.home, std::back_inserter(order.targets));
    if (order.targets.empty()) co_return;
    order.limit_ms = static_cast<std::uint32_t>(kVisitLimit.count());
    const Take take = [this, host](const FrameView& frame) {
        if (frame.type != FrameType::visited) return false;
        auto visited = decode<Visited>(frame.payload);
        if (!visited) return false;
        for (VisitFailure& failure : visited->failures) failure.why = harmless(failure.why);
        report(host).visited = std::move(visited->failures);
        return true;
    };
    Bytes question = encode(order);
    const auto answered =
        co_await ask(host, std::move(question), take, after(kVisitLimit + kAnswerLimit));
    if (!answered)
        report(host).why = in_one_line("its agent stopped answering: " + answered.error().message);
}

/// Everybody with some others; then those twice more that were slow, a few at a time: it may have been
/// chance.
asio::awaitable<void> DoctorRun::exchange_all() {
    const Deadline until = after(kExchangesLimit);
    std::vector<std::size_t> hosts;
    for (const HostId host : well()) hosts.push_back(std::to_underlying(host));
    for (const auto& round : rounds_of(hosts, kRoundsMax)) {
        if (Clock::now() >= until) break;
        TaskGroup pairs(executor_);
        for (const auto& [from, to] : round) pairs.spawn(exchange(from, to));
        co_await pairs.join();
    }
    const std::vector<PairSpeed> slow = suspicious(found_);
    if (slow.size() > std::max<std::size_t>(kSlowMax, hosts.size() / 4)) co_return;
    std::vector<std::size_t> left(slow.size());
    std::iota(left.begin(), left.end(), std::size_t{0});
    while (!left.empty() && Clock::now() < until + kSecondLooksLimit) {
        std::set<std::size_t> busy;  // hosts
        std::vector<std::size_t> later;
        TaskGroup looks(executor_);
        for (const std::size_t i : left) {
            const bool free = busy.size() < kLooksAtOnce * 2 && !busy.contains(slow[i].from) &&
                              !busy.contains(slow[i].to);
            if (!free) {
                later.push_back(i);
                continue;
            }
            busy.insert({slow[i].from, slow[i].to});
            looks.spawn(look_again(slow[i].from, slow[i].to));
        }
        co_await looks.join();
        left = std::move(later);
    }
}

asio::awaitable<void> DoctorRun::look_again(std::size_t from, std::size_t to) {
    for (int look = 1; look < PairSpeed::kLooksMin; ++look) co_await exchange(from, to);
}

asio::awaitable<void> DoctorRun::exchange(std::size_t from, std::size_t to) {
    if (!found_.hosts[from].is_well() || !found_.hosts[to].is_well()) co_return;
    auto target = open_target(found_, from, to);
    if (!target) {
        std::swap(from, to);
        target = open_target(found_, from, to);
    }
    if (!target) co_return;  // they cannot reach each other, which is told already
    const HostId host{static_cast<std::uint32_t>(from)};
    Speed exchanged;
    const Take take = [&exchanged](const FrameView& frame) {
        if (frame.type != FrameType::speed) return false;
        auto told = decode<Speed>(frame.payload);
        if (told) exchanged = std::move(*told);
        return told.has_value();
    };
    Bytes question = encode(
        SpeedTest{*target, kExchangeBytes, static_cast<std::uint32_t>(kExchangeLimit.count())});
    const auto answered =
        co_await ask(host, std::move(question), take, after(kExchangeLimit + kAnswerLimit));
    if (!answered) {
        report(host).why = in_one_line("its agent stopped answering: " + answered.error().message);
        co_return;
    }
    if (!exchanged.reached) co_return;  // the other side has ended meanwhile
    const double seconds =
        static_cast<double>(std::max<std::uint64_t>(exchanged.took_us, 1)) * 1e-6;
    PairSpeed speed{from, to, static_cast<double>(exchanged.bytes) / seconds,
                    harmless(exchanged.why)};
    const auto known = std::ranges::find_if(found_.pairs, [&](const PairSpeed& pair) {
        return std::minmax(pair.from, pair.to) == std::minmax(from, to);
    });
    if (known == found_.pairs.end()) {
        found_.pairs.push_back(std::move(speed));
        co_return;
    }
    speed.looks = known->looks + 1;
    if (speed.bytes_per_second > known->bytes_per_second)
        *known = std::move(speed);
    else
        known->looks = speed.looks;
}

asio::awaitable<void> DoctorRun::wait_for_facts(HostId host) {
    if (!report(host).facts.empty()) co_return;
    const Take take = [this, host](const FrameView&) { return !report(host).facts.empty(); };
    const auto came = co_await listen(host, take, std::max(until_, after(milliseconds(200))));
    if (!came)
        report(host).why = in_one_line("it does not tell what it has: " + came.error().message);
}

asio::awaitable<void> DoctorRun::end(HostId host) {
    if (probes_[host].channel) co_await probes_[host].channel->end(kEndLimit);
}

/// Sends a question, and reads until it is answered. Errc: those of Channel; invalid_input
asio::awaitable<Result<void>> DoctorRun::ask(HostId host, Bytes question, Take take,
                                             Deadline deadline) {
    const auto sent = co_await probes_[host].channel->write(question, deadline);
    // Where the agent has ended, its end says more than our broken pipe.
    if (!sent && sent.error().code != Errc::closed) co_return sent;
    auto answered = co_await listen(host, std::move(take), deadline);
    co_return answered;
}

asio::awaitable<Result<void>> DoctorRun::listen(HostId host, Take take, Deadline deadline) {
    HostProbe& probe = probes_[host];
    std::array<char, 16384> bytes;
    for (;;) {
        const auto taken = take_frames(host, take);
        if (!taken) co_return std::unexpected(taken.error());
        if (*taken) co_return Result<void>{};
        const auto n = co_await probe.channel->read(bytes, deadline);
        if (!n) co_return std::unexpected(n.error());
        if (*n == 0) {
            const std::string ending = co_await transport::describe_ending(*probe.channel);
            co_return fail(Errc::closed, "the agent ended: {}", ending);
        }
        probe.received.append(bytes.data(), *n);
    }
}

void DoctorRun::take_facts(HostId host, std::vector<HostFact> facts) {
    for (HostFact& fact : facts) fact = {harmless(fact.name), harmless(fact.value)};
    report(host).facts = std::move(facts);
}

/// \return true: the answer was among them
Result<bool> DoctorRun::take_frames(HostId host, const Take& take) {
    HostProbe& probe = probes_[host];
    std::string_view rest = probe.received;
    bool done = false;
    while (!done) {
        const auto frame = next_frame(rest);
        if (!frame) return std::unexpected(frame.error());
        if (!*frame) break;
        if ((*frame)->type == FrameType::facts)
            if (auto facts = decode<HostFacts>((*frame)->payload))
                take_facts(host, std::move(facts->facts));
        done = take(**frame);
    }
    probe.received.erase(0, probe.received.size() - rest.size());
    return done;
}

}  // namespace dtrun::doctor
