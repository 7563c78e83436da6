#include "launcher/transport/agent_copies.h"

#include "base/crypto.h"
#include "base/fd.h"
#include "base/ids.h"
#include "base/strings.h"
#include "launcher/transport/agent_file.h"
#include "launcher/transport/carrier.h"
#include "launcher/transport/gzip.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

namespace dtrun::transport {
namespace {

/// Whether other hosts may reach a host there: neither by an address of each machine alone (this one's may be the end of a
/// tunnel) nor by one of a single cable.
bool is_for_others(const std::string& address) {
    boost::system::error_code error;
    const auto ip = asio::ip::make_address(address, error);
    if (error || ip.is_loopback() || ip.is_unspecified()) return false;
    if (ip.is_v6() && ip.to_v6().is_v4_mapped())
        return is_for_others(
            asio::ip::make_address_v4(asio::ip::v4_mapped, ip.to_v6()).to_string());
    constexpr std::uint32_t kLinkLocal = 0xa9fe'0000;  // 169.254.0.0/16
    return ip.is_v6() ? !ip.to_v6().is_link_local()
                      : (ip.to_v4().to_uint() & 0xffff'0000) != kLinkLocal;
}

/// A release has 8 MB; one with debug information and sanitizers ten times as many.
constexpr std::size_t kAgentBytesMax = 1u << 30;

}  // namespace

AgentRequest parse_request(std::string_view said) {
    const auto words = split(trim(said), ' ');
    const auto word = [&words](std::size_t i) {
        return i < words.size() ? words[i] : std::string_view();
    };
    const auto can = split(word(1), ',');
    const auto is_said = [&can](std::string_view what) {
        return std::ranges::find(can, what) != can.end();
    };
    return {{std::string(word(0)), is_said("gzip")},
            is_said("tcp"),
            is_said("python"),
            std::string(word(2)),
            is_said("unreached")};
}

AgentCopies::AgentCopies(std::size_t hosts)
    : word_(hosts > 1 ? fmt::format("{:016x}", random_id()) : "") {}

Result<const AgentCopy*> AgentCopies::get(const HostWants& wants) {
    if (const auto known = copies_.find(wants); known != copies_.end()) return &known->second;
    const auto agent = find_agent(wants.machine);
    if (!agent) return fail(Errc::internal, "{}", agent.error().message);
    auto bytes = read_file(agent->path, kAgentBytesMax);
    if (!bytes) return std::unexpected(bytes.error());
    std::string package;
    if (!agent->package.empty()) {
        auto read = read_file(agent->package, kAgentBytesMax);
        if (!read) return std::unexpected(read.error());
        package = std::move(*read);
    }
    // Who installs or builds dtrun replaces one file after the other, and hosts would keep what does not belong together. The
    // agent has its package's digest as text.
    const auto again = find_agent(wants.machine);
    if (!again || again->build_id != agent->build_id ||
        (!package.empty() && !bytes->contains(hex(sha256(package)))))
        return fail(Errc::internal,
                    "{} and the Python package beside it are not of one build: is dtrun being "
                    "installed, or built, this moment? Start again when that is done; else one of "
                    "the two is left over from before: install, or build, all of dtrun anew",
                    agent->path);
    if (wants.gzip) *bytes = gzip(*bytes);
    const std::size_t of_agent = bytes->size();
    *bytes += package;
    AgentCopy copy;
    copy.build_id = agent->build_id;
    copy.announcement = fmt::format("{} {} {} {} {}", agent->build_id, bytes->size(),
                                    hex(sha256(*bytes)), of_agent, wants.gzip ? "gzip" : "plain");
    copy.bytes = std::move(*bytes);
    return &copies_.emplace(wants, std::move(copy)).first->second;
}

asio::awaitable<bool> HomeTurn::wait(AgentCopies& copies, const AgentRequest& request,
                                     std::function<void()> waits) {
    shared_ = nullptr;
    if (request.home.empty()) co_return true;
    const auto executor = co_await asio::this_coro::executor;
    const std::string name = request.home + " " + request.wants.machine;
    AgentCopies::Home& home = copies.homes_.try_emplace(name, executor).first->second;
    const bool is_first = ++copies.asked_ == 1;
    if (copies.second_) copies.second_->cancel();
    if (home.copying && !home.stored) waits();
    while (home.copying && !home.stored) co_await home.changed.async_wait(use_tuple);
    if (home.stored) {
        shared_ = &home;
        co_return false;
    }
    home.copying = true;
    home_ = &home;
    if (is_first && request.carries && copies.hands_on()) co_await copies.wait_for_second();
    co_return true;
}

void HomeTurn::stored() {
    if (home_ == nullptr) return;
    home_->stored = true;
    home_->changed.cancel();
}

asio::awaitable<void> HomeTurn::all_of_it(std::function<void()> waits) {
    if (shared_ != nullptr && shared_->copying) waits();
    while (shared_ != nullptr && shared_->copying) co_await shared_->changed.async_wait(use_tuple);
}

asio::awaitable<void> AgentCopies::wait_for_second() {
    const auto executor = co_await asio::this_coro::executor;
    second_ = std::make_unique<Timer>(executor, Timer::clock_type::now() + kSecondLimit);
    co_await second_->async_wait(use_tuple);
}

HomeTurn::~HomeTurn() {
    if (home_ == nullptr) return;
    home_->copying = false;
    home_->changed.cancel();
}

bool AgentCopies::GivesSooner::operator()(const Giver* one, const Giver* other) const {
    const auto place = [](const Giver* giver) {
        return std::tuple(giver->takers, giver->depth, giver->number);
    };
    return place(one) < place(other);
}

/// One that gives to nobody, so that the whole of a link is for each copy: hosts form a line, and what has all of it is at
/// the front. Where the line is so long that its end would hear late of the front, one that gives to one already. Who
/// fetches without Python is sent to one that has all of it.
AgentCopies::Giver* AgentCopies::find_giver(const HostWants& wants, bool carries) {
    const Givers& ready = ready_[wants];
    const unsigned depth_end = carries ? kDepthMax : 1;
    Giver nearest{};
    for (; nearest.takers < kTakersMax; ++nearest.takers) {
        const auto found = ready.lower_bound(&nearest);
        if (found != ready.end() && (*found)->takers == nearest.takers &&
            (*found)->depth < depth_end)
            return *found;
    }
    return nullptr;
}

AgentCopies::Giver& AgentCopies::add_giver(const HostWants& wants, std::string address, int port,
                                           unsigned depth) {
    Giver& giver =
        givers_.emplace_back(Giver{wants, std::move(address), port, depth, givers_.size()});
    ready_[wants].insert(&giver);
    slot_is_free();
    return giver;
}

void AgentCopies::change(Giver& giver, const std::function<void(Giver&)>& does) {
    Givers& ready = ready_[giver.wants];
    ready.erase(&giver);
    does(giver);
    if (giver.takers < kTakersMax && giver.failures < kGiverFailuresMax) ready.insert(&giver);
}

void AgentCopies::slot_is_free() {
    if (slot_free_) slot_free_->cancel();
}

CopySlot::~CopySlot() {
    leave();
}

void CopySlot::ask(AgentCopies& copies, const AgentRequest& request,
                   std::chrono::milliseconds patience) {
    copies_ = &copies;
    const bool is_own_fault = carries_ && !request.carries;  // its Python's
    AgentCopies::Giver* const failed = is_own_fault ? nullptr : giver_;
    // What a host could not give because it had not got it itself says nothing of hosts' ways to each other.
    const bool was_in_vain = failed != nullptr && (failed->depth == 0 || request.unreached);
    if (failed != nullptr) {
        ++failures_;
        copies.failures_ += was_in_vain;
        copies.change(*failed, [](AgentCopies::Giver& giver) {
            giver.failures += giver.depth == 0 ? 1 : AgentCopies::kGiverFailuresMax;
        });
    }
    leave();
    may_fetch_ = !was_in_vain && failures_ < kTriesMax;
    request_ = request;
    limit_s_ =
        std::max<long>(std::chrono::duration_cast<std::chrono::seconds>(patience / 2).count(), 1);
    const bool is_first = copies.homes_.size() == 1 && !request.home.empty();
    carries_ = request.carries && copies.hands_on() && !is_first;
    own_place_ = {};
}

std::string CopySlot::program() const {
    if (!carries_) return {};
    return fmt::format(" {} {} {}\n{}", copies_->word_, limit_s_, kCarrier.size(), kCarrier);
}

void CopySlot::listens(std::string address, int port) {
    if (port > 0 && is_for_others(address)) own_place_ = {std::move(address), port};
}

asio::awaitable<void> CopySlot::wait(std::function<void()> waits) {
    words_ = "\n";
    AgentCopies& copies = *copies_;
    if ((!request_.fetches && !carries_) || !copies.hands_on()) co_return;
    const auto executor = co_await asio::this_coro::executor;
    if (!copies.slot_free_)
        copies.slot_free_ = std::make_unique<Timer>(executor, Timer::time_point::max());
    for (bool has_waited = false;; has_waited = true) {
        if (may_fetch_) giver_ = copies.find_giver(request_.wants, carries_);
        if (giver_ != nullptr || copies.own_ < AgentCopies::kOwnMax) break;
        if (!has_waited) waits();
        co_await copies.slot_free_->async_wait(use_tuple);
        if (!copies.hands_on())
            co_return;  // others have found out meanwhile that hosts do not reach each other
    }
    is_held_ = true;
    if (giver_ != nullptr)
        copies.change(*giver_, [](AgentCopies::Giver& giver) { ++giver.takers; });
    else
        ++copies.own_;
    const std::string from =
        giver_ != nullptr ? fmt::format("{} {}", giver_->port, giver_->address) : "";
    words_ = carries_ ? from + "\n"
                      : fmt::format(" {} {} 0{}{}\n", copies.word_, limit_s_,
                                    from.empty() ? "" : " ", from);
    if (own_place_.second > 0) add_giver(giver_ != nullptr ? 1 + giver_->depth : 1);
}

void CopySlot::add_giver(unsigned depth) {
    AgentCopies::Giver& own = copies_->add_giver(request_.wants, std::move(own_place_.first),
                                                 std::exchange(own_place_.second, 0), depth);
    if (depth > 0) own_ = &own;
}

void CopySlot::hands_on(std::string address, int port) {
    if (copies_ == nullptr) return;
    listens(std::move(address), port);
    if (own_place_.second > 0) add_giver(0);
}

void CopySlot::done() {
    if (!is_held_) return;
    if (own_ != nullptr)
        copies_->change(*std::exchange(own_, nullptr), [](AgentCopies::Giver& own) {
            own.failures = 0;  // of takers for whom the rest did not come to it
            own.depth = 0;
        });
    if (giver_ != nullptr) ++copies_->successes_;
    leave();
}

/// A host that has not got it gives it no more.
void CopySlot::leave() {
    if (own_ != nullptr)
        copies_->change(*std::exchange(own_, nullptr), [](AgentCopies::Giver& own) {
            own.failures = AgentCopies::kGiverFailuresMax;
        });
    if (!std::exchange(is_held_, false)) return;
    if (giver_ != nullptr)
        copies_->change(*std::exchange(giver_, nullptr),
                        [](AgentCopies::Giver& giver) { --giver.takers; });
    else
        --copies_->own_;
    copies_->slot_is_free();
}

}  // namespace dtrun::transport
